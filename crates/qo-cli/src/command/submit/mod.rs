//! `qo submit`

mod bulk;
mod options;
pub(super) mod wait;

use super::argument;
use crate::cli::Format;
use crate::output::{Outcome, Screen};
use crate::place::{Place, listed, tasks_of_workers};
use crate::trouble::{Done, Trouble};
use clap::Args;
use options::Options;
use qo::core::{Json, Name, Submitted, Time};
use qo::text::JobText;
use qo::{Client, Error, ErrorKind, Store};
use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use wait::Deadline;

/// How long a submit is repeated, with the same ids, while the store cannot be reached.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a user waits for the warning that no worker has the task.
const HINT_PATIENCE: Duration = Duration::from_millis(200);

/// Submit a job, or many. Prints the job's id.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qo submit resize '{\"image\": \"cat.png\"}' --key user-7
  echo '{\"to\": \"ann\"}' | qo submit mail -
  qo submit report --at \"2026-12-24 18:00\" --max-attempts 5
  qo submit pay '{\"order\": 7}' --workflow order-7 --idempotency-key pay-7
  qo submit sync --limit 1 --on-limit reject     exit code 4 if one waits or runs already
  qo submit report --wait                        prints the output, exit code 1 unless it succeeds
  qo submit report --wait --wait-timeout 5m      exit code 75 if it has not ended by then
  qo submit resize '{}' --count 1000
  qo submit --file jobs.ndjson

A line of a file is an object with the names of the options: {\"task\": \"mail\", \"payload\": {}, \"key\": \"ann\",
\"delay\": \"10m\", \"limits\": {\"gpu\": 2}}; options of the command line fill in what a line leaves out. A file is
checked as a whole before anything is submitted; stdin (--file -) is submitted as it is read.")]
pub struct Submit {
    /// The task. With --file, the task of lines that name none.
    #[arg(value_parser = argument::name, required_unless_present = "file")]
    task: Option<Name>,
    /// The payload that the handler gets: JSON, or - to read it from stdin [default: null].
    #[arg(value_name = "JSON", allow_negative_numbers = true)]
    payload: Option<String>,
    #[command(flatten)]
    options: Options,
    /// Wait for the end and print the output; exit code 1 unless it succeeds.
    #[arg(long)]
    wait: bool,
    /// Wait no longer than this; exit code 75 if it has not ended by then. The job goes on [default: for ever].
    #[arg(long, value_name = "TIME", value_parser = argument::duration, allow_hyphen_values = true, requires = "wait")]
    wait_timeout: Option<u64>,
    /// Submit this many jobs like this.
    #[arg(long, value_name = "N", conflicts_with_all = ["file", "idempotency_key"], allow_negative_numbers = true)]
    count: Option<u64>,
    /// Submit the jobs of a file, one JSON object a line; - for stdin.
    #[arg(long, value_name = "JOBS.ndjson", conflicts_with = "payload")]
    file: Option<PathBuf>,
    #[command(flatten)]
    format: Format,
}

impl Submit {
    /// Submits.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        let payload = self.payload.as_deref().map(read_payload).transpose()?;
        let template = JobText { task: self.task.clone(), payload, ..self.options.clone().into() };
        if let Some(file) = &self.file {
            let file = bulk::Input::check(file, &template)?;
            return bulk::file(place, screen, &self, template, file).await;
        }
        if let Some(count) = self.count {
            return bulk::copies(place, screen, &self, template, count).await;
        }
        self.one(place, screen, template).await
    }

    /// The client. A command that only submits does not read the state.
    async fn client(&self, place: &Place) -> Done<Client> {
        let store = if self.wait { place.open().await? } else { place.open_to_submit().await? };
        Ok(Client::new(store).deadline(PATIENCE))
    }

    /// When the wait for jobs ends.
    fn deadline(&self) -> Option<Deadline> {
        let patience = Duration::from_millis(self.wait_timeout?);
        Some(Deadline { patience, at: tokio::time::Instant::now().checked_add(patience)? })
    }

    async fn one(&self, place: &Place, screen: &mut Screen, template: JobText) -> Done {
        // Report mistakes in the job before a store is made for it.
        template.clone().job(Time::from_millis(0))?.check().or_else(only_dates)?;
        let client = self.client(place).await?;
        let now = options::now(&template, client.store()).await?;
        let job = template.job(now)?;
        let (task, good_until) = (job.task.clone(), job.good_until);
        let outcomes = client.submit_many(vec![job]).await.map_err(without_index)?;
        let outcome = outcomes
            .into_iter()
            .next()
            .ok_or_else(|| Error::new(ErrorKind::Internal, "the store did not say what became of the job"))?;
        let submitted = outcome.map_err(|error| match error.kind() {
            ErrorKind::LimitReached => Trouble::from(error)
                .hint("--on-limit wait lets it wait in line; qo concurrency status shows the groups"),
            _ => error.into(),
        })?;
        let id = match submitted {
            Submitted::Accepted(id) | Submitted::Existing(id) => id,
            Submitted::Skipped => {
                screen.say("skipped: its group is full");
                return if self.format.json { screen.json(&Outcome::from(submitted)) } else { Ok(()) };
            }
        };
        if let Submitted::Existing(_) = submitted {
            screen.say("it was submitted before");
        }
        if let (Submitted::Accepted(_), Some(good_until)) = (submitted, good_until) {
            note_if_past(client.store(), screen, good_until).await;
        }
        if self.wait {
            screen.say(format_args!("job {id}"));
            return wait::one(place, &client, screen, (submitted, id), self.format, self.deadline()).await;
        }
        if self.format.json {
            screen.json(&Outcome::from(submitted))?
        } else {
            screen.line(id)?
        }
        screen.flush()?;
        // A submit appends one record and reads no state; asking for the workers reads all of it. A person at a terminal
        // does not notice. A script that submits a thousand jobs would.
        if std::io::stderr().is_terminal() {
            // The warning is worth a moment, not more.
            let hint = hint_no_worker(place, client.store(), screen, &task);
            let _ = tokio::time::timeout(HINT_PATIENCE, hint).await;
        }
        Ok(())
    }
}

