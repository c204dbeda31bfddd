//! What an action will do, said before it is done, by what the store holds now.

use super::Action;
use crate::page::moment::length;
use crate::page::text::number;
use qo_core::words::{counted, state_name};
use qo_core::{
    Change, Error, ErrorKind, FenceToken, GroupRef, GroupStatus, HeldBy, JobFilter, JobId, JobState,
};
use qo_core::{LimitSource, Name, Result, Steer, Store, TokenId, caps};

/// What a person reads before it is done.
pub struct Preview {
    pub title: String,
    pub sentences: Vec<String>,
    pub button: String,
    /// It takes something away from jobs or callers.
    pub takes_away: bool,
}

impl Preview {
    fn new(title: impl Into<String>, button: &str, sentences: Vec<String>) -> Self {
        Self { title: title.into(), sentences, button: button.into(), takes_away: false }
    }

    fn takes_away(mut self) -> Self {
        self.takes_away = true;
        self
    }
}

/// What an action will do.
pub async fn of(action: &Action, store: &dyn Store) -> Result<Preview> {
    match action {
        Action::SetLimit(group, limit) => set_limit(store, group, *limit).await,
        Action::UnsetLimit(group) => unset_limit(store, group).await,
        Action::ReleaseSlot(group, slot) => release(store, group, *slot).await,
        Action::PauseQueue(queue) => pause(store, queue).await,
        Action::ResumeQueue(queue) => resume(store, queue).await,
        Action::CancelJob(job) => cancel(store, *job).await,
        Action::RetryJob(job) => retry(store, *job).await,
        Action::Many(change, wanted) => {
            let count = count(store, wanted.filter()?).await?;
            Ok(many(*change, &wanted.said(), &count))
        }
        Action::SteerWorkflow(workflow, steer) => self::steer(store, workflow, *steer).await,
        Action::EnableSchedule(schedule) => Ok(Preview::new(
            format!("Enable schedule {schedule}?"),
            "Enable it",
            vec!["It fires from its next tick on. Ticks that passed while it was disabled are not made up for.".into()],
        )),
        Action::DisableSchedule(schedule) => Ok(Preview::new(
            format!("Disable schedule {schedule}?"),
            "Disable it",
            vec!["It fires no more until it is enabled. Its jobs that run or wait go on.".into()],
        )),
        Action::TriggerSchedule(schedule, _) => trigger(store, schedule).await,
        Action::RevokeToken(token) => revoke(store, *token).await,
    }
}

