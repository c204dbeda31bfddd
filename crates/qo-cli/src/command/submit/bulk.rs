//! Many jobs at once: copies of one, or the lines of a file.

use super::options::{fits, now, payload_bytes};
use super::{Submit, wait};
use crate::command::argument::state_name;
use crate::output::{Array, Outcome, Screen, counted};
use crate::place::Place;
use crate::trouble::{Done, FAILED, INTERRUPTED, Trouble, exit_code};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use qo::core::{JobId, JobState, Name, NewJob, Submitted, Time};
use qo::text::{JobText, Zone, new_id};
use qo::{Client, Error, ErrorKind};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;

/// Longest line: a payload may be 16 times as long when every character of it is escaped.
const LINE_BYTES: u64 = 32 << 20;
/// Lines that are read ahead of submitting.
const AHEAD: usize = 1_024;
/// Refused jobs that are printed one by one.
const TOLD: usize = 10;

/// Where lines come from.
#[derive(Debug)]
pub enum Input {
    /// stdin: submitted as it is read.
    Stdin,
    /// A file that was checked, and the number of its jobs.
    File(PathBuf, u64),
}

impl Input {
    /// Checks every line of a file: if one has a mistake, nothing is submitted. Lines of a pipe are checked as they are
    /// read.
    pub fn check(file: &Path, template: &JobText) -> Done<Self> {
        if file == Path::new("-") {
            return Ok(Self::Stdin);
        }
        let unreadable = |error: std::io::Error| {
            let kind = match error.kind() {
                std::io::ErrorKind::NotFound => ErrorKind::NotFound,
                _ => ErrorKind::Unavailable,
            };
            Error::new(kind, format!("{}: {error}", file.display()))
        };
        let metadata = std::fs::metadata(file).map_err(unreadable)?;
        if metadata.is_dir() {
            return Err(Error::invalid("file", file.display(), "must be a file, and is a directory").into());
        }
        if !metadata.is_file() {
            return Ok(Self::File(file.to_owned(), 0));
        }
        let mut lines = Lines::new(Box::new(File::open(file).map_err(unreadable)?));
        let (mut jobs, mut mistakes) = (0, Vec::new());
        while let Some((number, text)) = lines.next() {
            let checked = text.and_then(|text| read_line(&text, template, Time::from_millis(0)));
            match checked {
                Ok(_) => jobs += 1,
                Err(error) => mistakes.push(at_line(number, error)),
            }
            if mistakes.len() >= TOLD {
                break;
            }
        }
        let listed = Error::listed(mistakes, |many| {
            let listed: String = many.iter().map(|error| format!("\n  {}", error.message())).collect();
            format!("mistakes in {}:{listed}", file.display())
        });
        match listed {
            Ok(()) => Ok(Self::File(file.to_owned(), jobs)),
            Err(error) => Err(Trouble::from(error).hint("nothing was submitted")),
        }
    }
}

fn at_line(number: u64, error: Error) -> Error {
    error.found_in(format_args!("line {number}"))
}

/// The job of a line. The store checks dates that depend on its time.
fn read_line(text: &str, template: &JobText, now: Time) -> Result<NewJob, Error> {
    let job = JobText::parse(text, Zone::Machine)?.or(template);
    let is_relative = job.needs_now();
    let job = job.job(now)?;
    job.check().or_else(|error| if is_relative { super::only_dates(error) } else { Err(error) })?;
    Ok(job)
}

/// The lines of a file, without the empty ones.
struct Lines {
    reader: BufReader<Box<dyn Read + Send>>,
    number: u64,
}

impl Lines {
    fn new(reader: Box<dyn Read + Send>) -> Self {
        Self { reader: BufReader::with_capacity(1 << 16, reader), number: 0 }
    }

    fn next(&mut self) -> Option<(u64, Result<String, Error>)> {
        loop {
            self.number += 1;
            let mut bytes = Vec::new();
            let read = self.reader.by_ref().take(LINE_BYTES).read_until(b'\n', &mut bytes);
            let line = match read {
                Ok(0) => return None,
                Ok(_) if bytes.len() as u64 == LINE_BYTES => Err(Error::invalid(
                    "job",
                    "",
                    format_args!("a line must have fewer than {LINE_BYTES} bytes"),
                )),
                Ok(_) => String::from_utf8(bytes).map_err(|_| Error::invalid("job", "", "must be UTF-8")),
                Err(error) => Err(Error::new(ErrorKind::Unavailable, format!("cannot be read: {error}"))),
            };
            match line {
                Ok(line) if line.trim().is_empty() => {}
                line => return Some((self.number, line)),
            }
        }
    }
}

