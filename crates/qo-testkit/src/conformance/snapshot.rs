//! Everything that a store shows, at once: to see that a call changed nothing, and that it fits together.

use super::World;
use qo_core::{
    GroupDetail, GroupRef, JobDetail, JobFilter, JobState, JobView, QueueStatus, WorkerStatus, caps,
};
use std::collections::BTreeMap;

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
        for group in self.all_groups().await {
            groups.push(self.store.group(group).await.expect("a listed group is there"));
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
    pub async fn all_groups(&self) -> Vec<GroupRef> {
        let (mut groups, mut after) = (Vec::new(), None);
        loop {
            let page = self.store.groups(after, caps::PAGE).await.expect("a page of groups");
            groups.extend(page.groups.into_iter().map(|status| status.group));
            after = page.next;
            if after.is_none() {
                return groups;
            }
        }
    }

    /// Checks what must be true of any store at any time: slots are held by running jobs and nobody else,
    /// and running jobs belong to live sessions.
    pub async fn audit(&self) {
        let running = self.running_jobs().await;
        for group in self.all_groups().await {
            let detail = self.store.group(group.clone()).await.expect("a listed group is there");
            let held: u64 = detail.holders.iter().map(|holder| u64::from(holder.slots)).sum();
            assert_eq!(held, detail.status.used, "slots of {group} that its holders do not hold");
            assert!(detail.status.used <= detail.status.live, "{group}: more used than live");
            for holder in &detail.holders {
                let view = running.get(&holder.job);
                let view =
                    view.unwrap_or_else(|| panic!("{group} is held by {}, which does not run", holder.job));
                assert_eq!(view.running.as_ref(), Some(&holder.running), "{group} shows another owner");
            }
        }
        let workers = self.store.workers().await.expect("workers");
        let owned: u64 = workers.iter().map(|worker| worker.running).sum();
        assert_eq!(owned, running.len() as u64, "running jobs that no live session owns");
    }

    async fn running_jobs(&self) -> BTreeMap<qo_core::JobId, JobView> {
        let jobs = self.all_jobs().await.into_iter();
        jobs.filter(|view| view.state == JobState::Running).map(|view| (view.id, view)).collect()
    }
}
