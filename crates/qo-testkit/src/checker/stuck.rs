//! G5 nothing stuck: when faults end, every runnable job is claimed within session lease + sweep + poll if a live
//! worker with a free permit handles it, claimed jobs are started, and no slot is held without a live holder.
//!
//! ([`blocking`](super::blocking) checks at every claim that a limit with work waiting is *reached*.)

use super::ledger::{Fact, Ledger};
use super::{Objections, Violation, Watch, read};
use crate::history::{Audit, Entry, History, What};
use qo_core::{FenceToken, Time};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Watches, after faults ended, how long jobs and slots make no progress.
#[derive(Debug, Default)]
pub struct Stuck {
    /// Since when faults are over, and the bound.
    healed: Option<(Time, u64)>,
    runnable_since: BTreeMap<usize, Time>,
    /// Claimed jobs that could start, and since when.
    startable_since: BTreeMap<usize, Time>,
    handlers: HashSet<FenceToken>,
    stopped_at: HashMap<FenceToken, Time>,
}

/// Jobs that waited, and slots that were held, for longer than the bound.
pub fn check(history: &History) -> Vec<Violation> {
    read(history, &mut [&mut Stuck::default()])
}

impl Watch for Stuck {
    fn fact(&mut self, books: &Ledger, fact: &Fact<'_>, objections: &mut Objections) {
        if let (Fact::Exchanged(..) | Fact::Swept(..), Some((since, bound_ms))) = (fact, self.healed) {
            self.look_for_waiting(books, bound_ms, objections);
            self.look_for_buffered(books, bound_ms, objections);
            // The history of processes does not say what runs: each process logs that itself.
            if !books.concurrent {
                self.look_for_orphans(books, since, bound_ms, objections);
            }
        }
    }

    fn entry(&mut self, _books: &Ledger, entry: &Entry, objections: &mut Objections) {
        match &entry.what {
            What::Healed { bound_ms } => self.healed = Some((entry.at, *bound_ms)),
            What::HandlerStarted(_, token) => drop(self.handlers.insert(*token)),
            What::HandlerStopped(_, token) => {
                self.handlers.remove(token);
                self.stopped_at.insert(*token, entry.at);
            }
            What::Audited(audit) => {
                if let Some((since, bound_ms)) = self.healed {
                    look_for_slots_without_a_holder(
                        audit,
                        entry.at,
                        since.plus_ms(bound_ms),
                        bound_ms,
                        objections,
                    );
                }
            }
            _ => {}
        }
    }
}

/// Slots, and claims, that the store shows although their lease was over long ago. What was over before the faults
/// ended does not count.
fn look_for_slots_without_a_holder(
    audit: &Audit,
    now: Time,
    soonest: Time,
    bound_ms: u64,
    objections: &mut Objections,
) {
    let holders = audit.holders.iter().flat_map(|detail| &detail.holders);
    let jobs = audit.jobs.iter().filter_map(|view| view.running.as_ref().or(view.claimed.as_ref()));
    let leases = holders.map(|holder| (holder.token, holder.lease_until));
    let leases: BTreeMap<_, _> = leases.chain(jobs.map(|by| (by.token, by.lease_until))).collect();
    for (token, lease_until) in leases {
        objections.unless(lease_until.plus_ms(bound_ms).max(soonest) >= now, "G5", || {
            format!("token {token} holds although its lease was over at {lease_until}")
        });
    }
}

impl Stuck {
    /// Claimed jobs in the buffer of a worker that has a free permit for them.
    fn look_for_buffered(&mut self, books: &Ledger, bound_ms: u64, objections: &mut Objections) {
        self.startable_since.retain(|job, _| books.jobs[*job].claimed.is_some());
        for &job in books.claims.values() {
            let session = books.jobs[job].claimed.map(|claimed| claimed.session);
            let free = session.is_some_and(|id| {
                books.sessions.get(&id).is_some_and(|session| books.owned(id) < session.permits)
            });
            if !free || books.cannot_start(job).is_some() {
                self.startable_since.remove(&job);
                continue;
            }
            let waited_ms = books.now.ms_since(*self.startable_since.entry(job).or_insert(books.now));
            if waited_ms > bound_ms {
                let id = books.jobs[job].new.id;
                objections.add("G5", format!("{id} is claimed, could start and waited {waited_ms} ms"));
                self.startable_since.insert(job, books.now);
            }
        }
    }

    fn look_for_waiting(&mut self, books: &Ledger, bound_ms: u64, objections: &mut Objections) {
        let mut owned: HashMap<_, u32> = HashMap::new();
        for &job in books.running.values() {
            *owned.entry(books.jobs[job].holding.map(|holding| holding.session)).or_default() += 1;
        }
        let idle: Vec<_> = books
            .sessions
            .iter()
            .filter(|(id, s)| !s.draining && owned.get(&Some(**id)).copied().unwrap_or(0) < s.permits)
            .map(|(_, session)| session)
            .collect();
        self.runnable_since.retain(|job, _| books.pending.contains(job));
        for &job in &books.pending {
            let runnable = books.is_claimable(job)
                && books.has_room(job)
                && idle.iter().any(|session| session.serves(&books.jobs[job].new))
                && !books.is_reserved(job);
            if !runnable {
                self.runnable_since.remove(&job);
                continue;
            }
            let waited_ms = books.now.ms_since(*self.runnable_since.entry(job).or_insert(books.now));
            if waited_ms > bound_ms {
                let id = books.jobs[job].new.id;
                objections.add(
                    "G5",
                    format!("{id} could run and waited {waited_ms} ms, longer than {bound_ms} ms"),
                );
                self.runnable_since.insert(job, books.now);
            }
        }
    }

    fn look_for_orphans(&self, books: &Ledger, healed: Time, bound_ms: u64, objections: &mut Objections) {
        for (token, &job) in books.running.iter().filter(|(token, _)| !self.handlers.contains(token)) {
            let granted = books.jobs[job].holding.map_or(healed, |holding| holding.since);
            let since = self.stopped_at.get(token).copied().unwrap_or(granted).max(healed);
            objections.unless(books.now.ms_since(since) <= bound_ms, "G5", || {
                format!("token {token} holds the slots of {} and no worker runs it", books.jobs[job].new.id)
            });
        }
    }
}