/// Submits copies of a job.
pub async fn copies(
    place: &Place,
    screen: &mut Screen,
    submit: &Submit,
    template: JobText,
    count: u64,
) -> Done {
    template.clone().job(Time::from_millis(0))?.check().or_else(super::only_dates)?;
    let client = submit.client(place).await?;
    let now = match template.good_until.is_some() {
        true => client.store().now().await?,
        false => now(&template, client.store()).await?,
    };
    let feed = Feed::Copies { job: template.job(now)?, number: 0, count };
    Bulk::new(place, client, submit, count, now).run(screen, feed).await
}

/// Submits the lines of a file.
pub async fn file(
    place: &Place,
    screen: &mut Screen,
    submit: &Submit,
    template: JobText,
    input: Input,
) -> Done {
    let client = submit.client(place).await?;
    let (reader, total): (Box<dyn Read + Send>, u64) = match input {
        Input::Stdin => (Box::new(std::io::stdin()), 0),
        Input::File(file, jobs) => {
            let opened = File::open(&file);
            let opened = opened.map_err(|error| {
                Error::new(ErrorKind::Unavailable, format!("{}: {error}", file.display()))
            })?;
            (Box::new(opened), jobs)
        }
    };
    // A read may block for ever. It has a thread of its own, so that Ctrl-C still works.
    let (send, lines) = mpsc::channel(AHEAD);
    tokio::task::spawn_blocking(move || {
        let mut lines = Lines::new(reader);
        while let Some(line) = lines.next() {
            if send.blocking_send(line).is_err() {
                return;
            }
        }
    });
    let now = client.store().now().await?;
    Bulk::new(place, client, submit, total, now).run(screen, Feed::Lines { lines, template, now }).await
}

/// Where jobs come from.
enum Feed {
    Copies { job: NewJob, number: u64, count: u64 },
    Lines { lines: mpsc::Receiver<(u64, Result<String, Error>)>, template: JobText, now: Time },
}

impl Feed {
    /// The next job and its number. With `wait` it waits for it. None if there is no other, or none yet.
    async fn next(&mut self, wait: bool) -> Option<(u64, Result<NewJob, Error>)> {
        match self {
            Self::Copies { job, number, count } => {
                *number += 1;
                (*number <= *count).then(|| (*number, Ok(NewJob { id: new_id(), ..job.clone() })))
            }
            Self::Lines { lines, template, now } => {
                let (number, line) = if wait { lines.recv().await? } else { lines.try_recv().ok()? };
                Some((number, line.and_then(|line| read_line(&line, template, *now))))
            }
        }
    }
}

/// The outcome of one job of many.
#[derive(Serialize)]
struct Became {
    line: u64,
    #[serde(flatten)]
    outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<JobState>,
}

impl Became {
    fn submitted(line: u64, submitted: Submitted, state: Option<JobState>) -> Self {
        Self { line, outcome: submitted.into(), error: None, state }
    }

    fn refused(line: u64, error: Error) -> Self {
        Self { line, outcome: Outcome::REFUSED, error: Some(error), state: None }
    }
}

/// A submit of many jobs.
struct Bulk<'a> {
    place: &'a Place,
    client: Client,
    submit: &'a Submit,
    bar: ProgressBar,
    interrupted: Arc<AtomicBool>,
    /// The store's time when it began, if a job's dates need it.
    began: Time,
    array: Option<Array>,
    accepted: u64,
    existing: u64,
    skipped: u64,
    refused: Vec<(u64, Error)>,
    /// Jobs to wait for, with their lines. They are printed when they have ended.
    waiting: VecDeque<(u64, Submitted, JobId)>,
    /// Tasks of accepted jobs, the first few. If no worker has one of them, a user at a terminal is warned.
    tasks: BTreeSet<Name>,
    /// Accepted jobs whose `good_until` had passed.
    past: u64,
}

impl<'a> Bulk<'a> {
    fn new(place: &'a Place, client: Client, submit: &'a Submit, total: u64, began: Time) -> Self {
        let interrupted = Arc::new(AtomicBool::new(false));
        let heard = Arc::clone(&interrupted);
        tokio::spawn(async move {
            while crate::machine::interrupted().await.is_ok() {
                if heard.swap(true, Ordering::SeqCst) {
                    std::process::exit(INTERRUPTED.into());
                }
            }
        });
        Self {
            place,
            client,
            submit,
            bar: progress(total, "submitted"),
            interrupted,
            began,
            array: None,
            accepted: 0,
            existing: 0,
            skipped: 0,
            refused: Vec::new(),
            waiting: VecDeque::new(),
            tasks: BTreeSet::new(),
            past: 0,
        }
    }

