//! The store's views must say what the books say: slots used = slots of the holders = slots recomputed.

use super::ledger::{Fact, Job, Ledger};
use super::{Objections, Violation, Watch, read};
use crate::history::{Audit, Entry, History, What};
use qo_core::{GroupDetail, GroupStatus, JobState, JobView};
use std::collections::HashSet;

/// Watches audits, and the counts of sweeps.
#[derive(Debug, Default)]
pub struct Views;

/// Views that differ from what the history says.
pub fn check(history: &History) -> Vec<Violation> {
    read(history, &mut [&mut Views])
}

impl Watch for Views {
    fn fact(&mut self, books: &Ledger, fact: &Fact<'_>, objections: &mut Objections) {
        match fact {
            Fact::Swept(said, due) => objections
                .unless(said == due, "views", || format!("a sweep counted {said:?}, due was {due:?}")),
            Fact::Granted(_, claimed, Some(job)) => {
                let job = &books.jobs[*job];
                let same = claimed.group == job.group
                    && claimed.key == job.new.key
                    && claimed.queue == job.new.queue
                    && claimed.task == job.new.task
                    && claimed.payload == job.new.payload
                    && claimed.attempt == job.attempts_used + 1;
                objections.unless(same, "views", || format!("{claimed:?} was submitted as {job:?}"));
            }
            _ => {}
        }
    }

    fn entry(&mut self, books: &Ledger, entry: &Entry, objections: &mut Objections) {
        let What::Audited(audit) = &entry.what else { return };
        let details = audit.details.iter().map(|detail| &detail.view);
        audit.jobs.iter().chain(details).for_each(|view| compare_job(books, view, objections));
        if audit.groups.is_empty() && audit.jobs.is_empty() {
            return; // Only single jobs were looked at.
        }
        audit.groups.iter().for_each(|status| compare_group(books, status, objections));
        audit.holders.iter().for_each(|detail| compare_holders(books, detail, objections));
        compare_lists(books, audit, objections);
        compare_workers(books, audit, objections);
        compare_queues(books, audit, objections);
    }
}

fn compare_group(books: &Ledger, status: &GroupStatus, objections: &mut Objections) {
    let by_books =
        books.groups.find(&status.group).map(|index| (books.groups.totals(index), books.groups.limit(index)));
    let by_store = ((status.used, status.live), status.limit);
    objections.unless(by_books == Some(by_store), "views", || {
        format!("{}: ((used, live), limit) is {by_store:?}, by the books {by_books:?}", status.group)
    });
}

fn compare_holders(books: &Ledger, detail: &GroupDetail, objections: &mut Objections) {
    let group = &detail.status.group;
    let Some(index) = books.groups.find(group) else { return };
    let sum: u64 = detail.holders.iter().map(|holder| u64::from(holder.slots)).sum();
    let by_store: Vec<_> = detail.holders.iter().map(|h| (h.token, h.job(), h.slots)).collect();
    let held = |job: &Job| job.needs.iter().find(|(group, _)| *group == index).map(|&(_, need)| need);
    let by_books: Vec<_> = books
        .running
        .iter()
        .filter_map(|(&token, &job)| Some((token, Some(books.jobs[job].new.id), held(&books.jobs[job])?)))
        .collect();
    objections.unless(by_store == by_books && sum == detail.status.used, "views", || {
        format!("{group}: {} used, held by {by_store:?}, by the books {by_books:?}", detail.status.used)
    });
}

fn compare_job(books: &Ledger, view: &JobView, objections: &mut Objections) {
    let Some(job) = books.find(view.id).map(|index| &books.jobs[index]) else {
        return objections.add("views", format!("{} was never accepted", view.id));
    };
    let by_store = (
        view.state,
        view.attempts_used,
        view.running.as_ref().map(|running| (running.token, running.session)),
        &view.group,
        view.cancel_requested,
    );
    let holding = job.holding.map(|holding| (holding.token, holding.session));
    // Of a finished job nothing depends on whether somebody had called it off.
    let cancel_requested = if job.state.is_terminal() { view.cancel_requested } else { job.cancel_requested };
    let by_books = (job.state, job.attempts_used, holding, &job.group, cancel_requested);
    let in_line = view.state != JobState::Pending || view.run_at == job.run_at;
    objections.unless(by_store == by_books && in_line, "views", || {
        format!("{} is {by_store:?} at {}, by the books {by_books:?} at {}", view.id, view.run_at, job.run_at)
    });
}

fn compare_lists(books: &Ledger, audit: &Audit, objections: &mut Objections) {
    let live = audit.jobs.iter().filter(|view| !view.state.is_terminal()).count();
    let due = books.pending.len() + books.running.len();
    objections.unless(live == due, "views", || format!("{live} live jobs are listed, by the books {due}"));
    let listed: HashSet<_> = audit.groups.iter().map(|status| &status.group).collect();
    for index in books.groups.all().filter(|&index| books.groups.live(index) > 0) {
        let group = books.groups.name(index);
        objections
            .unless(listed.contains(group), "views", || format!("{group} has live jobs and is not listed"));
    }
}

fn compare_workers(books: &Ledger, audit: &Audit, objections: &mut Objections) {
    let mut by_store: Vec<_> =
        audit.workers.iter().map(|w| (w.session, w.lease_until, w.draining, w.running)).collect();
    by_store.sort_unstable();
    let by_books: Vec<_> = books
        .sessions
        .iter()
        .map(|(&id, session)| (id, session.lease_until, session.draining, u64::from(books.owned(id))))
        .collect();
    objections.unless(by_store == by_books, "views", || {
        format!("sessions are {by_store:?}, by the books {by_books:?}")
    });
}

fn compare_queues(books: &Ledger, audit: &Audit, objections: &mut Objections) {
    for queue in &audit.queues {
        let of_queue = |jobs: &mut dyn Iterator<Item = &usize>| {
            jobs.filter(|&&job| books.jobs[job].new.queue == queue.queue).count() as u64
        };
        let by_books = (
            of_queue(&mut books.running.values()),
            of_queue(&mut books.pending.iter()),
            books.paused.contains(&queue.queue),
        );
        let by_store = (queue.running, queue.due + queue.scheduled, queue.paused);
        objections.unless(by_store == by_books, "views", || {
            format!(
                "queue {} (running, pending, paused) is {by_store:?}, by the books {by_books:?}",
                queue.queue
            )
        });
    }
}
