//! What operators do to a store, recorded in its audit log: who, what, on what, the values before and after.
//!
//! `qo serve` does so for its callers, and the command line on a store of its own. Submits, exchanges and everything else
//! that programs do all the time is not recorded: an [`Operator`] has no method for it.

use crate::{
    AuditText, Change, Changed, Configuration, Cursor, Deed, Error, FenceToken, GroupRef, JobFilter,
};
use crate::{JobId, JobState, Name, Pushed, Result, Steer, Store, Submitted};

/// How many changes of a push the audit log names. The list of pushes has more of them.
const CHANGES: usize = 5;

/// A store in the hands of an operator: each method is that of [`Store`], and is recorded once it has succeeded.
///
/// A deed that is done and cannot be recorded stays done: the store may be away for the record alone. [`Self::new`] takes
/// what is told of it.
pub struct Operator<'a> {
    store: &'a dyn Store,
    by: AuditText,
    missed: fn(&Deed, &Error),
    is_recorded: bool,
}

impl<'a> Operator<'a> {
    /// A store in the hands of `by`. `missed` is called with each deed that could not be recorded.
    pub fn new(store: &'a dyn Store, by: AuditText, missed: fn(&Deed, &Error)) -> Self {
        Self { store, by, missed, is_recorded: true }
    }

    /// A store that records by itself what is done to it: one behind a server.
    pub fn recorded_elsewhere(store: &'a dyn Store) -> Self {
        Self { store, by: "".into(), missed: |_, _| {}, is_recorded: false }
    }

    /// Sets the operator's limit of a group.
    pub async fn set_limit(&self, group: GroupRef, limit: u32) -> Result<()> {
        let before = self.limit(&group).await;
        self.store.set_limit(group.clone(), limit).await?;
        self.did("set limit", group.to_string(), before, Some(limit.to_string())).await;
        Ok(())
    }

    /// Takes the operator's limit back.
    pub async fn unset_limit(&self, group: GroupRef) -> Result<()> {
        let before = self.limit(&group).await;
        self.store.unset_limit(group.clone()).await?;
        self.did("unset limit", group.to_string(), before, None).await;
        Ok(())
    }

    /// Stops or resumes claims from a queue.
    pub async fn pause_queue(&self, queue: Name, paused: bool) -> Result<()> {
        let word = |paused| if paused { "paused" } else { "open" };
        let queues = match self.is_recorded {
            true => self.store.queues().await.unwrap_or_default(),
            false => Vec::new(),
        };
        let before = queues.iter().any(|status| status.queue == queue && status.paused);
        self.store.pause_queue(queue.clone(), paused).await?;
        let what = if paused { "pause queue" } else { "resume queue" };
        self.did(what, queue.to_string(), Some(word(before).into()), Some(word(paused).into())).await;
        Ok(())
    }

    /// Takes away the slots that a claim holds in a group.
    pub async fn release_slot(&self, group: GroupRef, slot: FenceToken) -> Result<()> {
        let detail = match self.is_recorded {
            true => self.store.group(group.clone()).await.ok(),
            false => None,
        };
        let holder = detail.and_then(|detail| detail.holders.into_iter().find(|holder| holder.token == slot));
        let before = holder.map(|holder| match holder.job() {
            Some(job) => format!("{} slots of job {job}, on {}", holder.slots, holder.worker),
            None => format!("{} slots of {}", holder.slots, holder.worker),
        });
        self.store.release_slot(group.clone(), slot).await?;
        self.did("release slot", format!("{group} {}", slot.0), before, None).await;
        Ok(())
    }

    /// Cancels jobs.
    pub async fn cancel(&self, jobs: Vec<JobId>) -> Result<Vec<Result<JobState>>> {
        let on = named(&jobs);
        let states = self.store.cancel(jobs).await?;
        self.changed("cancel", on, &states).await;
        Ok(states)
    }

    /// Reopens ended jobs.
    pub async fn retry(&self, jobs: Vec<JobId>) -> Result<Vec<Result<JobState>>> {
        let on = named(&jobs);
        let states = self.store.retry(jobs).await?;
        self.changed("retry", on, &states).await;
        Ok(states)
    }

