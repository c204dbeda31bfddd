//! What a sweep would end: sessions, leases and slots that are over, and that nobody has ended yet. Looking ends none.

use super::{Finding, Level};
use crate::output::Times;
use crate::place::Place;
use crate::trouble::Done;
use qo::core::{
    FenceToken, GroupDetail, GroupRef, GroupStatus, HeldBy, Holder, Name, SessionId, Time, WorkerStatus,
};
use qo::doctor::ExpiredSlot;
use qo::{ErrorKind, Store};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Groups whose holders are asked for: each is a question of its own.
const ASKED: usize = 200;

/// Something that a sweep would end, for programs.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Sweepable {
    /// The session of a worker.
    Session(ExpiredSession),
    /// What a program holds, or a job that has passed its timeout.
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
    /// Jobs that it has claimed ahead of time: they, too.
    claimed: u64,
    /// Slots that its jobs hold, in all groups that have a limit.
    slots: u64,
}

/// Who holds the slots of the groups that were looked at.
pub(super) struct Holders {
    groups: Vec<(GroupStatus, Vec<Holder>)>,
    /// Groups whose slots somebody holds, and that were not asked for who.
    not_asked: usize,
}

impl Holders {
    pub async fn of(store: &Arc<dyn Store>, groups: &[GroupStatus]) -> Done<Self> {
        let mut this = Self { groups: Vec::new(), not_asked: 0 };
        // Of `GROUP/*` the holders are those of the keys.
        let held =
            groups.iter().filter(|status| status.used > 0 && !matches!(status.group, GroupRef::EveryKey(_)));
        for status in held {
            if this.groups.len() == ASKED {
                this.not_asked += 1;
                continue;
            }
            let holders = holders(store.group(status.group.clone()).await)?;
            this.groups.push((status.clone(), holders));
        }
        Ok(this)
    }

    /// What was not looked at, if anything.
    pub fn left_out(&self) -> Option<Finding> {
        let what = format!(
            "whether leases are over was looked up in the first {ASKED} groups whose slots are held, not in {} others",
            self.not_asked
        );
        let finding = Finding::new(Level::Note, "groups", what);
        (self.not_asked > 0).then(|| finding.advice("qo concurrency status GROUP"))
    }

    /// How many slots the jobs of each session hold where there is a limit.
    fn by_session(&self) -> BTreeMap<SessionId, u64> {
        let mut slots = BTreeMap::new();
        let limited = self.groups.iter().filter(|(status, _)| status.limit.is_some());
        for holder in limited.flat_map(|(_, holders)| holders) {
            if let HeldBy::Job { session, .. } = &holder.by {
                *slots.entry(*session).or_default() += u64::from(holder.slots);
            }
        }
        slots
    }
}

/// Who holds the slots of a group, which may be gone by now.
fn holders(detail: qo::Result<GroupDetail>) -> qo::Result<Vec<Holder>> {
    match detail {
        Ok(detail) => Ok(detail.holders),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Sessions that are over, and leases that are although their session is not.
pub(super) fn over(workers: &[WorkerStatus], holders: &Holders, now: Time) -> Vec<Finding> {
    let slots = holders.by_session();
    let over: Vec<_> = workers.iter().filter(|worker| worker.lease_until < now).collect();
    let ended: BTreeSet<_> = over.iter().map(|worker| worker.session).collect();
    let mut findings: Vec<_> = over
        .into_iter()
        .map(|worker| {
            let slots = slots.get(&worker.session).copied().unwrap_or_default();
            session(worker, slots, now)
        })
        .collect();
    for (status, holders) in &holders.groups {
        let is_over = |holder: &&Holder| match &holder.by {
            HeldBy::Job { session, .. } => holder.lease_until < now && !ended.contains(session),
            HeldBy::Program { .. } => holder.lease_until < now,
        };
        findings.extend(holders.iter().filter(is_over).map(|holder| lease(&status.group, holder, now)));
    }
    findings
}

fn session(worker: &WorkerStatus, slots: u64, now: Time) -> Finding {
    let WorkerStatus { running, claimed, .. } = *worker;
    let held = match (running + claimed, slots) {
        (0, 0) => "it holds nothing".to_owned(),
        (jobs, 0) => format!("it holds {jobs} jobs"),
        (jobs, slots) => format!("it holds {jobs} jobs, and they {slots} slots"),
    };
    let ended = Times::new(now).away(worker.lease_until);
    let what =
        format!("the lease of {} is over, it ended {ended}, and nobody has swept yet: {held}", worker.worker);
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
            .advice("who meets it gets no slot of its group: delete the object when nobody uses the group")
    });
    Ok(over.chain(unreadable).collect())
}

fn slot_object(over: ExpiredSlot, times: &Times) -> Finding {
    let slot = &over.slot;
    let task = slot.task_id.map_or_else(|| "nobody".into(), |task| task.to_string());
    let worker = slot.worker_id.as_ref().map_or_else(String::new, |worker| format!(" on {worker}"));
    let ended =
        slot.expires_at.map_or_else(String::new, |end| format!(", its lease ended {}", times.away(end)));
    let what = format!("slot {}, an object, is not free: {task}{worker} took it{ended}", slot.slot_id);
    Finding::new(Level::Note, over.group.to_string(), what)
        .advice("who wants it takes it; a running worker frees it by and by")
        .sweep(Sweepable::SlotObject(over))
}

#[cfg(test)]
mod tests {
    use super::*;
    use qo::Error;
    use qo::core::{LeaseId, SlotRequest};

    #[test]
    fn a_group_that_is_gone_has_no_holders_and_one_that_cannot_be_looked_at_is_an_error() {
        let asked = |kind| holders(Err(Error::new(kind, "why"))).map(|holders| holders.len());
        assert_eq!(asked(ErrorKind::NotFound), Ok(0));
        for kind in [ErrorKind::Unavailable, ErrorKind::Data, ErrorKind::Unknown] {
            assert_eq!(asked(kind).map_err(|error| error.kind()), Err(kind));
        }
    }

    #[tokio::test]
    async fn what_is_left_out_of_very_many_groups_is_said() {
        let store: Arc<dyn Store> = Arc::new(qo::core::MemoryStore::new());
        let holders = async |groups: std::ops::Range<usize>| {
            for n in groups {
                let group = GroupRef::parse("group", &format!("g{n}")).expect("a group");
                let id = LeaseId(format!("00000000-0000-0000-0000-{n:012}").parse().expect("an id"));
                let holder = Name::parse("name", "w").expect("a name");
                let request = SlotRequest { limit: Some(1), ..SlotRequest::new(id, group, holder, 30_000) };
                store.acquire_slots(request).await.expect("answered").expect("free");
            }
            let all = store.groups(None, 1_000).await.expect("listed").groups;
            Holders::of(&store, &all).await.expect("looked at")
        };
        assert!(holders(0..ASKED).await.left_out().is_none());
        let holders = holders(ASKED..ASKED + 3).await;
        assert_eq!(holders.groups.len(), ASKED);
        assert!(holders.left_out().expect("some were").what.ends_with("not in 3 others"));
    }
}
