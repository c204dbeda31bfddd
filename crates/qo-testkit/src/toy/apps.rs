//! What apps push, which of it counts, and what is remembered of it. The values that count are computed anew each time,
//! from the first app to the last: a later one overwrites.

use super::state::Toy;
use super::{Flaw, at_most};
use qo_core::{CodeLimit, Configuration, Error, GroupRef, Name, Push, Pushed, Result, Retention};
use qo_core::{Setting, SettingChange, TaskOptions, caps};
use std::collections::BTreeMap;

/// By setting and name: everything that an app says, as views show it.
type Said = BTreeMap<(Setting, String), (String, String)>;

fn said(configuration: &Configuration) -> Said {
    let mut said = Said::new();
    let mut say = |setting, name: &dyn ToString, text: String, whole: String| {
        said.insert((setting, name.to_string()), (text, whole));
    };
    for (group, limit) in &configuration.limits {
        say(Setting::Limit, group, limit.to_string(), String::new());
    }
    for (queue, priority) in &configuration.queue_priorities {
        say(Setting::QueuePriority, queue, priority.to_string(), String::new());
    }
    for (name, schedule) in &configuration.schedules {
        let text = [&schedule.cron, &schedule.timezone, &*schedule.task].join(" ");
        let text = text.chars().take(caps::PUSH_TEXT_CHARS).collect();
        say(Setting::Schedule, name, text, format!("{schedule:?}"));
    }
    let retention = &configuration.retention;
    for (state, ms) in [
        ("succeeded", retention.succeeded_ms),
        ("failed", retention.failed_ms),
        ("cancelled", retention.cancelled_ms),
        ("expired", retention.expired_ms),
    ] {
        if let Some(ms) = ms {
            say(Setting::Retention, &state, ms.to_string(), String::new());
        }
    }
    said
}

fn difference(old: &Said, new: &Said) -> Vec<SettingChange> {
    let mut both: Vec<_> = old.keys().chain(new.keys()).collect();
    both.sort();
    both.dedup();
    both.retain(|at| old.get(*at) != new.get(*at));
    let text = |said: &Said, at: &(Setting, String)| said.get(at).map(|(text, _)| text.clone());
    let change = |at: &(Setting, String)| SettingChange {
        setting: at.0,
        name: at.1.clone(),
        old: text(old, at),
        new: text(new, at),
    };
    both.into_iter().map(change).collect()
}

fn registration(task: &TaskOptions) -> String {
    let mut parts = vec![format!("group={}", task.group.as_ref().unwrap_or(&task.task))];
    parts.extend(task.max_concurrent.map(|limit| format!("max_concurrent={limit}")));
    parts.extend(task.timeout_ms.map(|ms| format!("timeout_ms={ms}")));
    parts.extend(
        task.retry
            .map(|r| format!("retry={}/{}/{}/{}", r.base_ms, r.factor_percent, r.max_ms, r.jitter_percent)),
    );
    parts.join(" ")
}

fn too_many(app: &Name) -> Error {
    Error::invalid("app", app, "there are too many")
}

impl Toy {
    pub fn register(&mut self, tasks: Vec<TaskOptions>) -> Result<Pushed> {
        at_most("tasks", tasks.len(), caps::SERVED)?;
        for (index, task) in tasks.iter().enumerate() {
            task.check().map_err(|e| e.at_item("tasks", index))?;
            let of_task = self.registrations.iter().filter(|other| other.task == task.task);
            let others = of_task.filter(|other| other.app != task.app).count();
            if others >= caps::APPS {
                return Err(too_many(&task.app).at_item("tasks", index));
            }
        }
        let mut changes = Vec::new();
        for task in tasks {
            let mine = |other: &TaskOptions| other.task == task.task && other.app == task.app;
            let before = self.registrations.iter().find(|other| mine(other)).cloned();
            if before.as_ref() == Some(&task) {
                continue;
            }
            let change = SettingChange {
                setting: Setting::Task,
                name: task.task.to_string(),
                old: before.as_ref().map(registration),
                new: Some(registration(&task)),
            };
            self.remember(&task.app, vec![change.clone()]);
            changes.push(change);
            self.registrations.retain(|other| !mine(other));
            self.tasks.insert(task.task.clone(), task.clone());
            self.registrations.push(task);
            self.limit_as_registered();
        }
        Ok(Pushed { changes })
    }

    /// The limits of code, from what is registered.
    fn limit_as_registered(&mut self) {
        self.limits.values_mut().for_each(|limits| limits.code.clear());
        for task in &self.registrations {
            if let Some(limit) = task.max_concurrent {
                let code = CodeLimit { task: task.task.clone(), limit, app: task.app.clone() };
                self.limits.entry(GroupRef::Group(task.group().clone())).or_default().code.push(code);
            }
        }
        self.drop_empty_limits();
    }

    pub fn configure(&mut self, mut configuration: Configuration) -> Result<Pushed> {
        configuration.check()?;
        let app = configuration.app.clone();
        let before = self.apps.iter().find(|said| said.app == app).cloned();
        if before.is_none() && self.apps.len() >= caps::APPS && !configuration.is_empty() {
            return Err(too_many(&app));
        }
        if let (Flaw::ConfigurationMerges, Some(before)) = (self.flaw, &before) {
            let mut merged = before.limits.clone();
            merged.append(&mut configuration.limits);
            configuration.limits = merged;
        }
        let changes = difference(&before.as_ref().map(said).unwrap_or_default(), &said(&configuration));
        if !changes.is_empty() {
            self.remember(&app, changes.clone());
            self.apps.retain(|said| said.app != app && self.flaw != Flaw::PushReplacesAllApps);
            if !configuration.is_empty() {
                self.apps.push(configuration);
            }
        }
        self.count_what_apps_say();
        Ok(Pushed { changes })
    }

    fn count_what_apps_say(&mut self) {
        for limits in self.limits.values_mut() {
            (limits.config, limits.config_app) = (None, None);
        }
        self.queue_priorities.clear();
        self.retention = Retention::default();
        let mut schedules = BTreeMap::new();
        for said in self.apps.clone() {
            for (group, limit) in said.limits {
                let limits = self.limits.entry(group).or_default();
                (limits.config, limits.config_app) = (Some(limit), Some(said.app.clone()));
            }
            self.queue_priorities.extend(said.queue_priorities);
            schedules.extend(said.schedules);
            let (all, says) = (&mut self.retention, said.retention);
            all.succeeded_ms = says.succeeded_ms.unwrap_or(all.succeeded_ms);
            all.failed_ms = says.failed_ms.unwrap_or(all.failed_ms);
            all.cancelled_ms = says.cancelled_ms.unwrap_or(all.cancelled_ms);
            all.expired_ms = says.expired_ms.unwrap_or(all.expired_ms);
        }
        self.set_schedules(schedules);
        self.drop_empty_limits();
    }

    /// What an app changes at one moment, with no push of another app between, is one push.
    fn remember(&mut self, app: &Name, changes: Vec<SettingChange>) {
        let now = self.now;
        let last = self.pushes.last().filter(|last| last.at == now && last.app == *app);
        if last.is_none() {
            self.pushes.push(Push { at: now, app: app.clone(), changes: Vec::new(), unlisted: 0 });
        }
        if self.pushes.len() > caps::PUSHES {
            self.pushes.remove(0);
        }
        let Some(push) = self.pushes.last_mut() else { return };
        for change in changes {
            if push.changes.len() < caps::PUSH_CHANGES {
                push.changes.push(change);
            } else {
                push.unlisted += 1;
            }
        }
    }
}
