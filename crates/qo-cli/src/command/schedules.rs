//! `qo schedules`

use super::argument;
use crate::by_hand::by_hand;
use crate::cli::Format;
use crate::output::{Outcome, Screen, Style, Table, Times, schedule as schedule_json};
use crate::place::{Place, did_you_mean, times};
use crate::trouble::{Done, Trouble};
use clap::{Args, Subcommand};
use qo::core::{JobId, LastTick, Name, ScheduleStatus, Submitted, TickOutcome};
use qo::{Error, ErrorKind, Store};
use std::sync::Arc;

/// See schedules, switch them on and off, fire one now.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  qo schedules
  qo schedules trigger nightly
  qo schedules disable nightly      ticks that it misses are not made up for

Schedules are declared in .qo.toml: [schedules.NAME] with cron, task, timezone, payload; workers push them.")]
pub struct Schedules {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Let a schedule fire.
    #[command(after_help = "Example:\n  qo schedules enable nightly")]
    Enable(Which),
    /// Do not let a schedule fire.
    #[command(after_help = "Example:\n  qo schedules disable nightly")]
    Disable(Which),
    /// Submit a schedule's job now; its ticks stay as they are.
    #[command(after_help = "Example:\n  qo schedules trigger nightly")]
    Trigger(Which),
}

#[derive(Debug, Args)]
struct Which {
    /// The schedule.
    #[arg(value_parser = argument::name)]
    name: Name,
    #[command(flatten)]
    format: Format,
}

impl Schedules {
    /// Lists schedules, or changes one.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        let store = place.open_existing().await?;
        match self.action {
            None => list(&store, screen, self.format).await,
            Some(Action::Enable(which)) => enable(&store, screen, which, true).await,
            Some(Action::Disable(which)) => enable(&store, screen, which, false).await,
            Some(Action::Trigger(Which { name, format })) => {
                // The same id again is the same job: a lost answer does not fire it twice.
                let id = JobId(uuid::Uuid::now_v7());
                let mut answer = by_hand(&*store).trigger_schedule(name.clone(), id).await;
                if answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unknown) {
                    answer = by_hand(&*store).trigger_schedule(name.clone(), id).await;
                }
                match answer {
                    Ok(submitted) if format.json => screen.json(&Outcome::from(submitted)),
                    Ok(Submitted::Accepted(job) | Submitted::Existing(job)) => screen.line(job),
                    Ok(Submitted::Skipped) => {
                        screen.say("skipped");
                        Ok(())
                    }
                    Err(error) if error.kind() == ErrorKind::LimitReached => {
                        let hint =
                            "an earlier job of it has not ended; `overlap = true` in its section allows that";
                        Err(Trouble::from(error).hint(hint))
                    }
                    Err(error) => Err(with_names(&store, error, &name).await?),
                }
            }
        }
    }
}

async fn enable(store: &Arc<dyn Store>, screen: &mut Screen, which: Which, enabled: bool) -> Done {
    let Which { name, format } = which;
    if let Err(error) = by_hand(&**store).enable_schedule(name.clone(), enabled).await {
        return Err(with_names(store, error, &name).await?);
    }
    if format.json {
        return screen.json(&serde_json::json!({ "schedule": name, "enabled": enabled }));
    }
    screen.line(format_args!("schedule {name} {}", if enabled { "fires" } else { "does not fire" }))
}

async fn with_names(store: &Arc<dyn Store>, error: Error, name: &Name) -> Done<Trouble> {
    let known = store.schedules().await?.into_iter().map(|status| status.schedule.to_string());
    Ok(did_you_mean(error.into(), name, known))
}

async fn list(store: &Arc<dyn Store>, screen: &mut Screen, format: Format) -> Done {
    let schedules = store.schedules().await?;
    if format.json {
        return screen.json(&schedules.iter().map(schedule_json).collect::<Vec<_>>());
    }
    if schedules.is_empty() {
        screen.say("no schedules");
        screen.hint("declare one in .qo.toml, [schedules.NAME] with cron and task; the next worker that starts pushes it");
        return Ok(());
    }
    let times = times(store).await?;
    let mut table = Table::new(&["SCHEDULE", "STATE", "CRON", "ZONE", "TASK", "NEXT", "LAST"]);
    for status in &schedules {
        table.row(row(status, &times));
    }
    screen.table(table)
}

fn row(status: &ScheduleStatus, times: &Times) -> [(String, Style); 7] {
    let last = |LastTick { tick, outcome, .. }: &LastTick| {
        let became = match outcome {
            TickOutcome::Accepted(_) | TickOutcome::Existing(_) => "submitted".to_owned(),
            TickOutcome::Skipped => "skipped: the last one had not ended".to_owned(),
            TickOutcome::Refused(why) => format!("refused: {why}"),
        };
        format!("{} {became}", times.away(*tick))
    };
    [
        (status.schedule.to_string(), Style::Strong),
        if status.enabled { ("on".into(), Style::Good) } else { ("off".into(), Style::Warn) },
        (status.spec.cron.clone(), Style::Plain),
        (status.spec.timezone.clone(), Style::Plain),
        (status.spec.task.to_string(), Style::Plain),
        (status.next.map_or_else(|| "-".into(), |next| times.full(next)), Style::Plain),
        (status.last.as_ref().map_or_else(|| "-".into(), last), Style::Dim),
    ]
}
