//! Going on without lost records.

use super::examination::Examination;
use super::{Damage, Repair};
use crate::clock::StoreClock;
use crate::format::{self, Hold};
use crate::log::{Created, Log};
use crate::record::Record;
use crate::snapshot::{self, Covered};
use object_store::path::Path;
use qo_core::{
    Answer, Clock, Command, Error, ErrorKind, Event, GroupRef, JobId, NewJob, OnLimit, Result, SnapshotRow,
    State, Time, decide,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

/// More fence tokens than the lost records can have granted.
const LOST_TOKENS: u64 = 1_000_000_000;

/// See [`super::repair()`].
pub(super) async fn repair_log(log: &Log) -> Result<Repair> {
    let Examination { mut health, mut state, end, offers, rest } = Examination::of(log).await?;
    let mut remade = Vec::new();
    let is_format = |damage: &Damage| damage.what.starts_with(format::path().as_ref());
    if let Some(damage) = health.damage.iter().find(|damage| is_format(damage)) {
        remade.push(format!("{}: made anew, with another identity", damage.what));
        let mut repair = Repair::default();
        set_aside(log, &format::path(), &mut repair).await?;
        format::make(log).await?;
        health.damage.retain(|damage| !is_format(damage));
        if health.is_usable() {
            // No record was lost.
            return Ok(Repair { lost: remade, ..repair });
        }
    }
    if health.is_usable() {
        return Err(Error::new(
            ErrorKind::Conflict,
            "store: nothing to repair: everything that is needed is there",
        ));
    }
    let now = StoreClock::ask(log.medium()).await?.now().max(state.now());
    let needed = health.damage.iter().filter(|damage| damage.needed);
    let mut repair = Repair {
        lost: remade.into_iter().chain(needed.map(|damage| damage.what.clone())).collect(),
        not_used: rest.len() as u64,
        ..Repair::default()
    };
    salvage(&mut state, now, offers, rest.values(), &mut repair);
    let hold = close(&mut state, now, health.hold.as_ref(), &repair.lost)?;
    let state = with_fresh_tokens(&state)?;
    // Write the hold first: without it the closed `cluster` would look like a limit of an operator.
    format::hold(log, health.last, &hold).await?;
    repair.hold = Some(hold);

    // At the number of the last record, under a fresh nonce. Snapshots that cannot be read are in the way.
    let covered = Covered { number: health.last, nonce: Uuid::new_v4() };
    for number in log.numbers("snapshot").await?.into_iter().filter(|number| *number > health.snapshot) {
        set_aside(log, &snapshot::path(number), &mut repair).await?;
    }
    let written = log.create(&snapshot::path(covered.number), snapshot::encode(covered, &state)?).await;
    if let Created::Refused(error) = written {
        return Err(error);
    }
    if written != Created::Done {
        let what = format!("{}: could not be written: try again", snapshot::path(covered.number));
        return Err(Error::new(ErrorKind::Unknown, what));
    }
    let record = Record {
        number: covered.number + 1,
        writer: Uuid::new_v4(),
        nonce: Uuid::new_v4(),
        after: covered.nonce,
        at: Some(now),
        events: vec![Event::Ticked(now)],
        admitted: 0,
        offered: Vec::new(),
        snapshot: false,
    };
    if log.create(&Log::path(record.number), record.encode()?).await != Created::Done {
        let what =
            format!("{}: a process is writing: stop all workers and repair again", Log::path(record.number));
        return Err(Error::new(ErrorKind::Conflict, what));
    }
    format::mark(log, record.number).await;
    let not_used = log.numbers("log").await?.into_iter();
    for number in not_used.filter(|number| (end.number + 1..=covered.number).contains(number)) {
        set_aside(log, &Log::path(number), &mut repair).await?;
    }
    Ok(repair)
}

/// Closes `cluster`, and remembers the operator's limit there. A lost record may have set a limit, paused or cancelled,
/// so nothing may start.
fn close(state: &mut State, now: Time, before: Option<&Hold>, lost: &[String]) -> Result<Hold> {
    const MOST: usize = 20;
    let cluster = state.group(&GroupRef::Cluster).ok().and_then(|group| group.status.sources.operator);
    // A namespace that is on hold already remembers the limit from before that.
    let cluster = match before {
        Some(before) if cluster == Some(0) => before.cluster,
        _ => cluster,
    };
    decide(state, now, &Command::SetLimit(GroupRef::Cluster, 0))?;
    Ok(Hold { at: now, lost: lost.iter().take(MOST).cloned().collect(), cluster })
}

/// The state with a next fence token beyond all that a lost record may have granted: a holder of one of those must not
/// own what another has claimed since (G2).
fn with_fresh_tokens(state: &State) -> Result<State> {
    let rows = state.snapshot().map(|row| match row {
        SnapshotRow::Clock { now, next_number, next_token, retention } => {
            let next_token = next_token.saturating_add(LOST_TOKENS);
            SnapshotRow::Clock { now, next_number, next_token, retention }
        }
        row => row,
    });
    State::restore(rows)
}

/// Moves an object to `damaged/`, if it is there.
async fn set_aside(log: &Log, path: &Path, repair: &mut Repair) -> Result<()> {
    let Some(bytes) = log.medium().get(path).await? else { return Ok(()) };
    let aside = Path::from(format!("damaged/{path}-{}", Uuid::new_v4().simple()));
    match log.create(&aside, bytes).await {
        Created::Done => {}
        Created::Exists | Created::Refused(_) | Created::Unknown(_) => {
            return Err(Error::new(ErrorKind::Unavailable, format!("{aside}: could not be written")));
        }
    }
    log.medium().delete(path).await?;
    repair.moved.push(aside.to_string());
    Ok(())
}

/// Takes over from records what does not rest on what was lost.
fn salvage<'a>(
    state: &mut State,
    now: Time,
    offers: Vec<NewJob>,
    records: impl Iterator<Item = &'a Record>,
    repair: &mut Repair,
) {
    let mut order: Vec<JobId> = offers.iter().map(|job| job.id).collect();
    let mut jobs: BTreeMap<JobId, Arc<NewJob>> =
        offers.into_iter().map(|job| (job.id, Arc::new(job))).collect();
    let mut ended = BTreeSet::new();
    for record in records {
        let offered = record.offered.iter().map(|job| Arc::new(job.clone()));
        let accepted = record.events.iter().filter_map(|event| match event {
            // Defaults may have changed since: the task may have another group now.
            Event::Accepted(job) => Some(Arc::new(NewJob {
                group: Some(job.group.clone().unwrap_or_else(|| job.task.clone())),
                run_at: job.run_at.or(record.at),
                ..(**job).clone()
            })),
            _ => None,
        });
        for job in offered.chain(accepted) {
            order.push(job.id);
            jobs.insert(job.id, job);
        }
        for event in &record.events {
            ended.extend(ended_by(event));
            if let Event::Reopened { job, .. } = event {
                ended.remove(job);
            }
            if let Some((said, command)) = set_by(event)
                && decide(state, now, &command).is_ok()
            {
                repair.set_again.push(said);
            }
        }
    }
    for id in order {
        let Some(job) = jobs.remove(&id) else { continue };
        if state.job(id).is_ok() {
            continue;
        }
        if ended.contains(&id) {
            repair.not_submitted.push((id, "it had ended; its history is lost".into()));
            continue;
        }
        // It was accepted once: no limit may refuse it now.
        let job = NewJob { on_limit: OnLimit::Wait, ..NewJob::clone(&job) };
        match decide(state, now, &Command::Submit(vec![job])).map(|decision| decision.answer) {
            Ok(Answer::Submitted(submitted)) if submitted.iter().all(Result::is_ok) => {
                repair.submitted_again.push(id);
            }
            Ok(answer) => repair.not_submitted.push((id, format!("{answer:?}"))),
            Err(error) => repair.not_submitted.push((id, error.to_string())),
        }
    }
    let live = |id: &JobId| state.job(*id).is_ok_and(|job| !job.view.state.is_terminal());
    repair.runs_again = ended.into_iter().filter(live).collect();
}

fn ended_by(event: &Event) -> Option<JobId> {
    match event {
        Event::AttemptEnded(ended) if ended.then.is_terminal() => Some(ended.job),
        Event::Dropped { job, .. } | Event::Forgotten(job) => Some(*job),
        _ => None,
    }
}

/// What an operator set by an event, in words and as a command.
fn set_by(event: &Event) -> Option<(String, Command)> {
    Some(match event {
        Event::LimitSet { group, limit: Some(limit) } => {
            (format!("limit of {group}: {limit}"), Command::SetLimit(group.clone(), *limit))
        }
        Event::LimitSet { group, limit: None } => {
            (format!("limit of {group}: none"), Command::UnsetLimit(group.clone()))
        }
        Event::QueuePaused { queue, paused } => {
            let said = if *paused { "paused" } else { "resumed" };
            (format!("queue {queue}: {said}"), Command::PauseQueue(queue.clone(), *paused))
        }
        Event::ScheduleEnabled { schedule, enabled } => {
            let said = if *enabled { "enabled" } else { "disabled" };
            (format!("schedule {schedule}: {said}"), Command::EnableSchedule(schedule.clone(), *enabled))
        }
        _ => return None,
    })
}
