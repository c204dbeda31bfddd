//! `qo explain`: why is my job not running?

use super::argument;
use crate::cli::Format;
use crate::output::{self, Screen, Style, Times, clean, counted};
use crate::place::{Place, SPEAK, times};
use crate::trouble::{Done, Trouble};
use clap::Args;
use qo::core::words::{state_name, told};
use qo::core::{GroupRef, JobDetail, JobId, JobState, Name, Reason};

/// Say why a job is not running, and what to do about it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  qo explain 019a8a5e-7c1b-7a10-9d43-3e2a6f0c9b11\n  qo explain JOB --json"
)]
pub struct Explain {
    /// The job's id.
    #[arg(value_parser = argument::job)]
    job: JobId,
    #[command(flatten)]
    format: Format,
}

impl Explain {
    /// Explains.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        let store = place.open_existing().await?;
        let found = store.explain(self.job).await;
        let explanation = found.map_err(|error| {
            Trouble::from(error).hint("`qo jobs list` shows the jobs that are remembered")
        })?;
        if self.format.json {
            return screen.json(&output::explanation(&explanation));
        }
        let times = times(&store).await?;
        let detail = store.job(self.job).await?;
        let state = screen.styled(state_name(explanation.state), Style::Strong);
        screen.line(format_args!("job {} ({}) is {state}.", self.job, detail.view.task))?;
        if explanation.reasons.is_empty() {
            screen.line(settled(&detail, &times))?;
            return match gone(&detail, &times) {
                Some(advice) => screen.line(screen.styled(&format!("  → {advice}"), Style::Dim)),
                None => Ok(()),
            };
        }
        for reason in &explanation.reasons {
            let worker = |task: &Name| place.worker_for(task);
            let (why, advice) = told(reason, self.job, &times, worker);
            screen.line(format_args!("- {why}"))?;
            if let Some(advice) = advice {
                screen.line(screen.styled(&format!("  → {advice}"), Style::Dim))?;
            }
        }
        let by_cluster =
            |reason: &Reason| matches!(reason, Reason::HeldByLimitZero { group: GroupRef::Cluster });
        if explanation.reasons.iter().any(by_cluster)
            && let Some(hold) = place.hold(&store).await?
        {
            screen.line(format_args!("- the namespace is {hold}"))?;
            screen.line(screen.styled(&format!("  → {SPEAK}"), Style::Dim))?;
        }
        Ok(())
    }
}

/// What to do if the worker of a running job is gone: its lease is over, and no command has ended it yet.
fn gone(detail: &JobDetail, times: &Times) -> Option<String> {
    let run = detail.view.running.as_ref()?;
    let advice = "its worker is gone, and its lease is over: the next worker that claims ends it; start one";
    times.has_passed(run.lease_until).then(|| advice.to_owned())
}

/// The answer for a job that runs or has ended.
fn settled(detail: &JobDetail, times: &Times) -> String {
    let view = &detail.view;
    let ended = view.finished_at.map(|at| times.full(at)).unwrap_or_default();
    let last = detail.attempts.iter().rev().find_map(|attempt| attempt.error.as_ref());
    // A program wrote it: it must not steer the terminal.
    let lines = |error: &str| error.trim_end().lines().map(clean).collect::<Vec<_>>().join("\n");
    let last = last.map(|error| format!(" Its last error: {}", lines(error.as_str()))).unwrap_or_default();
    match (view.state, &view.running) {
        (_, Some(run)) => {
            let cancel = if view.cancel_requested { " It was asked to stop." } else { "" };
            format!(
                "It runs on {} for {}; attempt {} of {}, fence token {}.{cancel}",
                run.worker,
                times.age(run.since),
                view.attempts_used + 1,
                view.max_attempts,
                run.token
            )
        }
        (JobState::Succeeded, _) => format!("It succeeded at {ended}."),
        (JobState::Failed, _) => {
            format!(
                "It failed at {ended} after {}.{last}\n  → try it again: qo jobs retry {}",
                counted(view.attempts_used.into(), "attempt"),
                view.id
            )
        }
        (JobState::Cancelled, _) => {
            format!("It was cancelled at {ended}.\n  → open it again: qo jobs retry {}", view.id)
        }
        (JobState::Expired, _) => {
            format!(
                "It was not started in time and expired at {ended}.\n  → open it again: qo jobs retry {}",
                view.id
            )
        }
        _ => String::new(),
    }
}
