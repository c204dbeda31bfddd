//! The store's views must agree with the ledger: slots used = slots of the holders = slots recomputed.

use super::ledger::{Fact, Grant, GroupIndex, Job, Ledger};
use super::{Objections, Violation, Watch, read};
use crate::history::{Audit, Entry, History, What};
use qo_core::{
    ClaimedJob, GroupDetail, GroupStatus, HeldBy, JobState, JobView, Running, Time, WorkflowStatus,
};
use std::collections::HashSet;
use uuid::Uuid;

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
            Fact::Granted(Grant { claimed: Some(claimed), job: Some(job), .. }) => {
                compare_claim(&books.jobs[*job], claimed, objections);
            }
            Fact::Prefetched(_, prefetched, Some(job)) => {
                compare_claim(&books.jobs[*job], &prefetched.job, objections);
            }
            _ => {}
        }
    }

    fn entry(&mut self, books: &Ledger, entry: &Entry, objections: &mut Objections) {
        let What::Audited(audit) = &entry.what else { return };
        let details = audit.details.iter().map(|detail| &detail.view);
        let (stored, books) = (books, &books.foresee());
        audit.jobs.iter().chain(details).for_each(|view| compare_job(stored, books, view, objections));
        if audit.is_partial() {
            return;
        }
        compare_live(stored, audit, objections);
        audit.groups.iter().for_each(|status| compare_group(books, status, objections));
        audit.holders.iter().for_each(|detail| compare_holders(books, detail, objections));
        compare_lists(books, audit, objections);
        compare_workers(books, audit, objections);
        compare_queues(books, audit, objections);
        compare_workflows(stored, books, audit, objections);
    }
}

fn compare_claim(job: &Job, claimed: &ClaimedJob, objections: &mut Objections) {
    let same = claimed.group == job.group
        && claimed.key == job.new.key
        && claimed.queue == job.new.queue
        && claimed.task == job.new.task
        && claimed.payload == job.new.payload
        && claimed.attempt == job.attempts_used + 1;
    objections.unless(same, "views", || format!("{claimed:?} was submitted as {job:?}"));
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
    let by_store: Vec<_> =
        detail.holders.iter().map(|h| (h.token, holder_id(&h.by), h.slots, h.lease_until)).collect();
    let held = |needs: &[(GroupIndex, u32)]| needs.iter().find(|(at, _)| *at == index).map(|&(_, n)| n);
    let jobs = books.running.iter().filter_map(|(&token, &job)| {
        let job = &books.jobs[job];
        Some((token, job.new.id.0, held(&job.needs)?, job_lease(books, job)?))
    });
    let programs = books.programs.iter().filter_map(|(id, program)| {
        Some((program.lease.token, id.0, held(&program.needs)?, program.lease.lease_until))
    });
    let mut by_books: Vec<_> = jobs.chain(programs).collect();
    by_books.sort_unstable();
    objections.unless(by_store == by_books && sum == detail.status.used, "views", || {
        format!("{group}: {} used, held by {by_store:?}, by the books {by_books:?}", detail.status.used)
    });
}

/// The job or the lease that holds slots.
fn holder_id(by: &HeldBy) -> Uuid {
    match by {
        HeldBy::Job { job, .. } => job.0,
        HeldBy::Program { lease } => lease.0,
    }
}

/// When the lease on a job is over: the session's end, or the end of its timeout or claim if that comes first.
fn job_lease(books: &Ledger, job: &Job) -> Option<Time> {
    let (session, own_end) = match (job.holding, job.claimed) {
        (Some(holding), _) => (holding.session, holding.timeout_at),
        (_, Some(claimed)) => (claimed.session, Some(claimed.until)),
        (None, None) => return None,
    };
    let session_end = books.sessions.get(&session)?.lease_until;
    Some(own_end.map_or(session_end, |end| end.min(session_end)))
}

