//! G7 no blocking: a full group, a missing handler or a future date delays no other job.
//!
//! After a claim no job may be left in line that the claim had room for, unless the claim was full with
//! jobs that stand before it. Slots only get fewer while a claim walks the line, so a job that has room
//! *after* the claim had room when its turn came.
//!
//! The one thing that may hold such a job back is a big job ahead that reserves slots (contract §3); and what
//! it reserves nobody else may take.

use super::ledger::{Fact, Ledger};
use super::{Objections, Violation, Watch, read};
use crate::history::History;
use qo_core::{Exchange, ExchangeReply};

/// Watches what claims leave behind.
#[derive(Debug, Default)]
pub struct Blocking;

/// Jobs that a claim passed over although it had room for them.
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
                objections.unless(!books.is_reserved(*job, &[]), "reserved", || {
                    format!("{} took slots that a big job ahead had reserved", claimed.id)
                });
            }
            Fact::Exchanged(exchange, reply) if exchange.claim.max > 0 => {
                check_order(books, reply, objections);
                check_left_behind(books, exchange, reply, objections);
            }
            _ => {}
        }
    }
}

fn check_order(books: &Ledger, reply: &ExchangeReply, objections: &mut Objections) {
    let orders: Vec<_> =
        reply.claimed.iter().filter_map(|c| books.find(c.id)).map(|job| books.order(job)).collect();
    objections.unless(orders.is_sorted(), "G7", || format!("claimed out of order: {orders:?}"));
}

fn check_left_behind(
    books: &Ledger,
    exchange: &Exchange,
    reply: &ExchangeReply,
    objections: &mut Objections,
) {
    let Some(session) = books.sessions.get(&exchange.session) else { return };
    let full = reply.claimed.len() as u64 >= u64::from(exchange.claim.max);
    let granted: Vec<usize> = reply.claimed.iter().filter_map(|claimed| books.find(claimed.id)).collect();
    for &index in &books.pending {
        if !books.is_due(index) || !session.serves(&books.jobs[index].new) || !books.has_room(index) {
            continue;
        }
        let queue = &books.jobs[index].new.queue;
        let of_queue = || reply.claimed.iter().filter(|claimed| claimed.queue == *queue);
        let queue_full =
            exchange.claim.max_per_queue.is_some_and(|most| of_queue().count() as u64 >= u64::from(most));
        // What filled the claim must stand before this job; what filled its queue, within the queue.
        let last = if queue_full { of_queue().next_back() } else { reply.claimed.last() };
        let last = last.and_then(|last| books.find(last.id));
        let behind = (full || queue_full) && last.is_none_or(|last| books.order(last) < books.order(index));
        if !behind && !books.is_reserved(index, &granted) {
            let (job, got, max) = (books.jobs[index].new.id, reply.claimed.len(), exchange.claim.max);
            objections
                .add("G7", format!("{job} could run here and was passed over; {got} of {max} were claimed"));
        }
    }
}
