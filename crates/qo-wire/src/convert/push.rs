//! Configurations, registrations, and what pushes of them changed.

use super::{all, enumeration, messages, name, name_if, slots, slots_by_group, text, value};
use crate::pb;
use qo_core::{Configuration, Error, PartialRetention, Push, Pushed, Result, RetryPolicy, Schedule, Setting};
use qo_core::{SettingChange, TaskOptions, Time, default_app};

enumeration!(Setting, pb::Setting, "setting", { Limit, QueuePriority, Schedule, Retention, Task });

impl From<TaskOptions> for pb::TaskOptions {
    fn from(task: TaskOptions) -> Self {
        let TaskOptions { task, app, group, max_concurrent, timeout_ms, retry } = task;
        Self {
            task: text(task),
            app: Some(text(app)),
            group: group.map(text),
            max_concurrent,
            timeout_ms,
            retry: retry.map(pb::RetryPolicy::from),
        }
    }
}

impl TryFrom<pb::TaskOptions> for TaskOptions {
    type Error = Error;

    fn try_from(options: pb::TaskOptions) -> Result<Self> {
        let pb::TaskOptions { task, app, group, max_concurrent, timeout_ms, retry } = options;
        Ok(Self {
            task: name("task", &task)?,
            app: name_if("app", app)?.unwrap_or_else(default_app),
            group: name_if("group", group)?,
            max_concurrent,
            timeout_ms,
            retry: retry.map(RetryPolicy::from),
        })
    }
}

impl From<Vec<TaskOptions>> for pb::RegisterRequest {
    fn from(tasks: Vec<TaskOptions>) -> Self {
        Self { tasks: messages(tasks) }
    }
}

impl TryFrom<pb::RegisterRequest> for Vec<TaskOptions> {
    type Error = Error;

    fn try_from(request: pb::RegisterRequest) -> Result<Self> {
        all(request.tasks, "tasks")
    }
}

impl From<Configuration> for pb::Configuration {
    fn from(configuration: Configuration) -> Self {
        let Configuration { app, limits, queue_priorities, schedules, retention } = configuration;
        Self {
            app: Some(text(app)),
            limits: slots(&limits),
            queue_priorities: queue_priorities.into_iter().map(|(queue, most)| (text(queue), most)).collect(),
            schedules: schedules.into_iter().map(|(name, spec)| (text(name), spec.into())).collect(),
            retention: Some(retention.into()),
        }
    }
}

impl TryFrom<pb::Configuration> for Configuration {
    type Error = Error;

    fn try_from(configuration: pb::Configuration) -> Result<Self> {
        let pb::Configuration { app, limits, queue_priorities, schedules, retention } = configuration;
        let priority = |(queue, priority): (String, u32)| Ok((name("queue_priorities", &queue)?, priority));
        let schedule = |(schedule, spec): (String, pb::Schedule)| {
            let spec =
                Schedule::try_from(spec).map_err(|error| error.at(format_args!("schedules[{schedule}]")));
            Ok((name("schedules", &schedule)?, spec?))
        };
        Ok(Self {
            app: name_if("app", app)?.unwrap_or_else(default_app),
            limits: slots_by_group("limits", limits)?,
            queue_priorities: queue_priorities.into_iter().map(priority).collect::<Result<_>>()?,
            schedules: schedules.into_iter().map(schedule).collect::<Result<_>>()?,
            retention: retention.map(PartialRetention::from).unwrap_or_default(),
        })
    }
}

impl From<PartialRetention> for pb::Retention {
    fn from(retention: PartialRetention) -> Self {
        let PartialRetention { succeeded_ms, failed_ms, cancelled_ms, expired_ms } = retention;
        Self { succeeded_ms, failed_ms, cancelled_ms, expired_ms }
    }
}

impl From<pb::Retention> for PartialRetention {
    fn from(retention: pb::Retention) -> Self {
        let pb::Retention { succeeded_ms, failed_ms, cancelled_ms, expired_ms } = retention;
        Self { succeeded_ms, failed_ms, cancelled_ms, expired_ms }
    }
}

impl From<SettingChange> for pb::SettingChange {
    fn from(change: SettingChange) -> Self {
        let SettingChange { setting, name, old, new } = change;
        Self { setting: pb::Setting::from(setting).into(), name, old, new }
    }
}

impl TryFrom<pb::SettingChange> for SettingChange {
    type Error = Error;

    fn try_from(change: pb::SettingChange) -> Result<Self> {
        let pb::SettingChange { setting, name, old, new } = change;
        Ok(Self { setting: value::<pb::Setting, _>("setting", setting)?, name, old, new })
    }
}

impl From<Pushed> for pb::Pushed {
    fn from(pushed: Pushed) -> Self {
        let Pushed { changes } = pushed;
        Self { changes: messages(changes) }
    }
}

impl TryFrom<pb::Pushed> for Pushed {
    type Error = Error;

    fn try_from(pushed: pb::Pushed) -> Result<Self> {
        Ok(Self { changes: all(pushed.changes, "changes")? })
    }
}

impl From<Push> for pb::Push {
    fn from(push: Push) -> Self {
        let Push { at, app, changes, unlisted } = push;
        Self { at_ms: at.as_millis(), app: text(app), changes: messages(changes), unlisted }
    }
}

impl TryFrom<pb::Push> for Push {
    type Error = Error;

    fn try_from(push: pb::Push) -> Result<Self> {
        let pb::Push { at_ms, app, changes, unlisted } = push;
        let changes = all(changes, "changes")?;
        Ok(Self { at: Time::from_millis(at_ms), app: name("app", &app)?, changes, unlisted })
    }
}
