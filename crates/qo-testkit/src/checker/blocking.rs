//! G7 no blocking: a full group, a missing handler or a future date delays no other job.
//!
//! Claims walk the line in claim order. The answer says which jobs a walk took, so the ledger can be rewound to the
//! moment at which the walk reached any job. A job that the walk passed over met a full claim, or lacked room, or was
//! held back by a big job ahead that reserves slots (`docs/rules.md`, "Reserved"). No later job of that walk may take
//! reserved slots.
//!
//! With concurrent calls the walk cannot be replayed: it passes over a job that another call is about to take or to
//! submit, and returns to it if that call lets it go. The history does not show that. So there this checker watches
//! only how many jobs a walk takes, for which session and when.

use super::ledger::{Counted, Fact, GroupIndex, Ledger, Walked};
use super::{Objections, Violation, Watch, read};
use crate::history::History;

/// Watches what claims take and what they leave behind.
#[derive(Debug, Default)]
pub struct Blocking;

/// Jobs that a claim passed over although it had room for them, or took although it had not.
pub fn check(history: &History) -> Vec<Violation> {
    read(history, &mut [&mut Blocking])
}

impl Watch for Blocking {
    fn fact(&mut self, books: &Ledger, fact: &Fact<'_>, objections: &mut Objections) {
        let (session, id, job) = match fact {
            Fact::Granted(grant) => (grant.session, grant.id, grant.job),
            Fact::Prefetched(session, prefetched, job) => (*session, prefetched.job.id, *job),
            Fact::Walked(walked) => return Walk::new(books, **walked).check(objections),
            _ => return,
        };
        let Some(job) = job else { return };
        let serves = books.sessions.get(&session).is_some_and(|by| by.serves(&books.jobs[job].new));
        // A concurrent call saw that this date had come, though this call may have read the clock before it.
        objections.unless(serves && books.jobs[job].run_at <= books.latest, "G7", || {
            format!("{id} was granted to a worker without its handler, or before its date")
        });
    }
}

/// A claim's walk, replayed.
struct Walk<'a> {
    books: &'a Ledger,
    walked: Walked<'a>,
    /// Slots of a group that big jobs have kept: they stay kept for the whole walk.
    kept: Vec<Hold>,
}

/// Slots of a group that a big job reserved.
#[derive(Debug, Clone, Copy)]
struct Hold {
    group: GroupIndex,
    wants: u32,
}

impl<'a> Walk<'a> {
    fn new(books: &'a Ledger, walked: Walked<'a>) -> Self {
        Self { books, walked, kept: Vec::new() }
    }

    /// What counted as taken before these jobs were.
    fn counted<'b>(&self, before: &'b [usize]) -> Counted<'b> {
        Counted { before, claims: self.walked.ahead }
    }

    fn check(mut self, objections: &mut Objections) {
        let (books, taken) = (self.books, self.walked.taken);
        objections.unless(taken.len() <= self.room(), "G7", || {
            format!("{} jobs were claimed, {} were asked for", taken.len(), self.room())
        });
        if books.concurrent {
            return;
        }
        let in_order = taken.is_sorted_by_key(|&job| books.order(job));
        objections.unless(in_order, "G7", || "the claim is out of order".into());
        let mut line = self.left_behind();
        line.extend(taken);
        line.sort_unstable_by_key(|&job| books.order(job));
        for job in line {
            self.visit(job, objections);
        }
    }

    /// How many jobs the walk may take.
    fn room(&self) -> usize {
        let Walked { exchange, taken, ahead, .. } = self.walked;
        let room = match exchange.claim.prefetch {
            _ if !ahead => exchange.claim.max,
            _ if self.walked.held_too_long => 0,
            None => 0,
            Some(prefetch) => {
                let held_before = self.books.claimed_by(exchange.session) - taken.len() as u32;
                prefetch.buffer.saturating_sub(held_before)
            }
        };
        room as usize
    }

    /// Jobs still in line that the claim could have taken before it took any.
    fn left_behind(&self) -> Vec<usize> {
        if self.room() == 0 {
            return Vec::new();
        }
        let Some(session) = self.books.sessions.get(&self.walked.exchange.session) else { return Vec::new() };
        let could = |&job: &usize| {
            session.serves(&self.books.jobs[job].new)
                && self.books.had_room(job, self.counted(self.walked.taken))
                && self.books.is_claimable(job)
        };
        self.books.pending.iter().copied().filter(could).collect()
    }

    fn visit(&mut self, job: usize, objections: &mut Objections) {
        let books = self.books;
        let order = books.order(job);
        let is_before = |other: &usize| books.order(*other) < order;
        let (before, since): (Vec<usize>, Vec<usize>) =
            self.walked.taken.iter().partition(|other| is_before(other));
        let taken = self.walked.taken.contains(&job);
        if !taken && self.is_full(&before, job) {
            return;
        }
        let (id, ahead) = (books.jobs[job].new.id, self.walked.ahead);
        if ahead && books.is_big(job) {
            return objections
                .unless(!taken, "prefetch", || format!("{id} is big and was claimed ahead of time"));
        }
        if !books.had_room(job, self.counted(&since)) {
            // G1 checks that a job that *runs* had room.
            return objections.unless(!taken || !ahead, "prefetch", || {
                format!("{id} was claimed ahead of time where there was no room for it")
            });
        }
        let hold = self.holds(job, &since);
        let (got, max) = (self.walked.taken.len(), self.room());
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
                    format!("{id} could run here and was passed over; {got} of {max} were claimed (ahead: {ahead})"),
                );
            }
            _ => {}
        }
    }

    /// Whether the claim, or its share of the job's queue, was full after the jobs before this one.
    fn is_full(&self, before: &[usize], job: usize) -> bool {
        let queue = |job: usize| &self.books.jobs[job].new.queue;
        let both_walks = before.iter().chain(self.walked.before);
        let of_queue = both_walks.filter(|&&other| queue(other) == queue(job)).count() as u64;
        let most = self.walked.exchange.claim.max_claim_batch;
        before.len() >= self.room() || most.is_some_and(|most| of_queue >= most.into())
    }

    /// What holds the job back: what big jobs kept earlier in this walk, else big jobs ahead.
    fn holds(&mut self, job: usize, since: &[usize]) -> Option<Hold> {
        let (books, counted) = (self.books, self.counted(since));
        let needs = &books.jobs[job].needs;
        for &(group, need) in needs {
            let left = books.free_slots_of(group, counted).map(|free| free.saturating_sub(need.into()));
            let kept = |kept: &&Hold| kept.group == group && left < Some(kept.wants.into());
            if let (Some(_), Some(kept)) = (left, self.kept.iter().find(kept)) {
                return Some(*kept);
            }
        }
        let order = Some(books.order(job));
        let ahead = needs.iter().filter_map(|&(group, need)| {
            Some(Hold { group, wants: books.big_job_ahead(order, group, need, counted)? })
        });
        let before = self.kept.len();
        self.kept.extend(ahead);
        self.kept.get(before).copied()
    }
}