    async fn run(mut self, screen: &mut Screen, mut feed: Feed) -> Done {
        if self.submit.format.json {
            self.array = Some(Array::begin(screen)?);
        }
        let sent = self.send_all(screen, &mut feed).await;
        self.bar.finish_and_clear();
        // Print what was accepted, even if a later call failed.
        if let Err(trouble) = sent {
            let _ = self.end_array(screen);
            let accepted = self.accepted + self.existing;
            return Err(trouble.hint(format!("{accepted} jobs were accepted before that, and stay")));
        }
        let interrupted = self.interrupted.load(Ordering::SeqCst);
        let waited = if self.submit.wait && !interrupted { self.wait_for_all(screen).await } else { Ok(0) };
        let unsuccessful = match waited {
            Ok(unsuccessful) => unsuccessful,
            Err(trouble) => {
                self.bar.finish_and_clear();
                let _ = self.end_array(screen);
                return Err(trouble);
            }
        };
        self.end_array(screen)?;
        self.tell(screen, interrupted)?;
        self.note(screen).await;
        match (interrupted, self.refused.first()) {
            (true, _) => Err(Trouble::Exit(INTERRUPTED)),
            (false, Some((_, error))) => Err(Trouble::Exit(exit_code(error.kind()))),
            (false, None) if unsuccessful > 0 => Err(Trouble::Exit(FAILED)),
            (false, None) => Ok(()),
        }
    }

    /// Ends the array, with the jobs that have not ended yet.
    fn end_array(&mut self, screen: &mut Screen) -> Done {
        let Some(mut array) = self.array.take() else { return Ok(()) };
        for (line, submitted, _) in self.waiting.drain(..) {
            array.add(screen, &Became::submitted(line, submitted, None))?;
        }
        array.end(screen)
    }

    async fn send_all(&mut self, screen: &mut Screen, feed: &mut Feed) -> Done {
        let mut left_over = None;
        loop {
            let (mut numbers, mut jobs, mut bytes) = (Vec::new(), Vec::new(), 0);
            let mut trouble = None;
            loop {
                let next = match left_over.take() {
                    Some((number, job)) => Some((number, Ok(job))),
                    None => self.next(feed, jobs.is_empty()).await,
                };
                match next {
                    Some((number, Ok(job))) if fits(jobs.len(), bytes, payload_bytes(&job)) => {
                        bytes += payload_bytes(&job);
                        numbers.push(number);
                        jobs.push(job);
                    }
                    Some((number, Ok(job))) => {
                        left_over = Some((number, job));
                        break;
                    }
                    Some((number, Err(error))) => {
                        trouble = Some(at_line(number, error));
                        break;
                    }
                    None => break,
                }
            }
            let is_last = jobs.is_empty();
            if !is_last {
                self.send(screen, &numbers, jobs).await?;
            }
            if let Some(error) = trouble {
                return Err(error.into());
            }
            if is_last || self.interrupted.load(Ordering::SeqCst) {
                return Ok(());
            }
        }
    }

