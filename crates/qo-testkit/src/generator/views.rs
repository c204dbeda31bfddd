//! All views at one moment, in a form in which two stores can be compared.

use super::pool::{STATES, all_limited, all_workflows, group, key, queue, task};
use crate::START;
use qo_core::{AuditEntry, Token, caps};
use qo_core::{
    Claim, Configuration, ErrorKind, Explanation, GroupDetail, GroupRef, GroupStatus, IdPrefix, JobDetail,
    JobFilter, JobId, JobView,
};
use qo_core::{
    Name, Over, Prefetch, Push, QueueStatus, ScheduleStatus, Store, TickOutcome, Time, Work, WorkerStatus,
    WorkflowStatus,
};

/// All views of a store.
#[derive(Debug, Clone, PartialEq)]
pub struct Views {
    /// Store time.
    pub now: Result<Time, ErrorKind>,
    /// Each job that was ever submitted.
    pub jobs: Vec<Result<JobDetail, ErrorKind>>,
    /// Why each of them does not run.
    pub explanations: Vec<Result<Explanation, ErrorKind>>,
    /// Listings, each read page by page: all jobs, then by several filters.
    pub listings: Vec<Result<Vec<JobView>, ErrorKind>>,
    /// The listing of groups, read page by page.
    pub groups: Result<Vec<GroupStatus>, ErrorKind>,
    /// Each group that a script may name.
    pub group_details: Vec<(GroupRef, Result<GroupDetail, ErrorKind>)>,
    /// The queues.
    pub queues: Result<Vec<QueueStatus>, ErrorKind>,
    /// The workers.
    pub workers: Result<Vec<WorkerStatus>, ErrorKind>,
    /// What is over and has not been ended yet.
    pub over: Result<Over, ErrorKind>,
    /// The listing of workflows, read page by page.
    pub workflows: Result<Vec<WorkflowStatus>, ErrorKind>,
    /// Each workflow that a script may name.
    pub workflow_details: Vec<(Name, Result<WorkflowStatus, ErrorKind>)>,
    /// The schedules.
    pub schedules: Result<Vec<ScheduleStatus>, ErrorKind>,
    /// What each app's configuration says.
    pub configurations: Result<Vec<Configuration>, ErrorKind>,
    /// The last pushes.
    pub pushes: Result<Vec<Push>, ErrorKind>,
    /// The live tokens, without their hashes: a server does not tell them.
    pub tokens: Result<Vec<Token>, ErrorKind>,
    /// The newest entries of the audit log.
    pub audit: Result<Vec<AuditEntry>, ErrorKind>,
    /// What `work` answers each live session, if it asked for one job, for none, and for some ahead of time.
    pub work: Vec<Result<Work, ErrorKind>>,
}

/// Reads everything: the given jobs one by one, the rest by listings.
pub async fn look(store: &dyn Store, jobs: &[JobId]) -> Views {
    let mut views = Views {
        now: store.now().await.map_err(|e| e.kind()),
        jobs: Vec::new(),
        explanations: Vec::new(),
        listings: Vec::new(),
        groups: all_groups(store).await,
        group_details: Vec::new(),
        queues: store.queues().await.map_err(|e| e.kind()),
        workers: store.workers().await.map_err(|e| e.kind()),
        over: store.over().await.map_err(|e| e.kind()),
        workflows: all_pages_of_workflows(store).await,
        workflow_details: Vec::new(),
        schedules: store.schedules().await.map(without_refusals).map_err(|e| e.kind()),
        configurations: store.configurations().await.map_err(|e| e.kind()),
        pushes: store.pushes().await.map_err(|e| e.kind()),
        tokens: store.tokens().await.map(without_hashes).map_err(|e| e.kind()),
        audit: store.audit(None, caps::PAGE).await.map_err(|e| e.kind()),
        work: Vec::new(),
    };
    let sessions = views.workers.iter().flatten().map(|worker| worker.session);
    for session in sessions.collect::<Vec<_>>() {
        for claim in claims() {
            // Stores count their changes differently.
            let work = store.work(session, claim).await.map(|work| Work { seen: 0, ..work });
            views.work.push(work.map_err(|e| e.kind()));
        }
    }
    for &job in jobs {
        views.jobs.push(store.job(job).await.map(without_store_texts).map_err(|e| e.kind()));
        views.explanations.push(store.explain(job).await.map_err(|e| e.kind()));
    }
    for filter in filters() {
        views.listings.push(all_jobs(store, filter).await);
    }
    for group in all_limited() {
        let detail = store.group(group.clone()).await.map_err(|e| e.kind());
        let detail = detail.map(|detail| GroupDetail { status: without_rejected(detail.status), ..detail });
        views.group_details.push((group, detail));
    }
    for workflow in all_workflows() {
        let detail = store.workflow(workflow.clone()).await.map_err(|e| e.kind());
        views.workflow_details.push((workflow, detail));
    }
    views
}

