//! `qo jobs list`

use super::filter::Filter;
use super::style;
use crate::cli::Format;
use crate::command::argument::{self, state_name};
use crate::output::{Array, Screen, Style, Table, Times, clean};
use crate::place::{Place, did_you_mean, times};
use crate::trouble::{Done, Trouble};
use clap::Args;
use qo::core::{Cursor, JobFilter, JobView, Name, caps};
use qo::{Error, ErrorKind, Store};
use std::sync::Arc;

/// Rows that people get by default.
const ROWS: usize = 50;

/// List jobs, in the order in which they were accepted or the newest first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qo jobs list
  qo jobs list --state pending,running --queue stripe
  qo jobs list --newest --since 2h --state failed
  qo jobs list --workflow order-7 --json

With --json the result is an array of all matching jobs, or of the first --limit.")]
pub struct List {
    #[command(flatten)]
    filter: Filter,
    /// The newest first.
    #[arg(long)]
    newest: bool,
    /// Show at most this many [default: 50; all with --json].
    #[arg(long, value_name = "N", conflicts_with = "all", value_parser = argument::count)]
    limit: Option<usize>,
    /// Show all, however many.
    #[arg(long)]
    all: bool,
    /// Go on after this cursor, which an earlier page prints at its end.
    #[arg(long, value_name = "CURSOR")]
    after: Option<u64>,
    #[command(flatten)]
    format: Format,
}

impl List {
    /// Lists them.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        let store = place.open_existing().await?;
        let default = if self.format.json { usize::MAX } else { ROWS };
        let most = if self.all { usize::MAX } else { self.limit.unwrap_or(default) };
        let filter = JobFilter { newest_first: self.newest, ..self.filter.of(&store).await? };
        let after = self.after.map(Cursor);
        if self.format.json {
            return list_json(&store, screen, filter, after, most).await;
        }
        let times = times(&store).await?;
        let (jobs, next) = read(&store, filter.clone(), after, most).await?;
        if jobs.is_empty() {
            return none(&store, screen, &filter).await;
        }
        screen.table(table(&jobs, &times))?;
        if let Some(next) = next {
            screen.say(format_args!("… {} jobs shown; go on with --after {}, or --all", jobs.len(), next.0));
        }
        Ok(())
    }
}

async fn read(
    store: &Arc<dyn Store>,
    filter: JobFilter,
    mut after: Option<Cursor>,
    most: usize,
) -> Done<(Vec<JobView>, Option<Cursor>)> {
    let mut jobs = Vec::new();
    loop {
        let page = store.jobs(filter.clone(), after, caps::PAGE.min(most - jobs.len())).await?;
        jobs.extend(page.jobs);
        after = page.next;
        if after.is_none() || jobs.len() >= most {
            return Ok((jobs, after));
        }
    }
}

async fn list_json(
    store: &Arc<dyn Store>,
    screen: &mut Screen,
    filter: JobFilter,
    mut after: Option<Cursor>,
    most: usize,
) -> Done {
    let mut left = most;
    let mut array = Array::begin(screen)?;
    while left > 0 {
        let page = store.jobs(filter.clone(), after, caps::PAGE.min(left)).await?;
        for job in &page.jobs {
            array.add(screen, job)?;
        }
        left -= page.jobs.len();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    array.end(screen)
}

fn table(jobs: &[JobView], times: &Times) -> Table {
    let mut table = Table::new(&["ID", "STATE", "TASK", "QUEUE", "GROUP", "TRIES", "AGE", "NOTE"]);
    for job in jobs {
        let group = match &job.key {
            Some(key) => format!("{}/{key}", job.group),
            None => job.group.to_string(),
        };
        table.row([
            (job.id.to_string(), Style::Plain),
            (state_name(job.state).to_owned(), style(job.state)),
            (job.task.to_string(), Style::Strong),
            (job.queue.to_string(), Style::Plain),
            (group, Style::Plain),
            (format!("{}/{}", job.attempts_used, job.max_attempts), Style::Plain),
            (times.age(job.submitted_at), Style::Plain),
            (note(job, times), Style::Dim),
        ]);
    }
    table
}

fn note(job: &JobView, times: &Times) -> String {
    let mut notes = Vec::new();
    if let Some(unreadable) = &job.unreadable {
        notes.push(format!("cannot be read: {}", clean(unreadable)));
    }
    if let Some(run) = &job.running {
        let progress = run.progress.as_ref().map(|progress| format!(", {} %", progress.percent));
        let progress = progress.unwrap_or_default();
        notes.push(format!("on {} for {}{progress}", run.worker, times.age(run.since)));
    } else if let Some(claimed) = &job.claimed {
        notes.push(format!("claimed by {}", claimed.worker));
    } else if let Some(at) = job.finished_at {
        notes.push(format!("ended {}", times.away(at)));
    } else if job.run_at > job.submitted_at && times.away(job.run_at).starts_with("in ") {
        notes.push(format!("due {}", times.away(job.run_at)));
    }
    if job.cancel_requested && job.finished_at.is_none() {
        notes.push("asked to stop".into());
    }
    if let (Some(workflow), Some(step)) = (&job.workflow, job.step) {
        notes.push(format!("{workflow} step {step}{}", if job.skipped { ", skipped" } else { "" }));
    }
    notes.join("; ")
}

/// No job matches: perhaps a name is misspelled.
async fn none(store: &Arc<dyn Store>, screen: &mut Screen, filter: &JobFilter) -> Done {
    screen.say("no jobs match");
    if *filter == JobFilter::default() {
        screen.hint("submit one: qo submit TASK JSON");
        return Ok(());
    }
    let page = store.jobs(JobFilter::default(), None, caps::PAGE).await?;
    type Field<'a> = (&'a Option<Name>, fn(&JobView) -> Option<String>);
    let fields: [Field<'_>; 4] = [
        (&filter.task, |job| Some(job.task.to_string())),
        (&filter.queue, |job| Some(job.queue.to_string())),
        (&filter.group, |job| Some(job.group.to_string())),
        (&filter.workflow, |job| job.workflow.as_ref().map(ToString::to_string)),
    ];
    for (asked, of) in fields {
        let Some(asked) = asked else { continue };
        let mut known: Vec<String> = page.jobs.iter().filter_map(of).collect();
        known.sort();
        known.dedup();
        if known.iter().any(|known| **known == **asked) {
            continue;
        }
        let missing = Trouble::from(Error::new(ErrorKind::NotFound, asked.to_string()));
        if let Trouble::Error { hints, .. } = did_you_mean(missing, asked, known) {
            hints.iter().for_each(|hint| screen.hint(format_args!("{asked}: {hint}")));
        }
    }
    Ok(())
}