/// Warns if no live worker has a task and the configuration does not name it.
async fn hint_no_worker(place: &Place, store: &Arc<dyn Store>, screen: &mut Screen, task: &Name) -> Done {
    let configured = &place.settings.tasks;
    if configured.contains_key(task) {
        return Ok(());
    }
    let Err(tasks) = tasks_of_workers(store, task).await? else { return Ok(()) };
    let known = configured.keys().map(|task| &**task).chain(tasks.iter().map(String::as_str));
    match qo::settings::nearest(task, known) {
        Some(near) => screen.warn(format_args!("no live worker has task {task}; did you mean {near}?")),
        None if tasks.is_empty() => {
            screen.warn(format_args!("no live worker has task {task}: none is alive"));
            screen.hint(format_args!("start one: {}", place.worker_for(task)));
        }
        None => screen.warn(format_args!("no live worker has task {task}; they have: {}", listed(&tasks))),
    }
    Ok(())
}

/// Warns that a job will never run, because its `good_until` has passed.
async fn note_if_past(store: &Arc<dyn Store>, screen: &mut Screen, good_until: Time) {
    // The job is submitted. If the store does not tell its time, only this warning is missing.
    if let Ok(now) = store.now().await
        && good_until <= now
    {
        screen.warn(format_args!("good_until, {good_until}, has passed: the job expires and never runs"));
    }
}

/// There is only one job: leave its index out of the error.
fn without_index(error: Error) -> Trouble {
    error.without_item("jobs").into()
}

/// Ignores mistakes in `good_until`: it can only be checked once the store's time is known.
fn only_dates(error: Error) -> qo::Result<()> {
    if error.path().as_deref() == Some("good_until") { Ok(()) } else { Err(error) }
}

fn read_payload(text: &str) -> Done<Json> {
    if text != "-" {
        return Json::parse("payload", text).map_err(|error| {
            let hint = hint_for(text, error.message());
            Trouble::from(error).hint(hint)
        });
    }
    let mut read = Vec::new();
    // One byte more than is allowed is enough to know that it is too long.
    let most = qo::core::caps::PAYLOAD_BYTES as u64 + 1;
    std::io::stdin()
        .lock()
        .take(most)
        .read_to_end(&mut read)
        .map_err(|error| Error::new(ErrorKind::Unavailable, format!("stdin cannot be read: {error}")))?;
    if read.len() as u64 == most {
        let rule = format!("must be at most {} bytes", most - 1);
        return Err(Error::invalid("payload", "-", rule).into());
    }
    let text = String::from_utf8(read).map_err(|_| Error::invalid("payload", "-", "must be UTF-8"))?;
    Ok(Json::parse("payload", text.trim())?)
}

/// A hint what a text that is no JSON was probably meant to be.
fn hint_for(text: &str, error: &str) -> &'static str {
    let is_cut = error.contains("EOF while parsing");
    match text.trim_start().chars().next() {
        None => "the payload is empty: leave it out for null, or say '\"\"' for an empty text",
        Some('{' | '[') if is_cut => "it ends too early: a bracket or a quote is opened and not closed",
        Some('{' | '[') if error.contains("trailing characters") => {
            "it goes on after its end: a bracket is closed too often, or a quote is missing"
        }
        Some('{' | '[') if error.contains("nested") => {
            "pass a file's name or a key, and let the handler read it"
        }
        Some('{' | '[') => {
            "keys and texts need double quotes, and the shell wants single ones around all: '{\"key\": \"text\"}'"
        }
        Some('"') if is_cut => "its last double quote is missing",
        _ if error.contains("number out of range") => "a number that large must be a text: '\"1e400\"'",
        _ => "a JSON string needs its own quotes: '\"text\"'",
    }
}