fn without_hashes(mut tokens: Vec<Token>) -> Vec<Token> {
    tokens.iter_mut().for_each(|token| token.hash = None);
    tokens
}

fn claims() -> [Claim; 3] {
    let prefetch = Some(Prefetch { buffer: 2, lease_ms: 5_000 });
    let some = Claim { max: 7, ..Claim::default() };
    [some, Claim::default(), Claim { prefetch, ..Claim::default() }]
}

/// The reason of a refused tick is text for people: stores may word it differently.
fn without_refusals(mut schedules: Vec<ScheduleStatus>) -> Vec<ScheduleStatus> {
    for last in schedules.iter_mut().filter_map(|schedule| schedule.last.as_mut()) {
        if let TickOutcome::Refused(why) = &mut last.outcome {
            *why = "the store's words".into();
        }
    }
    schedules
}

/// A store's own text about an attempt that it ended is for people: stores may word it differently.
fn without_store_texts(mut job: JobDetail) -> JobDetail {
    for attempt in job.attempts.iter_mut().filter(|attempt| !attempt.outcome.is_settled()) {
        attempt.error = attempt.error.take().map(|_| "the store's words".into());
    }
    job
}

fn filters() -> Vec<JobFilter> {
    let mut filters = vec![JobFilter::default()];
    filters.extend(STATES.map(|state| JobFilter { states: vec![state], ..JobFilter::default() }));
    filters.push(JobFilter { queue: Some(queue(1)), task: Some(task(0)), ..JobFilter::default() });
    filters.push(JobFilter { group: Some(group(0)), key: Some(key(0)), ..JobFilter::default() });
    let workflow = all_workflows().into_iter().next();
    filters.push(JobFilter { workflow: workflow.clone(), ..JobFilter::default() });
    filters.push(JobFilter { workflow: workflow.clone(), states: vec![STATES[0]], ..JobFilter::default() });
    filters.push(JobFilter { newest_first: true, ..JobFilter::default() });
    filters.push(JobFilter { workflow, newest_first: true, ..JobFilter::default() });
    let (from, before) = (Some(START.plus_ms(2_000)), Some(START.plus_ms(20_000)));
    filters.push(JobFilter { submitted_from: from, submitted_before: before, ..JobFilter::default() });
    filters.extend(["0", "00000000-0000-0000-0000-00000000001", "f"].map(|text| {
        let id_prefix = IdPrefix::parse("id_prefix", text).expect("a prefix");
        JobFilter { id_prefix: Some(id_prefix), newest_first: true, ..JobFilter::default() }
    }));
    filters
}

/// Page sizes are odd and small, so that pages end at many different places.
async fn all_jobs(store: &dyn Store, filter: JobFilter) -> Result<Vec<JobView>, ErrorKind> {
    let (mut jobs, mut after) = (Vec::new(), None);
    loop {
        let page = store.jobs(filter.clone(), after, 7).await.map_err(|e| e.kind())?;
        jobs.extend(page.jobs);
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(jobs),
        }
    }
}

/// A store may count refusals with its next write, and each process shows its own before that.
fn without_rejected(status: GroupStatus) -> GroupStatus {
    GroupStatus { rejected: 0, ..status }
}

async fn all_groups(store: &dyn Store) -> Result<Vec<GroupStatus>, ErrorKind> {
    let (mut groups, mut after) = (Vec::new(), None);
    loop {
        let page = store.groups(after, 3).await.map_err(|e| e.kind())?;
        groups.extend(page.groups.into_iter().map(without_rejected));
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(groups),
        }
    }
}

async fn all_pages_of_workflows(store: &dyn Store) -> Result<Vec<WorkflowStatus>, ErrorKind> {
    let (mut workflows, mut after) = (Vec::new(), None);
    loop {
        let page = store.workflows(after, 1).await.map_err(|e| e.kind())?;
        workflows.extend(page.workflows);
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(workflows),
        }
    }
}
