//! G7 no blocking: a full group, a missing handler or a future date delays no other job.
//!
//! Claims walk the line in claim order. The answer says which jobs a walk took, so the books can be turned
//! back to the moment at which the walk came by a job that it left behind: then the claim was full, or the
//! job lacked room, or a big job ahead had reserved slots (contract §3). What is reserved nobody else may take.

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
                objections.unless(!books.was_reserved(*job, &[]), "reserved", || {
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
    let claimed: Vec<_> = reply.claimed.iter().filter_map(|claimed| books.find(claimed.id)).collect();
    for &index in &books.pending {
        let queue = &books.jobs[index].new.queue;
        if !books.is_due(index) || !session.serves(&books.jobs[index].new) {
            continue;
        }
        let order = books.order(index);
        let (before, since): (Vec<_>, Vec<_>) = claimed.iter().partition(|&&job| books.order(job) < order);
        let of_queue = before.iter().filter(|&&job| books.jobs[job].new.queue == *queue).count();
        let full = before.len() as u64 >= u64::from(exchange.claim.max)
            || exchange.claim.max_per_queue.is_some_and(|most| of_queue as u64 >= u64::from(most));
        if !full && books.had_room(index, &since) && !books.was_reserved(index, &since) {
            let (job, got, max) = (books.jobs[index].new.id, reply.claimed.len(), exchange.claim.max);
            objections
                .add("G7", format!("{job} could run here and was passed over; {got} of {max} were claimed"));
        }
    }
}