/// A group as it is. A group that nothing names yet is empty.
async fn status(store: &dyn Store, group: &GroupRef) -> Result<Option<GroupStatus>> {
    match store.group(group.clone()).await {
        Ok(detail) => Ok(Some(detail.status)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

async fn set_limit(store: &dyn Store, group: &GroupRef, limit: u32) -> Result<Preview> {
    if limit > caps::LIMIT {
        return Err(Error::invalid("limit", limit, format_args!("must be 0 to {}", caps::LIMIT)));
    }
    let status = status(store, group).await?;
    let (used, live) = status.as_ref().map_or((0, 0), |status| (status.used, status.live));
    let before = status.as_ref().and_then(|status| status.limit);
    let mut sentences = vec![change_of_limit(group, before, limit, used, live)];
    let source = status.and_then(|status| status.source);
    sentences.push(match source {
        Some(LimitSource::Operator) | None => {
            "It counts at once, in every process, until it is taken back.".into()
        }
        Some(_) => {
            "It counts at once, in every process, ahead of configuration and code, until it is taken back."
                .into()
        }
    });
    let title = if limit == 0 {
        format!("Hold {group}?")
    } else {
        format!("Set the limit of {group} to {}?", number(limit))
    };
    let button = if limit == 0 { "Hold it" } else { "Set limit" };
    Ok(Preview::new(title, button, sentences))
}

/// What a new limit does to what runs and waits.
fn change_of_limit(group: &GroupRef, before: Option<u32>, limit: u32, used: u64, live: u64) -> String {
    let waits = live.saturating_sub(used);
    let new = u64::from(limit);
    let each = matches!(group, GroupRef::EveryKey(_));
    let taken = |used| counted(used, "slot").replace(&used.to_string(), &number(used));
    let are = if used == 1 { "is" } else { "are" };
    if each {
        return format!(
            "Every key of this group that has no limit of its own gets {}. Jobs that run finish.",
            taken(new)
        );
    }
    if limit == 0 {
        let run = if used == 0 {
            "Nothing runs now".into()
        } else {
            format!("{} {are} taken now, and their jobs finish", taken(used))
        };
        return format!("Holding {group}: {run}; no job starts until the limit is raised, and none is lost.");
    }
    let from = before.map_or("no limit".into(), number);
    let lowers = before.is_none_or(|before| limit < before);
    match (lowers, used > new) {
        _ if before == Some(limit) => format!("The limit of {group} is {from} already."),
        (true, true) => format!(
            "Lowering {group} from {from} to {}: {} {are} taken now, and their jobs finish; no job starts until fewer than {} are taken.",
            number(limit),
            taken(used),
            number(limit)
        ),
        (true, false) => format!(
            "Lowering {group} from {from} to {}: {} {are} taken now, so nothing has to finish first.",
            number(limit),
            taken(used)
        ),
        (false, _) => {
            let room = new.saturating_sub(used).min(waits);
            let go = if room == 0 {
                "nothing waits for it now".into()
            } else {
                format!("room for {} more that are wanted now", taken(room))
            };
            format!("Raising {group} from {from} to {}: {go}.", number(limit))
        }
    }
}

async fn unset_limit(store: &dyn Store, group: &GroupRef) -> Result<Preview> {
    let status = status(store, group).await?;
    let operator = status.as_ref().and_then(|status| status.sources.operator);
    let operator = operator
        .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("{group}: no operator set a limit")))?;
    let next = status.and_then(|status| {
        qo_core::Limits::declared(&{
            let mut sources = status.sources;
            sources.operator = None;
            sources
        })
    });
    let then = match next {
        Some((limit, LimitSource::Config)) => {
            format!("The configuration's limit of {} counts again.", number(limit))
        }
        Some((limit, _)) => format!("The code's limit of {} counts again.", number(limit)),
        None => {
            "The next source counts: a limit for every key or of a submitted job, else there is no limit."
                .into()
        }
    };
    let sentences = vec![format!("An operator set it to {}. {then}", number(operator))];
    Ok(Preview::new(format!("Take the operator's limit of {group} back?"), "Take it back", sentences))
}

async fn release(store: &dyn Store, group: &GroupRef, slot: FenceToken) -> Result<Preview> {
    let holders = store.group(group.clone()).await?.holders;
    let holder = holders.into_iter().find(|holder| holder.token == slot);
    let gone = || Error::new(ErrorKind::NotFound, format!("{group}: slot {} is not held any more", slot.0));
    let holder = holder.ok_or_else(gone)?;
    let slots = counted(holder.slots.into(), "slot");
    let sentence = match holder.by {
        HeldBy::Job { job, task, .. } => format!(
            "Job {} ({task}) on {} holds {slots}. Its lease ends, its attempt is used, and its handler is told to stop. \
             The job goes back in line, or fails if this was its last attempt.",
            job.0, holder.worker
        ),
        HeldBy::Program { .. } => {
            format!(
                "A program on {} holds {slots}. Its lease ends; the program is not stopped by this.",
                holder.worker
            )
        }
    };
    Ok(Preview::new(format!("Release a slot of {group}?"), "Release it", vec![sentence]).takes_away())
}

async fn pause(store: &dyn Store, queue: &Name) -> Result<Preview> {
    let status = store.queues().await?.into_iter().find(|status| status.queue == *queue);
    let (running, due) = status.map_or((0, 0), |status| (status.running, status.due));
    let sentence = format!(
        "{} of it {} now and {}; {} in line {}. Jobs are still taken in.",
        counted(running, "job"),
        if running == 1 { "runs" } else { "run" },
        if running == 1 { "finishes" } else { "finish" },
        counted(due, "job"),
        if due == 1 { "waits until it is resumed" } else { "wait until it is resumed" }
    );
    Ok(Preview::new(format!("Pause queue {queue}?"), "Pause it", vec![sentence]))
}

async fn resume(store: &dyn Store, queue: &Name) -> Result<Preview> {
    let status = store.queues().await?.into_iter().find(|status| status.queue == *queue);
    let due = status.map_or(0, |status| status.due);
    let sentence =
        format!("{} in line may start at once, as far as limits and workers allow.", counted(due, "job"));
    Ok(Preview::new(format!("Resume queue {queue}?"), "Resume it", vec![sentence]))
}

async fn cancel(store: &dyn Store, job: JobId) -> Result<Preview> {
    let view = store.job(job).await?.view;
    let sentence = match view.state {
        JobState::Running => {
            "It runs: its handler is told to stop, and it keeps its slots until it has. If it succeeds meanwhile, it has succeeded.".into()
        }
        JobState::Pending | JobState::Claimed => "It has not started, and never will. It can be retried later.".into(),
        ended => format!("It is {} already: nothing will change.", state_name(ended)),
    };
    Ok(Preview::new(format!("Cancel this {} job?", view.task), "Cancel the job", vec![sentence]).takes_away())
}

async fn retry(store: &dyn Store, job: JobId) -> Result<Preview> {
    let view = store.job(job).await?.view;
    let sentence = match view.state {
        JobState::Failed | JobState::Cancelled | JobState::Expired => format!(
            "It is {}. It goes back in line, due now, with {} left. What its earlier attempts did stays on record.",
            state_name(view.state),
            counted(view.max_attempts.into(), "attempt")
        ),
        JobState::Pending => "It does not wait for its next attempt any longer: it is due now.".into(),
        other => format!("It is {}: nothing will change.", state_name(other)),
    };
    Ok(Preview::new(format!("Retry this {} job?", view.task), "Retry the job", vec![sentence]))
}

/// How many jobs a bulk change may meet, counted up to a page.
async fn count(store: &dyn Store, filter: JobFilter) -> Result<String> {
    let page = store.jobs(filter, None, caps::PAGE).await?;
    let count = page.jobs.len() as u64;
    Ok(if page.next.is_some() { format!("More than {}", number(count)) } else { number(count) })
}

fn many(change: Change, said: &str, count: &str) -> Preview {
    let are = if count == "1" { "job matches" } else { "jobs match" };
    let matches = format!("{count} {are} now; those that come meanwhile count, too.");
    match change {
        Change::Cancel => Preview::new(
            format!("Cancel {said}?"),
            "Cancel them",
            vec![matches, "Those that wait end at once. Those that run are told to stop. Those that have ended stay as they are.".into()],
        )
        .takes_away(),
        Change::Retry => Preview::new(
            format!("Retry {said}?"),
            "Retry them",
            vec![matches, "Those that failed, expired or were cancelled go back in line with all their attempts. Those that wait for their next attempt are due now. The others stay as they are.".into()],
        ),
    }
}

async fn steer(store: &dyn Store, workflow: &Name, steer: Steer) -> Result<Preview> {
    let status = store.workflow(workflow.clone()).await?;
    let behind = |step: u32| status.steps.saturating_sub(step);
    Ok(match steer {
        Steer::Retry(step) => Preview::new(
            format!("Retry step {step} of {workflow}?"),
            "Retry the step",
            vec![format!("It goes back in line with all its attempts. The {} behind it wait until it has succeeded.", counted(behind(step).into(), "step"))],
        ),
        Steer::Skip(step) => Preview::new(
            format!("Skip step {step} of {workflow}?"),
            "Skip the step",
            vec![format!("It stays as it is, and the {} behind it go on as though it had succeeded.", counted(behind(step).into(), "step"))],
        ),
        Steer::Cancel => Preview::new(
            format!("Cancel workflow {workflow}?"),
            "Cancel the workflow",
            vec![format!("{} that {} not ended: those that wait are cancelled at once, one that runs is told to stop. The workflow takes no more jobs, and cannot be opened again.", counted(status.live.into(), "step"), if status.live == 1 { "has" } else { "have" })],
        )
        .takes_away(),
    })
}

async fn trigger(store: &dyn Store, schedule: &Name) -> Result<Preview> {
    let now = store.now().await?;
    let status = store.schedules().await?.into_iter().find(|status| status.schedule == *schedule);
    let status = status.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("schedule {schedule}")))?;
    let next = match status.next {
        Some(next) => {
            format!("Its ticks stay as they are; the next one comes in {}.", length(next.ms_since(now)))
        }
        None => "Its ticks stay as they are.".into(),
    };
    let overlap = if status.spec.overlap {
        ""
    } else {
        " If an earlier job of it has not ended, nothing is submitted."
    };
    let sentence = format!("One {} job is submitted now.{overlap} {next}", status.spec.task);
    Ok(Preview::new(format!("Run schedule {schedule} now?"), "Run it now", vec![sentence]))
}

