//! What a sweep would end: sessions, leases and slots that are over and have not been ended yet. Looking ends none.

use super::{Finding, Level};
use crate::output::{Times, counted};
use crate::place::Place;
use crate::trouble::Done;
use qo::core::{FenceToken, GroupRef, Holder, Name, Over, SessionId, Time, WorkerStatus, caps};
use qo::doctor::ExpiredSlot;
use serde::Serialize;

/// Something that a sweep would end, for programs.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Sweepable {
    /// The session of a worker.
    Session(ExpiredSession),
    /// The slots of a program, or of a job that has passed its timeout.
    Lease { group: GroupRef, token: FenceToken, worker: Name, slots: u32, expired_at: Time },
    /// A slot that is an object in a bucket.
    SlotObject(ExpiredSlot),
}

/// A session whose lease is over.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ExpiredSession {
    worker: Name,
    session: SessionId,
    expired_at: Time,
    /// Jobs that it runs: they go back in line.
    running: u64,
    /// Jobs that it has claimed ahead of time: they go back in line, too.
    claimed: u64,
    /// Slots that its jobs hold, in all groups that have a limit.
    slots: u64,
}

/// Sessions that are over, and leases that are over although their session is not.
pub(super) fn over(over: &Over, now: Time) -> Vec<Finding> {
    let sessions = over.sessions.iter().map(|over| session(&over.worker, over.slots, now));
    let leases = over.leases.iter().map(|over| lease(&over.group, &over.holder, now));
    let mut findings: Vec<_> = sessions.chain(leases).collect();
    if over.sessions.len().max(over.leases.len()) >= caps::PAGE {
        let what = format!("more may be over than the first {} of each kind, which are shown", caps::PAGE);
        findings.push(Finding::new(Level::Note, "workers", what));
    }
    findings
}

fn session(worker: &WorkerStatus, slots: u64, now: Time) -> Finding {
    let WorkerStatus { running, claimed, .. } = *worker;
    let held = match (running + claimed, slots) {
        (0, 0) => "it holds nothing".to_owned(),
        (jobs, 0) => format!("it holds {}", counted(jobs, "job")),
        (jobs, slots) => format!("it holds {} and {}", counted(jobs, "job"), counted(slots, "slot")),
    };
    let ended = Times::new(now).away(worker.lease_until);
    let what =
        format!("the lease of {} is over, it ended {ended}, and no sweep ran yet: {held}", worker.worker);
    let session = ExpiredSession {
        worker: worker.worker.clone(),
        session: worker.session,
        expired_at: worker.lease_until,
        running,
        claimed,
        slots,
    };
    Finding::new(Level::Note, "workers", what)
        .advice("any running worker ends it, also one that idles, and gives back what it holds")
        .sweep(Sweepable::Session(session))
}

fn lease(group: &GroupRef, holder: &Holder, now: Time) -> Finding {
    let ended = Times::new(now).away(holder.lease_until);
    let what = format!("slot {} of {} is held although its lease ended {ended}", holder.token, holder.worker);
    let by_hand = format!("qo concurrency release {group} {} --force", holder.token);
    Finding::new(Level::Note, group.to_string(), what)
        .advice(format!("a worker's next claim ends it; by hand: {by_hand}"))
        .sweep(Sweepable::Lease {
            group: group.clone(),
            token: holder.token,
            worker: holder.worker.clone(),
            slots: holder.slots,
            expired_at: holder.lease_until,
        })
}

/// Slots that are objects in a bucket, and whose lease is over.
pub(super) async fn slot_objects(place: &Place) -> Done<Vec<Finding>> {
    let expired = qo::doctor::expired_slots(&place.settings.store).await;
    let Some(expired) = expired.map_err(|error| place.explained(error))? else { return Ok(Vec::new()) };
    let times = Times::new(expired.at.unwrap_or_default());
    let over = expired.slots.into_iter().map(|over| slot_object(over, &times));
    let unreadable = expired.unreadable.into_iter().map(|what| {
        Finding::new(Level::Problem, "slots", what)
            .advice("a program that meets it gets no slot of its group: delete the object when no program uses the group")
    });
    Ok(over.chain(unreadable).collect())
}

fn slot_object(over: ExpiredSlot, times: &Times) -> Finding {
    let slot = &over.slot;
    let task = slot.task_id.map_or_else(|| "an unknown task".into(), |task| task.to_string());
    let worker = slot.worker_id.as_ref().map_or_else(String::new, |worker| format!(" on {worker}"));
    let ended =
        slot.expires_at.map_or_else(String::new, |end| format!(", its lease ended {}", times.away(end)));
    let what = format!("slot {}, an object, is not free: {task}{worker} took it{ended}", slot.slot_id);
    Finding::new(Level::Note, over.group.to_string(), what)
        .advice("a program that waits for it takes it; a running worker frees it after a while")
        .sweep(Sweepable::SlotObject(over))
}
