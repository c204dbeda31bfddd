//! Everything that a store shows at one moment: to see that a call changed nothing, and that the views are consistent.

use super::World;
use qo_core::{GroupDetail, GroupRef, GroupStatus, HeldBy, Holder, JobDetail, JobFilter, JobState, JobView};
use qo_core::{OnFailure, QueueStatus, ScheduleStatus, StepStatus, Time, WorkerStatus, WorkflowState};
use qo_core::{WorkflowStatus, caps};
use std::collections::{BTreeMap, BTreeSet};

/// Everything that a store shows. Two of them are equal if no view differs.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// All jobs, whole, in the order of acceptance.
    pub jobs: Vec<JobDetail>,
    /// All groups, with their holders, jobs and programs. How often they refused is left out: a refusal changes nothing
    /// else.
    pub groups: Vec<GroupDetail>,
    /// All queues.
    pub queues: Vec<QueueStatus>,
    /// All live sessions.
    pub workers: Vec<WorkerStatus>,
    /// All workflows.
    pub workflows: Vec<WorkflowStatus>,
    /// All schedules.
    pub schedules: Vec<ScheduleStatus>,
}

/// Reads page after page, until there is no next one.
macro_rules! all_pages {
    ($rows:ident, |$after:ident| $page:expr) => {{
        let (mut rows, mut $after) = (Vec::new(), None);
        loop {
            let page = $page.await.expect("a page");
            rows.extend(page.$rows);
            $after = page.next;
            if $after.is_none() {
                return rows;
            }
        }
    }};
}

impl World {
    /// Everything that the store shows now.
    pub async fn snapshot(&self) -> Snapshot {
        let mut jobs = Vec::new();
        for view in self.all_jobs().await {
            jobs.push(self.detail(view.id).await);
        }
        let mut groups = Vec::new();
        for status in self.all_groups().await {
            let mut group = self.store.group(status.group).await.expect("a listed group is there");
            group.status.rejected = 0;
            groups.push(group);
        }
        let queues = self.store.queues().await.expect("queues");
        let workers = self.store.workers().await.expect("workers");
        let schedules = self.store.schedules().await.expect("schedules");
        Snapshot { jobs, groups, queues, workers, workflows: self.all_workflows().await, schedules }
    }

    /// All jobs, page by page.
    pub async fn all_jobs(&self) -> Vec<JobView> {
        all_pages!(jobs, |after| self.store.jobs(JobFilter::default(), after, caps::PAGE))
    }

    /// All groups, page by page.
    pub async fn all_groups(&self) -> Vec<GroupStatus> {
        all_pages!(groups, |after| self.store.groups(after, caps::PAGE))
    }

    /// All workflows, page by page.
    pub async fn all_workflows(&self) -> Vec<WorkflowStatus> {
        all_pages!(workflows, |after| self.store.workflows(after, caps::PAGE))
    }

    /// Checks what must be true of any store at any time: the used slots of a group are exactly those of its running
    /// jobs and programs; what runs or is claimed belongs to live sessions; steps follow one another.
    pub async fn audit(&self) {
        let (mut jobs, now) = (self.all_jobs().await, self.store.now().await.expect("store time"));
        self.audit_workflows(&jobs).await;
        // A job that would end is listed until a command has ended it; nothing else counts it.
        jobs.retain(|view| !would_end(view, now));
        let (running, live) = (slots(&jobs, |view| view.state == JobState::Running), slots(&jobs, is_live));
        let groups = self.all_groups().await;
        for status in groups.iter().filter(|status| !matches!(status.group, GroupRef::EveryKey(_))) {
            let of = |slots: &Slots| slots.get(&status.group).copied().unwrap_or(0);
            let programs =
                if status.used > of(&running) { self.program_slots(&status.group).await } else { 0 };
            assert_eq!(status.used, of(&running) + programs, "slots taken of {}", status.group);
            assert_eq!(status.live, of(&live) + programs, "slots wanted of {}", status.group);
        }
        let listed: BTreeSet<_> = groups.iter().map(|status| &status.group).collect();
        for group in live.keys() {
            assert!(listed.contains(group), "{group} has live jobs and is not listed");
        }
        self.audit_holders(&groups).await;
        self.audit_owners(&jobs).await;
        self.audit_queues(&jobs).await;
    }

    async fn programs(&self, group: &GroupRef) -> Vec<Holder> {
        let detail = self.store.group(group.clone()).await.expect("a listed group is there");
        let is_program = |holder: &Holder| matches!(holder.by, HeldBy::Program { .. });
        detail.holders.into_iter().filter(is_program).collect()
    }

    async fn program_slots(&self, group: &GroupRef) -> u64 {
        let programs = self.programs(group).await;
        if let GroupRef::Key(name, _) = group {
            let whole = self.programs(&GroupRef::Group(name.clone())).await;
            assert!(
                programs.iter().all(|program| whole.contains(program)),
                "{group}: not held in {name} too"
            );
        }
        programs.iter().map(|program| u64::from(program.slots)).sum()
    }

    /// Checks the holders of the first groups; where there are very many, the others are like them.
    async fn audit_holders(&self, groups: &[GroupStatus]) {
        for status in groups.iter().filter(|status| status.used > 0).take(20) {
            let detail = self.store.group(status.group.clone()).await.expect("a listed group is there");
            // A process may show refusals before it has written them.
            let shown = GroupStatus { rejected: status.rejected, ..detail.status.clone() };
            assert_eq!(&shown, status, "a group and the listing of groups");
            let held: u64 = detail.holders.iter().map(|holder| u64::from(holder.slots)).sum();
            assert_eq!(held, status.used, "slots of {} that its holders do not hold", status.group);
            assert!(detail.holders.is_sorted_by_key(|holder| holder.token), "{:?}", detail.holders);
            for holder in detail.holders.iter().take(20) {
                let Some(job) = holder.job() else { continue };
                let running = self.view(job).await.running.expect("a holder runs");
                let shown = (&holder.worker, holder.token, holder.since, holder.lease_until);
                let owner = (&running.worker, running.token, running.since, running.lease_until);
                assert_eq!(shown, owner, "the owner of {job}");
            }
        }
    }

