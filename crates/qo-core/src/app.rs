//! Apps: services that share a namespace. Each app pushes its own configuration and registrations. A push replaces what
//! that app pushed before, and nothing of other apps.
//!
//! Apps stand in the order of their newest push that changed something. Where two of them name the same limit,
//! priority, schedule or retention, the later app's value counts. When that app no longer names it, the other app's
//! value counts again. A push that repeats what its app said before changes nothing, not even the order, so workers
//! that restart one after another do not flap.

use crate::{Configuration, Name, TaskOptions, Time, caps};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The app of a configuration that names none: `default`.
pub fn default_app() -> Name {
    // `default` keeps the rule for names, so this never fails.
    Name::parse("app", "default").unwrap_or_else(|_| unreachable!("`default` is a name"))
}

/// What a push may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// A limit of the configuration file. Its name is the group.
    Limit,
    /// The priority of a queue.
    QueuePriority,
    /// A schedule.
    Schedule,
    /// How long jobs that ended in one way are remembered, in milliseconds.
    Retention,
    /// A task that code registered.
    Task,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Limit => "limit",
            Self::QueuePriority => "queue priority",
            Self::Schedule => "schedule",
            Self::Retention => "retention",
            Self::Task => "task",
        })
    }
}

/// One setting that a push changed.
///
/// `old` and `new` may be the same text: the text of a schedule shows its expression, time zone and task, and another
/// option may have changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingChange {
    /// The kind of setting.
    pub setting: Setting,
    /// Its name: a group, queue, schedule or task, or how jobs ended.
    pub name: String,
    /// The value before. None if the push added it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    /// The value now. None if the push removed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
}

impl SettingChange {
    /// `added`, `changed` or `removed`.
    pub fn verb(&self) -> &'static str {
        match (&self.old, &self.new) {
            (None, _) => "added",
            (_, None) => "removed",
            _ => "changed",
        }
    }
}

/// As in `limit api: 3 -> 5`.
impl fmt::Display for SettingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: ", self.setting, self.name)?;
        match (&self.old, &self.new) {
            (Some(old), Some(new)) if old != new => write!(f, "{old} -> {new}"),
            (Some(_), Some(new)) => write!(f, "{new}, with other options"),
            (Some(text), None) | (None, Some(text)) => f.write_str(text),
            (None, None) => Ok(()),
        }
    }
}

/// What a push changed of its app's settings, by setting and name. Empty if it repeated them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pushed {
    /// Every change.
    pub changes: Vec<SettingChange>,
}

impl Pushed {
    /// What was added, by name.
    pub fn added(&self) -> impl Iterator<Item = &SettingChange> {
        self.changes.iter().filter(|change| change.old.is_none())
    }

    /// What was changed, by name.
    pub fn changed(&self) -> impl Iterator<Item = &SettingChange> {
        self.changes.iter().filter(|change| change.old.is_some() && change.new.is_some())
    }

    /// What was removed, by name.
    pub fn removed(&self) -> impl Iterator<Item = &SettingChange> {
        self.changes.iter().filter(|change| change.new.is_none())
    }

    /// Whether the push changed nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// A push that changed something, as it is remembered. A store remembers the last [`PUSHES`](caps::PUSHES).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Push {
    /// Store time.
    pub at: Time,
    /// The app that pushed.
    pub app: Name,
    /// What it changed: the first [`PUSH_CHANGES`](caps::PUSH_CHANGES).
    pub changes: Vec<SettingChange>,
    /// Changes that are not listed.
    #[serde(default)]
    pub unlisted: u64,
}

impl Push {
    /// A push, with as many changes as are remembered.
    pub fn new(at: Time, app: Name, mut changes: Vec<SettingChange>) -> Self {
        let unlisted = changes.len().saturating_sub(caps::PUSH_CHANGES) as u64;
        changes.truncate(caps::PUSH_CHANGES);
        Self { at, app, changes, unlisted }
    }
}

/// The text of a value, and the schedule itself where the text leaves something out.
type Said<'a> = (String, Option<&'a crate::Schedule>);

fn said(configuration: &Configuration) -> BTreeMap<(Setting, String), Said<'_>> {
    let limits = configuration.limits.iter();
    let limits =
        limits.map(|(group, limit)| ((Setting::Limit, group.to_string()), (limit.to_string(), None)));
    let priorities = configuration.queue_priorities.iter();
    let priorities = priorities
        .map(|(queue, priority)| ((Setting::QueuePriority, queue.to_string()), (priority.to_string(), None)));
    let schedules = configuration.schedules.iter().map(|(name, schedule)| {
        let text = format!("{} {} {}", schedule.cron, schedule.timezone, schedule.task);
        let text = text.chars().take(caps::PUSH_TEXT_CHARS).collect();
        ((Setting::Schedule, name.to_string()), (text, Some(schedule)))
    });
    let retention = configuration
        .retention
        .named()
        .map(|(state, ms)| ((Setting::Retention, state.to_owned()), (ms.to_string(), None)));
    limits.chain(priorities).chain(schedules).chain(retention).collect()
}

/// What a configuration changes of the settings of its app, by setting and name.
pub fn changes(old: Option<&Configuration>, new: &Configuration) -> Vec<SettingChange> {
    let (mut old, new) = (old.map(said).unwrap_or_default(), said(new));
    let mut changes = Vec::new();
    for (at, said) in new {
        let before = old.remove(&at);
        if before.as_ref() != Some(&said) {
            changes.push((at, before.map(|(text, _)| text), Some(said.0)));
        }
    }
    changes.extend(old.into_iter().map(|(at, (text, _))| (at, Some(text), None)));
    changes.sort_by(|(a, ..), (b, ..)| a.cmp(b));
    let change = |((setting, name), old, new)| SettingChange { setting, name, old, new };
    changes.into_iter().map(change).collect()
}

/// What a registration changes of what its app registered for the task. None if it is the same.
pub fn task_change(old: Option<&TaskOptions>, new: &TaskOptions) -> Option<SettingChange> {
    (old != Some(new)).then(|| SettingChange {
        setting: Setting::Task,
        name: new.task.to_string(),
        old: old.map(task_text),
        new: Some(task_text(new)),
    })
}

fn task_text(task: &TaskOptions) -> String {
    let mut text = format!("group={}", task.group());
    let mut add =
        |part: Option<String>| text.extend(part.into_iter().flat_map(|part| [" ".to_owned(), part]));
    add(task.max_concurrent.map(|limit| format!("max_concurrent={limit}")));
    add(task.timeout_ms.map(|ms| format!("timeout_ms={ms}")));
    add(task.retry.map(|retry| {
        let crate::RetryPolicy { base_ms, factor_percent, max_ms, jitter_percent } = retry;
        format!("retry={base_ms}/{factor_percent}/{max_ms}/{jitter_percent}")
    }));
    text
}

/// Apps in the order of their newest push.
pub(crate) trait Apps {
    /// The value of the newest app that names it.
    fn newest<T>(&self, find: impl Fn(&Configuration) -> Option<T>) -> Option<T>;
}

impl Apps for [Arc<Configuration>] {
    fn newest<T>(&self, find: impl Fn(&Configuration) -> Option<T>) -> Option<T> {
        self.iter().rev().find_map(|app| find(app))
    }
}
