//! Everything that a store shows, at once: to see that a call changed nothing, and that it fits together.

use super::World;
use qo_core::{GroupDetail, GroupRef, GroupStatus, JobDetail, JobFilter, JobState, JobView, QueueStatus};
use qo_core::{WorkerStatus, caps};
use std::collections::{BTreeMap, BTreeSet};

/// Everything that a store shows. Two of them are equal if nobody can see a difference.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// All jobs, whole, in the order of acceptance.
    pub jobs: Vec<JobDetail>,
    /// All groups, with their holders.
    pub groups: Vec<GroupDetail>,
    /// All queues.
    pub queues: Vec<QueueStatus>,
    /// All live sessions.
    pub workers: Vec<WorkerStatus>,
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
            groups.push(self.store.group(status.group).await.expect("a listed group is there"));
        }
        let queues = self.store.queues().await.expect("queues");
        Snapshot { jobs, groups, queues, workers: self.store.workers().await.expect("workers") }
    }

    /// All jobs, page by page.
    pub async fn all_jobs(&self) -> Vec<JobView> {
        let (mut jobs, mut after) = (Vec::new(), None);
        loop {
            let page =
                self.store.jobs(JobFilter::default(), after, caps::PAGE).await.expect("a page of jobs");
            jobs.extend(page.jobs);
            after = page.next;
            if after.is_none() {
                return jobs;
            }
        }
    }

    /// All groups, page by page.
    pub async fn all_groups(&self) -> Vec<GroupStatus> {
        let (mut groups, mut after) = (Vec::new(), None);
        loop {
            let page = self.store.groups(after, caps::PAGE).await.expect("a page of groups");
            groups.extend(page.groups);
            after = page.next;
            if after.is_none() {
                return groups;
            }
        }
    }

    /// Checks what must be true of any store at any time: the slots of a group are those of its jobs and
    /// nobody else's, and running jobs belong to live sessions.
    pub async fn audit(&self) {
        let jobs = self.all_jobs().await;
        let (running, live) = (slots(&jobs, |view| view.state == JobState::Running), slots(&jobs, is_live));
        let groups = self.all_groups().await;
        for status in groups.iter().filter(|status| !matches!(status.group, GroupRef::EveryKey(_))) {
            let of = |slots: &Slots| slots.get(&status.group).copied().unwrap_or(0);
            assert_eq!(status.used, of(&running), "slots taken of {}", status.group);
            assert_eq!(status.live, of(&live), "slots wanted of {}", status.group);
        }
        let listed: BTreeSet<_> = groups.iter().map(|status| &status.group).collect();
        for group in live.keys() {
            assert!(listed.contains(group), "{group} has live jobs and is not listed");
        }
        self.audit_holders(&groups).await;
        let workers = self.store.workers().await.expect("workers");
        let owned: u64 = workers.iter().map(|worker| worker.running).sum();
        let running = jobs.iter().filter(|view| view.state == JobState::Running).count() as u64;
        assert_eq!(owned, running, "running jobs that no live session owns");
    }

    /// Checks the holders of the first groups; where there are very many, the others are alike.
    async fn audit_holders(&self, groups: &[GroupStatus]) {
        for status in groups.iter().filter(|status| status.used > 0).take(20) {
            let detail = self.store.group(status.group.clone()).await.expect("a listed group is there");
            assert_eq!(&detail.status, status, "a group and the listing of groups");
            let held: u64 = detail.holders.iter().map(|holder| u64::from(holder.slots)).sum();
            assert_eq!(held, status.used, "slots of {} that its holders do not hold", status.group);
            for holder in detail.holders.iter().take(20) {
                let Some(job) = holder.job() else { continue };
                let running = self.view(job).await.running.expect("a holder runs");
                let shown = (&holder.worker, holder.token, holder.since, holder.lease_until);
                let owner = (&running.worker, running.token, running.since, running.lease_until);
                assert_eq!(shown, owner, "the owner of {job}");
            }
        }
    }
}

type Slots = BTreeMap<GroupRef, u64>;

fn is_live(view: &JobView) -> bool {
    !view.state.is_terminal()
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
