//! Limits: how many slots a group has, which source sets a limit, and which limit counts.

use crate::retention::PartialRetention;
use crate::{Error, GroupRef, Name, Result, RetryPolicy, Schedule, app::default_app, caps, job::within};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The source of a limit. The order is the precedence: the first source that set a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitSource {
    /// An operator: `qo concurrency set`, the dashboard.
    Operator,
    /// A configuration file that a worker, a server or `qo config apply` pushed.
    Config,
    /// The code that registered a task.
    Code,
    /// A submitted job: the submit-side limit. It only fills a gap: any limit of another source, exact or `*`, comes
    /// first.
    Submit,
}

/// The limits of one group reference, by source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct Limits {
    /// Set by an operator.
    pub operator: Option<u32>,
    /// From the configuration of the newest app that names the group.
    pub config: Option<u32>,
    /// That app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_app: Option<Name>,
    /// From registered tasks, newest registration last. Each task of each app counts on its own: an app that registers
    /// a task again without a limit clears that limit, not the limit of another task or app.
    pub code: Vec<CodeLimit>,
    /// The submit-side limit: from the newest submitted job that carried one.
    pub submit: Option<u32>,
}

/// The limit that a registered task gives its group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(not(feature = "testkit"), non_exhaustive)]
pub struct CodeLimit {
    /// The task.
    pub task: Name,
    /// The limit.
    pub limit: u32,
    /// The app that registered it.
    #[serde(default = "default_app")]
    pub app: Name,
}

impl Limits {
    /// The limit of the highest source except `Submit`, which [`in_force`] adds.
    pub fn declared(&self) -> Option<(u32, LimitSource)> {
        let code = self.code.last().map(|code| code.limit);
        let by = |limit: Option<u32>, source| limit.map(|limit| (limit, source));
        by(self.operator, LimitSource::Operator)
            .or(by(self.config, LimitSource::Config))
            .or(by(code, LimitSource::Code))
    }

    /// Whether no source set a limit.
    pub fn is_empty(&self) -> bool {
        self.declared().is_none() && self.submit.is_none()
    }
}

/// The effective limit of a group, and its source.
///
/// The pattern decides first (exact, else `every_key`), then the source. The submit-side limit counts only where no
/// other source set one.
pub fn in_force(exact: Option<&Limits>, every_key: Option<&Limits>) -> Option<(u32, LimitSource)> {
    let submit = || exact.and_then(|limits| limits.submit).map(|limit| (limit, LimitSource::Submit));
    exact.and_then(Limits::declared).or_else(|| every_key.and_then(Limits::declared)).or_else(submit)
}

/// A configuration file, as a worker or server pushes it.
///
/// It replaces the last configuration of its app as a whole: settings that it does not name are cleared. The
/// configurations of other apps stay; see [`app`](crate::app).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// The app that it belongs to. Defaults to `default`.
    #[serde(default = "default_app")]
    pub app: Name,
    /// Limits by group: `cluster_wide_cap`, `max_concurrency` of a queue, `[concurrency.limits]`.
    #[serde(default)]
    pub limits: BTreeMap<GroupRef, u32>,
    /// Priorities by queue. Defaults to [`DEFAULT_QUEUE_PRIORITY`] for a queue that is not named.
    #[serde(default)]
    pub queue_priorities: BTreeMap<Name, u32>,
    /// Schedules by name. A schedule whose cron expression and time zone stay the same keeps its next tick.
    #[serde(default)]
    pub schedules: BTreeMap<Name, Schedule>,
    /// How long ended jobs are remembered.
    #[serde(default)]
    pub retention: PartialRetention,
}

impl Default for Configuration {
    fn default() -> Self {
        Self::of(default_app())
    }
}

/// The priority of a queue that no app configured. Lower goes first.
pub const DEFAULT_QUEUE_PRIORITY: u32 = 100;