async fn revoke(store: &dyn Store, token: TokenId) -> Result<Preview> {
    let found = store.tokens().await?.into_iter().find(|known| known.id == token);
    let found = found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("token {token}")))?;
    let sentences = vec![
        format!("Its bearer may do this now: {}.", found.rights()),
        "Every server refuses it within seconds. It cannot be brought back; a new one can be made.".into(),
    ];
    Ok(Preview::new(format!("Revoke token {}?", found.name), "Revoke it", sentences).takes_away())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_new_limit_does_is_said_before_it_is_done() {
        let group: GroupRef = "resize".parse().expect("a group");
        let said = |before, limit, used, live| change_of_limit(&group, before, limit, used, live);
        assert_eq!(
            said(Some(4), 2, 3, 9),
            "Lowering resize from 4 to 2: 3 slots are taken now, and their jobs finish; no job starts until fewer than 2 are taken."
        );
        assert_eq!(
            said(None, 5, 1, 1),
            "Lowering resize from no limit to 5: 1 slot is taken now, so nothing has to finish first."
        );
        assert_eq!(
            said(Some(2), 4, 2, 9),
            "Raising resize from 2 to 4: room for 2 slots more that are wanted now."
        );
        assert_eq!(said(Some(2), 4, 2, 2), "Raising resize from 2 to 4: nothing waits for it now.");
        assert_eq!(said(Some(4), 4, 2, 2), "The limit of resize is 4 already.");
        let held = said(Some(4), 0, 1, 9);
        assert!(
            held.starts_with("Holding resize: 1 slot is taken now, and their jobs finish; no job starts"),
            "{held}"
        );
    }
}