    /// The next job. It waits only for the first job of a call; Ctrl-C ends the wait.
    async fn next(&self, feed: &mut Feed, wait: bool) -> Option<(u64, Result<NewJob, Error>)> {
        if !wait {
            return feed.next(false).await;
        }
        let heard = async {
            while !self.interrupted.load(Ordering::SeqCst) {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            next = feed.next(true) => next,
            () = heard => None,
        }
    }

    async fn send(&mut self, screen: &mut Screen, numbers: &[u64], jobs: Vec<NewJob>) -> Done {
        let asked: Vec<_> = jobs.iter().map(|job| (job.task.clone(), job.good_until)).collect();
        let outcomes = self.client.submit_many(jobs).await.map_err(|error| renamed(error, numbers))?;
        for ((&line, (task, good_until)), outcome) in numbers.iter().zip(asked).zip(outcomes) {
            match &outcome {
                Ok(Submitted::Accepted(_)) => {
                    self.accepted += 1;
                    self.past += u64::from(good_until.is_some_and(|until| until <= self.began));
                    if self.tasks.len() < TOLD {
                        self.tasks.insert(task);
                    }
                }
                Ok(Submitted::Existing(_)) => self.existing += 1,
                Ok(Submitted::Skipped) => self.skipped += 1,
                Err(error) => self.refused.push((line, error.clone())),
            }
            if let (Ok(submitted @ (Submitted::Accepted(id) | Submitted::Existing(id))), true) =
                (&outcome, self.submit.wait)
            {
                self.waiting.push_back((line, *submitted, *id));
            } else if let Some(array) = &mut self.array {
                let became = match outcome {
                    Ok(submitted) => Became::submitted(line, submitted, None),
                    Err(error) => Became::refused(line, error),
                };
                array.add(screen, &became)?;
            }
        }
        self.bar.inc(numbers.len() as u64);
        Ok(())
    }

    /// Waits for every job and returns how many did not succeed.
    async fn wait_for_all(&mut self, screen: &mut Screen) -> Done<u64> {
        self.bar = progress(self.waiting.len() as u64, "ended");
        let mut states: BTreeMap<&'static str, u64> = BTreeMap::new();
        let mut unsuccessful = 0;
        let deadline = self.submit.deadline();
        while let Some(&(line, submitted, id)) = self.waiting.front() {
            let detail = wait::until_the_end(self.place, &self.client, screen, id, deadline).await?;
            let state = detail.view.state;
            *states.entry(state_name(state)).or_default() += 1;
            unsuccessful += u64::from(state != JobState::Succeeded);
            self.waiting.pop_front();
            if let Some(array) = &mut self.array {
                array.add(screen, &Became::submitted(line, submitted, Some(state)))?;
            }
            self.bar.inc(1);
        }
        self.bar.finish_and_clear();
        let shown: Vec<String> = states.iter().map(|(state, jobs)| format!("{jobs} {state}")).collect();
        screen.say(shown.join(", "));
        Ok(unsuccessful)
    }

    /// Warns of what looks wrong with accepted jobs.
    async fn note(&self, screen: &mut Screen) {
        if self.past > 0 {
            let jobs = counted(self.past, "job");
            screen.warn(format_args!("good_until of {jobs} has passed: they expire and never run"));
        }
        // As for one job: a script does not pay for this look.
        if self.submit.wait || !std::io::stderr().is_terminal() {
            return;
        }
        let hints = async {
            for task in &self.tasks {
                super::hint_no_worker(self.place, self.client.store(), screen, task).await?;
            }
            Done::Ok(())
        };
        let _ = tokio::time::timeout(super::HINT_PATIENCE, hints).await;
    }

    fn tell(&self, screen: &mut Screen, interrupted: bool) -> Done {
        // The array lists them all.
        let told = if self.submit.format.json { 0 } else { TOLD };
        for (line, error) in self.refused.iter().take(told) {
            screen.error(&at_line(*line, error.clone()));
        }
        if told > 0 && self.refused.len() > told {
            screen.say(format_args!("… and {} more", self.refused.len() - told));
        }
        let counts = [
            (self.existing, "submitted before"),
            (self.skipped, "skipped"),
            (self.refused.len() as u64, "refused"),
        ];
        let mut said = format!("{} submitted", counted(self.accepted, "job"));
        for (count, word) in counts.into_iter().filter(|(count, _)| *count > 0) {
            said.push_str(&format!(", {count} {word}"));
        }
        if interrupted {
            said.push_str("; interrupted before the rest");
        }
        if self.submit.format.json {
            screen.say(said);
            return Ok(());
        }
        screen.line(said)
    }
}

fn progress(total: u64, word: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
    }
    let (bar, template) = match total {
        0 => (ProgressBar::new_spinner(), format!("{{spinner}} {{human_pos}} {word}, {{rate}}")),
        total => {
            let template = format!("{{wide_bar}} {{human_pos}}/{{human_len}} {word}, {{rate}}, {{eta}} left");
            (ProgressBar::new(total), template)
        }
    };
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let rate = |state: &ProgressState, text: &mut dyn std::fmt::Write| {
        // A failure to draw the bar does not stop the submit.
        let _ = write!(text, "{:.0}/s", state.per_sec());
    };
    bar.with_style(style.with_key("rate", rate))
}

/// An error that names a job by its index in a call, renamed to its line.
fn renamed(error: Error, numbers: &[u64]) -> Error {
    match error.item("jobs").and_then(|index| numbers.get(index)) {
        Some(&number) => at_line(number, error.without_item("jobs")),
        None => error,
    }
}