impl Configuration {
    /// An empty configuration of an app.
    pub fn of(app: Name) -> Self {
        Self {
            app,
            limits: BTreeMap::new(),
            queue_priorities: BTreeMap::new(),
            schedules: BTreeMap::new(),
            retention: PartialRetention::default(),
        }
    }

    /// Whether it sets nothing, as if the app had never pushed one.
    pub fn is_empty(&self) -> bool {
        let Self { app: _, limits, queue_priorities, schedules, retention } = self;
        limits.is_empty()
            && queue_priorities.is_empty()
            && schedules.is_empty()
            && *retention == PartialRetention::default()
    }

    /// Checks every rule that needs no state, and lists every mistake. A store calls it before anything else.
    pub fn check(&self) -> Result<()> {
        Error::all(self.mistakes())
    }

    pub(crate) fn mistakes(&self) -> Vec<Error> {
        let most = caps::CONFIGURED as u64;
        let mut mistakes = Vec::new();
        mistakes.extend(within("limits", self.limits.len() as u64, 0, most).err());
        mistakes.extend(within("queue_priorities", self.queue_priorities.len() as u64, 0, most).err());
        mistakes.extend(within("schedules", self.schedules.len() as u64, 0, most).err());
        if !mistakes.is_empty() {
            // One such mistake says enough; listing every entry would flood the message.
            return mistakes;
        }
        let payloads: usize = self.schedules.values().map(|schedule| schedule.payload.as_str().len()).sum();
        if payloads > caps::SUBMIT_BYTES {
            let rule = format_args!("must carry at most {} bytes of payload together", caps::SUBMIT_BYTES);
            return vec![Error::invalid("schedules", payloads, rule)];
        }
        let retention = self.retention.check().err().map(|error| error.at("retention"));
        let limits = self.limits.iter().filter_map(|(group, &limit)| {
            within(format_args!("limits[{group}]"), limit.into(), 0, caps::LIMIT.into()).err()
        });
        let priorities = self.queue_priorities.iter().filter_map(|(queue, &priority)| {
            let most = caps::QUEUE_PRIORITY.into();
            within(format_args!("queue_priorities[{queue}]"), priority.into(), 1, most).err()
        });
        let schedules = self.schedules.iter().filter_map(|(name, schedule)| {
            schedule.check().err().map(|error| error.at(format_args!("schedules[{name}]")))
        });
        let all = retention.into_iter().chain(limits).chain(priorities).chain(schedules);
        all.take(caps::MISTAKES).collect()
    }
}

/// A task as its code registers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOptions {
    /// The task.
    pub task: Name,
    /// The app whose code registers it. Defaults to `default`.
    #[serde(default = "default_app")]
    pub app: Name,
    /// The group of its jobs. Defaults to the task's name.
    pub group: Option<Name>,
    /// The limit of that group. None clears the limit that this app registered for this task before.
    #[serde(alias = "limit")] // As logs before the first release have it.
    pub max_concurrent: Option<u32>,
    /// How long an attempt may run. Defaults to no limit.
    pub timeout_ms: Option<u64>,
    /// Backoff between attempts. Defaults to [`RetryPolicy::default`].
    pub retry: Option<RetryPolicy>,
}

impl TaskOptions {
    /// A task with every option at its default.
    pub fn new(task: Name) -> Self {
        Self { task, app: default_app(), group: None, max_concurrent: None, timeout_ms: None, retry: None }
    }

    /// The group of the task's jobs.
    pub fn group(&self) -> &Name {
        self.group.as_ref().unwrap_or(&self.task)
    }

    /// Checks every rule that needs no state. A store calls it before anything else.
    pub fn check(&self) -> Result<()> {
        if let Some(limit) = self.max_concurrent {
            within("max_concurrent", limit.into(), 0, caps::LIMIT.into())?;
        }
        if let Some(timeout_ms) = self.timeout_ms {
            within("timeout_ms", timeout_ms, 1, caps::DURATION_MS)?;
        }
        self.retry.as_ref().map_or(Ok(()), |retry| retry.check().map_err(|e| e.at("retry")))
    }
}
