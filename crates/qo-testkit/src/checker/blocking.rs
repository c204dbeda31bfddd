//! G7 no blocking: a full group, a missing handler or a future date delays no other job.
//!
//! Claims walk the line in claim order. The answer says which jobs a walk took, so the books can be turned
//! back to the moment at which the walk came by any job. One that was left behind met a claim that was full,
//! or lacked room, or was held back by a big job ahead that reserves slots (`docs/rules.md`, "Reserved"); and what is
//! reserved nobody else may take.

use super::ledger::{Fact, GroupIndex, Ledger};
use super::{Objections, Violation, Watch, read};
use crate::history::History;
use qo_core::{Exchange, ExchangeReply};

/// Watches what claims take and what they leave behind.
#[derive(Debug, Default)]
pub struct Blocking;

/// Jobs that a claim passed over although it had room for them, or took although it had not.
pub fn check(history: &History) -> Vec<Violation> {
    read(history, &mut [&mut Blocking])
}

impl Watch for Blocking {
    fn fact(&mut self, books: &Ledger, fact: &Fact<'_>, objections: &mut Objections) {
        match fact {
            Fact::Granted(session, claimed, Some(job)) => {
                let new = &books.jobs[*job].new;
                let serves = books.sessions.get(session).is_some_and(|session| session.serves(new));
                objections.unless(serves && books.jobs[*job].run_at <= books.now, "G7", || {
                    format!("{} was granted to a worker without its handler, or before its date", claimed.id)
                });
            }
            Fact::Exchanged(exchange, reply) if exchange.claim.max > 0 => {
                Walk::new(books, exchange, reply).check(objections);
            }
            _ => {}
        }
    }
}

/// A claim's walk, gone again.
struct Walk<'a> {
    books: &'a Ledger,
    exchange: &'a Exchange,
    /// What it took, in its order.
    claimed: Vec<usize>,
    /// What big jobs have kept in a group: it stays kept for the whole walk.
    kept: Vec<Hold>,
}

/// Slots of a group that a big job reserved.
#[derive(Debug, Clone, Copy)]
struct Hold {
    group: GroupIndex,
    wants: u32,
}

impl<'a> Walk<'a> {
    fn new(books: &'a Ledger, exchange: &'a Exchange, reply: &ExchangeReply) -> Self {
        let claimed = reply.claimed.iter().filter_map(|claimed| books.find(claimed.id)).collect();
        Self { books, exchange, claimed, kept: Vec::new() }
    }

    fn check(mut self, objections: &mut Objections) {
        let books = self.books;
        let in_order = self.claimed.is_sorted_by_key(|&job| books.order(job));
        objections.unless(in_order, "G7", || "the claim is out of order".into());
        let mut line = self.left_behind();
        line.extend(&self.claimed);
        line.sort_unstable_by_key(|&job| books.order(job));
        for job in line {
            self.visit(job, objections);
        }
    }

    /// Jobs still in line that the claim could have taken before it took any.
    fn left_behind(&self) -> Vec<usize> {
        let Some(session) = self.books.sessions.get(&self.exchange.session) else { return Vec::new() };
        let could = |&job: &usize| {
            self.books.is_due(job)
                && session.serves(&self.books.jobs[job].new)
                && self.books.had_room(job, &self.claimed)
        };
        self.books.pending.iter().copied().filter(could).collect()
    }

    fn visit(&mut self, job: usize, objections: &mut Objections) {
        let books = self.books;
        let order = books.order(job);
        let is_before = |other: &usize| books.order(*other) < order;
        let (before, since): (Vec<usize>, Vec<usize>) =
            self.claimed.iter().partition(|other| is_before(other));
        let taken = self.claimed.contains(&job);
        if !taken && self.is_full(&before, job) || !books.had_room(job, &since) {
            return;
        }
        let hold = self.holds(job, &since);
        let (id, got, max) = (books.jobs[job].new.id, self.claimed.len(), self.exchange.claim.max);
        match hold {
            Some(Hold { group, wants }) if taken => {
                let group = books.groups.name(group);
                objections.add(
                    "reserved",
                    format!("{id} took slots of {group} where a job ahead had reserved {wants}"),
                );
            }
            None if !taken => {
                objections.add(
                    "G7",
                    format!("{id} could run here and was passed over; {got} of {max} were claimed"),
                );
            }
            _ => {}
        }
    }

    /// Whether the claim, or its share of the job's queue, was full after those before it.
    fn is_full(&self, before: &[usize], job: usize) -> bool {
        let queue = |job: usize| &self.books.jobs[job].new.queue;
        let of_queue = before.iter().filter(|&&other| queue(other) == queue(job)).count() as u64;
        let claim = self.exchange.claim;
        before.len() as u64 >= claim.max.into()
            || claim.max_per_queue.is_some_and(|most| of_queue >= most.into())
    }

    /// What holds the job back: what big jobs kept earlier in this walk, else big jobs ahead.
    fn holds(&mut self, job: usize, since: &[usize]) -> Option<Hold> {
        let books = self.books;
        let needs = &books.jobs[job].needs;
        for &(group, need) in needs {
            let left = books.free_before(group, since).map(|free| free.saturating_sub(need.into()));
            let kept = |kept: &&Hold| kept.group == group && left < Some(kept.wants.into());
            if let (Some(_), Some(kept)) = (left, self.kept.iter().find(kept)) {
                return Some(*kept);
            }
        }
        let ahead = needs.iter().filter_map(|&(group, need)| {
            Some(Hold { group, wants: books.big_job_ahead(job, group, need, since)? })
        });
        let before = self.kept.len();
        self.kept.extend(ahead);
        self.kept.get(before).copied()
    }
}
