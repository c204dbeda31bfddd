//! `qo jobs cancel` and `qo jobs retry`

use super::filter::Filter;
use super::style;
use crate::by_hand::by_hand;
use crate::cli::Format;
use crate::command::argument::{self, state_name};
use crate::output::{Screen, Style, Table, counted};
use crate::place::Place;
use crate::trouble::{Done, Trouble, exit_code};
use clap::Args;
use qo::core::{Change, Cursor, JobFilter, JobId, JobState, JobView, caps};
use qo::{Error, Result, Store};
use serde::Serialize;
use std::io::{BufRead, IsTerminal, Write};
use std::sync::Arc;

/// Cancel jobs: waiting jobs end at once, running jobs are told to stop.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qo jobs cancel JOB JOB
  qo jobs cancel --task resize --state pending
  qo jobs cancel --queue stripe --yes")]
pub struct Cancel {
    #[command(flatten)]
    which: Which,
}

/// Reopen failed, cancelled or expired jobs, with all their attempts. A job that waits for its next attempt runs now.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qo jobs retry JOB
  qo jobs retry --state failed --task resize --yes")]
pub struct Retry {
    #[command(flatten)]
    which: Which,
}

#[derive(Debug, Args)]
struct Which {
    /// The jobs' ids.
    #[arg(value_parser = argument::job, value_name = "JOB")]
    jobs: Vec<JobId>,
    #[command(flatten)]
    filter: Filter,
    /// Every job that can be changed.
    #[arg(long)]
    all: bool,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    format: Format,
}

impl Cancel {
    /// Cancels.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        change(place, screen, self.which, Change::Cancel).await
    }
}

impl Retry {
    /// Retries.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        change(place, screen, self.which, Change::Retry).await
    }
}

async fn change(place: &Place, screen: &mut Screen, which: Which, change: Change) -> Done {
    match (which.jobs.is_empty(), which.filter.is_empty(), which.all) {
        (false, true, false) => by_id(&place.open_existing().await?, screen, which, change).await,
        (true, false, false) | (true, true, true) => {
            matching(&place.open_existing().await?, screen, which, change).await
        }
        (true, true, false) => {
            let hint = "name ids, or a filter such as --task NAME, or --all";
            Err(Trouble::usage("no jobs are named").hint(hint))
        }
        _ => Err(Trouble::usage("name jobs by ids, by a filter or by --all, but only in one way")),
    }
}

/// What a command has changed, whichever way the jobs were chosen.
#[derive(Serialize)]
struct Changes<'a> {
    changed: u64,
    /// Each job, if they were named. None if a filter chose them: there may be a million.
    jobs: Option<&'a [Became]>,
}

/// The new state of one job.
#[derive(Serialize)]
struct Became {
    id: JobId,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<JobState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
}

async fn by_id(store: &Arc<dyn Store>, screen: &mut Screen, which: Which, change: Change) -> Done {
    let mut all = Vec::new();
    for jobs in which.jobs.chunks(caps::CANCELS) {
        let became: Vec<Result<JobState>> = match change {
            Change::Cancel => by_hand(&**store).cancel(jobs.to_vec()).await?,
            Change::Retry => by_hand(&**store).retry(jobs.to_vec()).await?,
        };
        all.extend(jobs.iter().zip(became).map(|(&id, became)| match became {
            Ok(state) => Became { id, state: Some(state), error: None },
            Err(error) => Became { id, state: None, error: Some(error) },
        }));
    }
    if which.format.json {
        let changed = all.iter().filter(|became| became.error.is_none()).count() as u64;
        screen.json(&Changes { changed, jobs: Some(&all) })?;
    } else {
        let mut table = Table::new(&["JOB", "STATE"]);
        for became in all.iter() {
            let Some(state) = became.state else { continue };
            let asked = change == Change::Cancel && !state.is_terminal();
            let shown = format!("{}{}", state_name(state), if asked { " (asked to stop)" } else { "" });
            table.row([(became.id.to_string(), Style::Plain), (shown, style(state))]);
        }
        if !table.is_empty() {
            screen.table(table)?;
        }
        all.iter().filter_map(|became| became.error.as_ref()).for_each(|error| screen.error(error));
    }
    match all.iter().find_map(|became| became.error.as_ref()) {
        Some(error) => Err(Trouble::Exit(exit_code(error.kind()))),
        None => Ok(()),
    }
}

async fn matching(store: &Arc<dyn Store>, screen: &mut Screen, which: Which, change: Change) -> Done {
    let mut filter = which.filter.of(store).await?;
    let able: &[JobState] = match change {
        Change::Cancel => &[JobState::Pending, JobState::Claimed, JobState::Running],
        Change::Retry => &[JobState::Pending, JobState::Failed, JobState::Cancelled, JobState::Expired],
    };
    match filter.states.is_empty() {
        true => filter.states = able.to_vec(),
        false => filter.states.retain(|state| able.contains(state)),
    }
    let word = if change == Change::Cancel { "cancel" } else { "retry" };
    // No state is left. An empty list would mean any state.
    let mut is_over = filter.states.is_empty();
    if !is_over && !which.yes {
        // Only the question needs the number: counting a million jobs takes a thousand pages.
        match count(store, change, &filter).await? {
            0 => is_over = true,
            count => confirm(screen, word, count)?,
        }
    }
    let (mut changed, mut after): (u64, Option<Cursor>) = (0, None);
    while !is_over {
        let page = by_hand(&**store).change_matching(change, filter.clone(), after, caps::PAGE).await;
        let page = page.map_err(|error| {
            let done = counted(changed, "job");
            Trouble::from(error).hint(format!("{done} were changed before that; run the command again"))
        })?;
        changed += page.jobs;
        after = page.next;
        is_over = after.is_none();
    }
    if which.format.json {
        return screen.json(&Changes { changed, jobs: None });
    }
    let done =
        if change == Change::Cancel { "cancelled, or asked to stop" } else { "open again, or due now" };
    screen.line(format_args!("{} {done}", counted(changed, "job")))
}

/// How many jobs will be changed, at most: a listing does not show whether a job that waits for its time has run
/// before.
async fn count(store: &Arc<dyn Store>, change: Change, filter: &JobFilter) -> Done<u64> {
    let (mut count, mut after, now) = (0, None, store.now().await?);
    // A retry changes only those pending jobs that wait for their next attempt.
    let can = |job: &&JobView| change == Change::Cancel || job.state != JobState::Pending || job.run_at > now;
    loop {
        let page = store.jobs(filter.clone(), after, caps::PAGE).await?;
        count += page.jobs.iter().filter(can).count() as u64;
        after = page.next;
        if after.is_none() {
            return Ok(count);
        }
    }
}

fn confirm(screen: &mut Screen, word: &str, count: u64) -> Done {
    if !std::io::stdin().is_terminal() {
        return Err(Trouble::usage(format!("{} may match; to {word} say --yes", counted(count, "job"))));
    }
    screen.flush()?;
    // Without stderr the user does not see the question, so the answer is not yes.
    let _ = write!(std::io::stderr(), "{word} {}? [y/N] ", counted(count, "job"));
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    match read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes") {
        true => Ok(()),
        false => {
            screen.say("nothing was changed");
            Err(Trouble::Exit(crate::trouble::FAILED))
        }
    }
}