    /// Cancels or retries the jobs that match a filter: one deed for each call that changed some.
    pub async fn change_matching(
        &self,
        change: Change,
        filter: JobFilter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Changed> {
        let on = format!("jobs that match {}", serde_json::to_string(&filter).unwrap_or_default());
        let changed = self.store.change_matching(change, filter, after, limit).await?;
        if changed.jobs > 0 {
            let what = match change {
                Change::Cancel => "cancel",
                Change::Retry => "retry",
            };
            self.did(what, on, None, Some(format!("{} jobs", changed.jobs))).await;
        }
        Ok(changed)
    }

    /// Retries or skips the step that halts a workflow, or cancels the workflow.
    pub async fn steer_workflow(&self, workflow: Name, steer: Steer) -> Result<()> {
        self.store.steer_workflow(workflow.clone(), steer).await?;
        let (what, after) = match steer {
            Steer::Retry(step) => ("retry step", Some(step)),
            Steer::Skip(step) => ("skip step", Some(step)),
            Steer::Cancel => ("cancel workflow", None),
        };
        self.did(what, workflow.to_string(), None, after.map(|step| format!("step {step}"))).await;
        Ok(())
    }

    /// Enables or disables a schedule.
    pub async fn enable_schedule(&self, schedule: Name, enabled: bool) -> Result<()> {
        let word = |enabled| String::from(if enabled { "enabled" } else { "disabled" });
        let all = match self.is_recorded {
            true => self.store.schedules().await.unwrap_or_default(),
            false => Vec::new(),
        };
        let before = all.iter().find(|status| status.schedule == schedule).map(|status| word(status.enabled));
        self.store.enable_schedule(schedule.clone(), enabled).await?;
        let what = if enabled { "enable schedule" } else { "disable schedule" };
        self.did(what, schedule.to_string(), before, Some(word(enabled))).await;
        Ok(())
    }

    /// Submits a schedule's job now.
    pub async fn trigger_schedule(&self, schedule: Name, job: JobId) -> Result<Submitted> {
        let submitted = self.store.trigger_schedule(schedule.clone(), job).await?;
        self.did("trigger schedule", schedule.to_string(), None, Some(format!("job {job}"))).await;
        Ok(submitted)
    }

    /// Replaces an app's configuration. A push that changes nothing is no deed: every worker pushes when it starts.
    pub async fn configure(&self, configuration: Configuration) -> Result<Pushed> {
        let app = configuration.app.to_string();
        let pushed = self.store.configure(configuration).await?;
        if !pushed.is_empty() {
            let shown =
                pushed.changes.iter().take(CHANGES).map(|change| format!("{} {change}", change.verb()));
            let mut after = shown.collect::<Vec<_>>().join("; ");
            if pushed.changes.len() > CHANGES {
                after += &format!("; and {} more", pushed.changes.len() - CHANGES);
            }
            self.did("configure", format!("app {app}"), None, Some(after)).await;
        }
        Ok(pushed)
    }

    /// The operator's limit of a group as it is, if it has one.
    async fn limit(&self, group: &GroupRef) -> Option<String> {
        if !self.is_recorded {
            return None;
        }
        let detail = self.store.group(group.clone()).await.ok()?;
        detail.status.sources.operator.map(|limit| limit.to_string())
    }

    /// Records a change of jobs, if any has changed.
    async fn changed(&self, what: &str, on: String, states: &[Result<JobState>]) {
        let done = states.iter().flatten().count();
        if done > 0 {
            let refused = states.len() - done;
            let refused = if refused > 0 { format!(", {refused} refused") } else { String::new() };
            let state = match states {
                [Ok(state)] => format!("{state:?}").to_lowercase(),
                _ => format!("{done} jobs{refused}"),
            };
            self.did(what, on, None, Some(state)).await;
        }
    }

    async fn did(&self, what: &str, on: String, before: Option<String>, after: Option<String>) {
        if !self.is_recorded {
            return;
        }
        let deed = Deed {
            before: before.map(AuditText::from),
            after: after.map(AuditText::from),
            ..Deed::new(self.by.clone(), what, on)
        };
        if let Err(error) = self.store.record(deed.clone()).await {
            (self.missed)(&deed, &error);
        }
    }
}

/// Jobs, for the audit log: the first few of many.
fn named(jobs: &[JobId]) -> String {
    const FEW: usize = 5;
    let shown: Vec<String> = jobs.iter().take(FEW).map(ToString::to_string).collect();
    let more = jobs.len().saturating_sub(FEW);
    let and = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("job {}{and}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryStore, NewJob};
    use futures::executor::block_on;
    use uuid::Uuid;

    fn name(text: &str) -> Name {
        Name::parse("name", text).expect("a name")
    }

    fn missed(deed: &Deed, error: &Error) {
        panic!("{deed:?}: {error}");
    }

    /// The audit log, the oldest first: what, on, before, after.
    async fn told(store: &MemoryStore) -> Vec<(String, String, Option<String>, Option<String>)> {
        let entries = Store::audit(store, None, 100).await.expect("the log");
        let text = |text: Option<AuditText>| text.map(String::from);
        let told = |deed: Deed| (deed.what.into(), deed.on.into(), text(deed.before), text(deed.after));
        entries.into_iter().rev().map(|entry| told(entry.deed)).collect()
    }

    #[test]
    fn what_an_operator_does_is_recorded_with_the_value_before() {
        block_on(async {
            let store = MemoryStore::new();
            let operator = Operator::new(&store, "ada".into(), missed);
            let api = GroupRef::Group(name("api"));
            operator.set_limit(api.clone(), 3).await.expect("set");
            operator.set_limit(api.clone(), 5).await.expect("set");
            operator.unset_limit(api.clone()).await.expect("unset");
            operator.unset_limit(api).await.expect_err("there is none: no deed");
            operator.pause_queue(name("mail"), true).await.expect("paused");
            let job = JobId(Uuid::from_u128(0x0198_c0de_0000_7000_8000_0000_0000_0001));
            store.submit(vec![NewJob::new(job, name("send"))]).await.expect("stored");
            operator.cancel(vec![job]).await.expect("cancelled");
            let filter = JobFilter { task: Some(name("send")), ..JobFilter::default() };
            operator.change_matching(Change::Retry, filter.clone(), None, 10).await.expect("retried");
            operator.change_matching(Change::Retry, filter, None, 10).await.expect("no job: no deed");
            let mut configuration = Configuration::default();
            configuration.limits.insert(GroupRef::Cluster, 7);
            operator.configure(configuration.clone()).await.expect("pushed");
            operator.configure(configuration).await.expect("nothing new: no deed");
            let told = told(&store).await;
            let row = |what: &str, on: &str, before: Option<&str>, after: Option<&str>| {
                (what.to_owned(), on.to_owned(), before.map(str::to_owned), after.map(str::to_owned))
            };
            assert_eq!(told.len(), 7, "{told:?}");
            assert_eq!(told[0], row("set limit", "api", None, Some("3")));
            assert_eq!(told[1], row("set limit", "api", Some("3"), Some("5")));
            assert_eq!(told[2], row("unset limit", "api", Some("5"), None));
            assert_eq!(told[3], row("pause queue", "mail", Some("open"), Some("paused")));
            assert_eq!(told[4], row("cancel", &format!("job {job}"), None, Some("cancelled")));
            assert_eq!((told[5].0.as_str(), told[5].3.as_deref()), ("retry", Some("1 jobs")));
            assert_eq!(told[6].0, "configure");
            assert!(told[6].3.as_deref().is_some_and(|after| after.contains("cluster")), "{told:?}");
        });
    }

    #[test]
    fn many_jobs_are_named_in_few_words() {
        let jobs: Vec<JobId> = (0..9).map(|n| JobId(Uuid::from_u128(n))).collect();
        assert!(named(&jobs).ends_with(" and 4 more"), "{}", named(&jobs));
    }
}
