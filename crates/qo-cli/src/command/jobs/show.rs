//! `qo jobs show`

use super::style;
use crate::cli::Format;
use crate::command::argument::{self, state_name};
use crate::output::{Screen, Style, Table, Times, clean, detail as detail_json};
use crate::place::{Place, times};
use crate::trouble::{Done, Trouble};
use clap::Args;
use qo::Store;
use qo::core::{Attempt, AttemptOutcome, JobDetail, JobId, JobState, Json};
use qo::settings::show_ms;
use std::sync::Arc;

/// Show everything about a job: payload, output, attempts.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  qo jobs show JOB\n  qo jobs show JOB --json | jq .output")]
pub struct Show {
    /// The job's id.
    #[arg(value_parser = argument::job)]
    job: JobId,
    #[command(flatten)]
    format: Format,
}

/// A job. If it is not found, a hint where jobs are listed.
pub(super) async fn find(store: &Arc<dyn Store>, job: JobId) -> Done<JobDetail> {
    store.job(job).await.map_err(|error| {
        let hint = "`qo jobs list` shows the jobs that are remembered; finished ones are forgotten after [retention]";
        Trouble::from(error).hint(hint)
    })
}

impl Show {
    /// Shows it.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        let store = place.open_existing().await?;
        let job = find(&store, self.job).await?;
        if self.format.json {
            return screen.json(&detail_json(&job));
        }
        let times = times(&store).await?;
        screen.table(facts(&job, &times))?;
        if !job.attempts.is_empty() {
            screen.line("")?;
            screen.table(attempts(&job.attempts, &times))?;
        }
        match job.view.state {
            JobState::Pending | JobState::Claimed => {
                screen.hint(format_args!("why does it wait? qo explain {}", self.job))
            }
            JobState::Failed => screen
                .hint(format_args!("its logs: qo jobs logs {0}; once more: qo jobs retry {0}", self.job)),
            _ => {}
        }
        Ok(())
    }
}

fn facts(job: &JobDetail, times: &Times) -> Table {
    let view = &job.view;
    let mut table = Table::of_facts();
    table.fact("job", view.id.to_string());
    table.row([("state".into(), Style::Dim), (state_name(view.state).into(), style(view.state))]);
    if let Some(unreadable) = &view.unreadable {
        table.row([("cannot be read".into(), Style::Dim), (clean(unreadable), Style::Bad)]);
    }
    table.fact("task", view.task.to_string());
    table.fact("queue", format!("{} (priority {})", view.queue, view.priority));
    let key = view.key.as_ref().map(|key| format!("/{key}")).unwrap_or_default();
    table.fact("group", format!("{}{key} (cost {})", view.group, view.cost));
    if !view.limits.is_empty() {
        let limits: Vec<String> =
            view.limits.iter().map(|(group, slots)| format!("{group}={slots}")).collect();
        table.fact("limits", limits.join(", "));
    }
    if let (Some(workflow), Some(step)) = (&view.workflow, view.step) {
        table.fact(
            "workflow",
            format!("{workflow}, step {step}{}", if view.skipped { " (skipped)" } else { "" }),
        );
    }
    if let Some(key) = &view.idempotency_key {
        table.fact("idempotency key", key.to_string());
    }
    if let Some(traceparent) = view.traceparent {
        table.fact("traceparent", traceparent.to_string());
    }
    table.fact("attempts", format!("{} of {} used", view.attempts_used, view.max_attempts));
    table.fact("submitted", times.full(view.submitted_at));
    if view.run_at > view.submitted_at {
        table.fact("due", times.full(view.run_at));
    }
    if let Some(good_until) = view.good_until {
        table.fact("good until", times.full(good_until));
    }
    if let Some(run) = &view.running {
        let lease = times.away(run.lease_until);
        table.fact(
            "runs on",
            format!(
                "{} for {}, fence token {}, lease ends {lease}",
                run.worker,
                times.age(run.since),
                run.token
            ),
        );
    }
    if let Some(progress) = view.running.as_ref().and_then(|run| run.progress.as_ref()) {
        let note = progress.note.as_str();
        table.fact("progress", format!("{} % {note} ({})", progress.percent, times.away(progress.at)));
    }
    if let Some(claimed) = &view.claimed {
        table.fact("claimed by", format!("{} for {}", claimed.worker, times.age(claimed.since)));
    }
    if view.cancel_requested {
        table.fact("cancel", "asked to stop");
    }
    if let Some(at) = view.finished_at {
        table.fact("ended", times.full(at));
    }
    table.fact("payload", shown(job.payload.as_str()));
    if let Some(output) = &job.output {
        table.fact("output", shown_output(output));
    }
    table
}

fn shown_output(output: &Json) -> String {
    match qo::program::bytes(output) {
        Some(bytes) => format!("{} bytes that are not text (--json has them as base64)", bytes.len()),
        None => shown(output.as_str()),
    }
}

/// A long text is cut: it does not fit into a table.
fn shown(json: &str) -> String {
    const MOST: usize = 400;
    let cut = json.floor_char_boundary(MOST);
    match cut < json.len() {
        true => format!("{}… ({} bytes; --json shows all)", &json[..cut], json.len()),
        false => json.to_owned(),
    }
}

fn attempts(attempts: &[Attempt], times: &Times) -> Table {
    let mut table = Table::new(&["ATTEMPT", "OUTCOME", "WORKER", "STARTED", "TOOK", "ERROR"]);
    for attempt in attempts {
        let (outcome, style) = outcome(attempt.outcome);
        let error = attempt.error.as_ref().map(|error| shown(error.as_str().trim_end())).unwrap_or_default();
        table.row([
            (attempt.number.to_string(), Style::Plain),
            (outcome.to_owned(), style),
            (attempt.worker.to_string(), Style::Plain),
            (times.full(attempt.started_at), Style::Plain),
            (show_ms(attempt.duration_ms()), Style::Plain),
            (error, Style::Plain),
        ]);
    }
    table
}

fn outcome(outcome: AttemptOutcome) -> (&'static str, Style) {
    match outcome {
        AttemptOutcome::Succeeded => ("succeeded", Style::Good),
        AttemptOutcome::Retried => ("retried", Style::Warn),
        AttemptOutcome::Failed => ("failed", Style::Bad),
        AttemptOutcome::Snoozed => ("snoozed", Style::Plain),
        AttemptOutcome::Released => ("released", Style::Plain),
        AttemptOutcome::Cancelled => ("cancelled", Style::Warn),
        AttemptOutcome::LeaseEnded => ("lease ended", Style::Bad),
        AttemptOutcome::TimedOut => ("timed out", Style::Bad),
        AttemptOutcome::ReleasedByOperator => ("released by operator", Style::Warn),
        // Of a release that knows more outcomes than this command.
        _ => ("ended", Style::Plain),
    }
}