    /// Checks that every running or claimed job belongs to a live session, under a token of its own.
    async fn audit_owners(&self, jobs: &[JobView]) {
        let (mut running, mut claimed, mut tokens) = (0_u64, 0_u64, BTreeSet::new());
        for view in jobs {
            assert_eq!(view.running.is_some(), view.state == JobState::Running, "{view:?}");
            assert_eq!(view.claimed.is_some(), view.state == JobState::Claimed, "{view:?}");
            running += u64::from(view.running.is_some());
            claimed += u64::from(view.claimed.is_some());
            for owner in view.running.iter().chain(&view.claimed) {
                assert!(tokens.insert(owner.token), "two jobs with one token: {view:?}");
            }
        }
        let workers = self.store.workers().await.expect("workers");
        let owned: u64 = workers.iter().map(|worker| worker.running).sum();
        assert_eq!(owned, running, "running jobs that no live session owns");
        let owned: u64 = workers.iter().map(|worker| worker.claimed).sum();
        assert_eq!(owned, claimed, "claimed jobs that no live session owns");
    }

    /// Checks that queues count each live job once.
    async fn audit_queues(&self, jobs: &[JobView]) {
        for status in self.store.queues().await.expect("queues") {
            let count = |state| {
                jobs.iter().filter(|view| view.queue == status.queue && view.state == state).count() as u64
            };
            assert_eq!(status.running, count(JobState::Running), "{status:?}");
            assert_eq!(status.claimed, count(JobState::Claimed), "{status:?}");
            let pending = status.due + status.scheduled + status.waiting;
            assert_eq!(pending, count(JobState::Pending), "{status:?}");
        }
    }

    /// Checks that the state of each workflow follows from its steps, and that at most one of them runs.
    async fn audit_workflows(&self, jobs: &[JobView]) {
        let mut steps: BTreeMap<_, BTreeMap<u32, &JobView>> = BTreeMap::new();
        for view in jobs {
            assert_eq!(view.workflow.is_some(), view.step.is_some(), "{view:?}");
            assert!(!view.skipped || ended_badly(view), "{view:?}");
            if let (Some(workflow), Some(step)) = (&view.workflow, view.step) {
                let twice = steps.entry(workflow).or_default().insert(step, view);
                assert!(twice.is_none(), "two steps {step} of {workflow}");
            }
        }
        let workflows = self.all_workflows().await;
        let listed: Vec<_> = workflows.iter().map(|status| &status.workflow).collect();
        assert_eq!(listed, steps.keys().copied().collect::<Vec<_>>(), "workflows that have jobs");
        for status in &workflows {
            audit_steps(status, &steps[&status.workflow]);
        }
    }
}

fn audit_steps(status: &WorkflowStatus, steps: &BTreeMap<u32, &JobView>) {
    let running = steps.values().filter(|view| view.state == JobState::Running).count();
    assert!(running <= 1, "{running} steps run at once: {status:?}");
    assert_eq!(status.live as usize, steps.values().filter(|view| is_live(view)).count(), "{status:?}");
    assert!(steps.keys().all(|step| (1..=status.steps).contains(step)), "{status:?}");
    let cancelled = status.state == WorkflowState::Cancelled;
    let goes_on = cancelled || status.on_failure == OnFailure::Continue;
    let is_passed = |view: &JobView| {
        view.state == JobState::Succeeded || view.state.is_terminal() && (view.skipped || goes_on)
    };
    let head = steps.iter().find(|(_, view)| !is_passed(view));
    let head = head.map(|(&step, view)| StepStatus { step, job: view.id, state: view.state });
    assert_eq!(status.head, head, "{status:?}");
    let state = match head {
        _ if cancelled => WorkflowState::Cancelled,
        None => WorkflowState::Finished,
        Some(head) if head.state.is_terminal() => WorkflowState::Halted,
        Some(_) => WorkflowState::Active,
    };
    assert_eq!(status.state, state, "{status:?}");
}

type Slots = BTreeMap<GroupRef, u64>;

fn is_live(view: &JobView) -> bool {
    !view.state.is_terminal()
}

/// Whether the next exchange, sweep or request for slots would end a job that is listed as live: a job that would go
/// back to line is listed as pending.
fn would_end(view: &JobView, now: Time) -> bool {
    match view.state {
        JobState::Pending => view.good_until.is_some_and(|until| until <= now),
        _ => view.running.iter().chain(&view.claimed).any(|owner| owner.lease_until <= now),
    }
}

fn ended_badly(view: &JobView) -> bool {
    view.state.is_terminal() && view.state != JobState::Succeeded
}

/// The slots that some jobs take, group by group, as the rules say.
fn slots(jobs: &[JobView], which: impl Fn(&JobView) -> bool) -> Slots {
    let mut slots = Slots::new();
    for view in jobs.iter().filter(|view| which(view)) {
        let mut take = |group, count: u32| *slots.entry(group).or_default() += u64::from(count);
        take(GroupRef::Cluster, 1);
        take(GroupRef::Queue(view.queue.clone()), 1);
        take(GroupRef::Group(view.group.clone()), view.cost);
        if let Some(key) = &view.key {
            take(GroupRef::Key(view.group.clone(), key.clone()), view.cost);
        }
        for (group, count) in &view.limits {
            take(group.clone(), *count);
        }
    }
    slots
}