fn compare_job(stored: &Ledger, foreseen: &Ledger, view: &JobView, objections: &mut Objections) {
    let Some(index) = stored.find(view.id) else {
        return objections.add("views", format!("{} was never accepted", view.id));
    };
    let books = stored.shown(foreseen, index);
    let job = &books.jobs[index];
    let by = |running: &Running| (running.token, running.session, running.lease_until);
    let by_store = (
        (view.state, view.attempts_used, view.cancel_requested, &view.group),
        (view.running.as_ref().map(by), view.claimed.as_ref().map(by)),
        (&view.workflow, view.step, view.skipped),
        (view.good_until, view.finished_at),
        (view.timeout_ms, view.retry, view.limit, view.traceparent),
        view.running.as_ref().and_then(|running| running.progress.as_ref()),
    );
    let lease_until = job_lease(books, job).unwrap_or_default();
    let holding = job.holding.map(|holding| (holding.token, holding.session, lease_until));
    let claimed = job.claimed.map(|claimed| (claimed.token, claimed.session, lease_until));
    // For a finished job it makes no difference whether it was cancelled while it ran.
    let cancel_requested = if job.state.is_terminal() { view.cancel_requested } else { job.cancel_requested };
    let by_books = (
        (job.state, job.attempts_used, cancel_requested, &job.group),
        (holding, claimed),
        (&job.new.workflow, job.step, job.skipped),
        (job.good_until, job.finished_at),
        (job.new.timeout_ms, job.new.retry, job.new.limit, job.new.traceparent),
        job.progress.as_ref(),
    );
    let in_line = view.state != JobState::Pending || view.run_at == job.run_at;
    objections.unless(by_store == by_books && in_line, "views", || {
        format!("{} is {by_store:?} at {}, by the books {by_books:?} at {}", view.id, view.run_at, job.run_at)
    });
}

fn compare_live(stored: &Ledger, audit: &Audit, objections: &mut Objections) {
    let live = audit.jobs.iter().filter(|view| !view.state.is_terminal()).count();
    let due = stored.pending.len() + stored.claims.len() + stored.running.len();
    objections.unless(live == due, "views", || format!("{live} live jobs are listed, by the books {due}"));
}

fn compare_lists(books: &Ledger, audit: &Audit, objections: &mut Objections) {
    let listed: HashSet<_> = audit.groups.iter().map(|status| &status.group).collect();
    for index in books.groups.all().filter(|&index| books.groups.live(index) > 0) {
        let group = books.groups.name(index);
        objections
            .unless(listed.contains(group), "views", || format!("{group} has live jobs and is not listed"));
    }
}

fn compare_workers(books: &Ledger, audit: &Audit, objections: &mut Objections) {
    let mut by_store: Vec<_> = audit
        .workers
        .iter()
        .map(|w| {
            (w.session, w.lease_until, w.draining, (w.running, w.claimed), (w.free_permits, w.saturated))
        })
        .collect();
    by_store.sort_unstable();
    let by_books: Vec<_> = books
        .sessions
        .iter()
        .map(|(&id, session)| {
            let held = (u64::from(books.owned(id)), u64::from(books.claimed_by(id)));
            let permits = (session.free_permits, session.is_saturated());
            (id, session.lease_until, session.draining, held, permits)
        })
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
        let pending = |is_next: bool, due: bool| {
            let fits = |job: &&usize| {
                books.is_next(**job) == is_next && (!is_next || books.is_in_line(**job) == due)
            };
            of_queue(&mut books.pending.iter().filter(fits))
        };
        let by_books = (
            (of_queue(&mut books.running.values()), of_queue(&mut books.claims.values())),
            (pending(true, true), pending(true, false), pending(false, false)),
            books.paused.contains(&queue.queue),
        );
        let by_store =
            ((queue.running, queue.claimed), (queue.due, queue.scheduled, queue.waiting), queue.paused);
        objections.unless(by_store == by_books, "views", || {
            format!(
                "queue {} ((running, claimed), (due, scheduled, waiting), paused) is {by_store:?}, by the \
                 books {by_books:?}",
                queue.queue
            )
        });
    }
}

fn compare_workflows(books: &Ledger, foreseen: &Ledger, audit: &Audit, objections: &mut Objections) {
    let by_books: Vec<WorkflowStatus> = books
        .workflows
        .iter()
        .map(|(name, workflow)| WorkflowStatus {
            workflow: name.clone(),
            state: books.workflow_state(workflow),
            on_failure: workflow.on_failure,
            steps: workflow.accepted,
            live: books.live_steps(workflow),
            head: books.head(workflow).map(|head| books.shown(foreseen, head).step_status(head)),
        })
        .collect();
    objections.unless(audit.workflows == by_books, "views", || {
        let odd = audit.workflows.iter().find(|status| !by_books.contains(status));
        let due = odd.and_then(|odd| by_books.iter().find(|due| due.workflow == odd.workflow));
        format!(
            "{} workflows, by the books {}: {odd:?}, due was {due:?}",
            audit.workflows.len(),
            by_books.len()
        )
    });
}
