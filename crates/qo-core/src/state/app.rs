//! What apps configured and registered, and what their last pushes changed.

use super::State;
use super::journal::Undo;
use crate::app::Apps;
use crate::{Configuration, Name, PartialRetention, Push, SettingChange, TaskOptions, caps, default_app};
use std::sync::Arc;

impl State {
    /// The configuration of an app, if it is not empty.
    pub(crate) fn configuration(&self, app: &Name) -> Option<&Configuration> {
        self.apps.iter().find(|said| said.app == *app).map(|said| &**said)
    }

    /// The configuration of each app. Where two name the same setting, the later one counts.
    pub fn configurations(&self) -> Vec<Configuration> {
        self.apps.iter().map(|said| Configuration::clone(said)).collect()
    }

    /// The last pushes that changed something, newest first.
    pub fn pushes(&self) -> Vec<Push> {
        self.pushes.iter().rev().map(|push| Push::clone(push)).collect()
    }

    /// The apps after a push: the pushing app is the newest, or is gone if its configuration is empty.
    pub(crate) fn apps_with(&self, new: &Arc<Configuration>) -> Vec<Arc<Configuration>> {
        let others = self.apps.iter().filter(|said| said.app != new.app).cloned();
        others.chain((!new.is_empty()).then(|| Arc::clone(new))).collect()
    }

    pub(crate) fn set_apps(&mut self, apps: Vec<Arc<Configuration>>) {
        let old = std::mem::replace(&mut self.apps, apps);
        self.note(|| Undo::Apps(old));
    }

    /// Gives everything that is configured to the app `default`. For a state from a snapshot that was written before
    /// there were apps.
    pub(super) fn adopt_configuration(&mut self) {
        let app = default_app();
        let configured =
            self.limits.iter().filter_map(|(group, limits)| Some((group.clone(), limits.config?)));
        let queues = self.queues.iter().filter_map(|(_, queue)| Some((queue.name.clone(), queue.priority?)));
        let said = Configuration {
            app: app.clone(),
            limits: configured.collect(),
            queue_priorities: queues.collect(),
            schedules: self.schedules.iter().map(|(name, row)| (name.clone(), row.spec.clone())).collect(),
            retention: self.retention.beyond_default(),
        };
        for group in said.limits.keys() {
            self.change_limits(group, |limits| limits.config_app = Some(app.clone()));
        }
        self.set_apps(self.apps_with(&Arc::new(said)));
    }

    /// Sets the retention from the configurations of the apps, each of its four parts on its own.
    pub(crate) fn count_retention(&mut self) {
        let apps = &self.apps;
        let retention = PartialRetention {
            succeeded_ms: apps.newest(|app| app.retention.succeeded_ms),
            failed_ms: apps.newest(|app| app.retention.failed_ms),
            cancelled_ms: apps.newest(|app| app.retention.cancelled_ms),
            expired_ms: apps.newest(|app| app.retention.expired_ms),
        };
        let retention = retention.or_default();
        if self.retention != retention {
            self.set_retention(retention);
        }
    }

    /// What apps registered for a task, newest last.
    pub(crate) fn registrations(&self, task: &Name) -> &[Arc<TaskOptions>] {
        self.task_by_name.get(task).map_or(&[], |&ix| &self.tasks[ix].registered)
    }

    /// What an app registered for a task.
    pub(crate) fn registered_by(&self, app: &Name, task: &Name) -> Option<&TaskOptions> {
        self.registrations(task).iter().find(|options| options.app == *app).map(|options| &**options)
    }

    /// Remembers a push that changed something. Pushes of one app at one moment count as one, because a registration is
    /// one event per task.
    pub(crate) fn remember_push(&mut self, app: &Name, changes: Vec<SettingChange>) {
        if changes.is_empty() {
            return;
        }
        let old = self.is_speculating().then(|| self.pushes.clone());
        let last = self.pushes.back().filter(|last| last.at == self.now && last.app == *app).cloned();
        let push = match last {
            Some(last) => {
                self.pushes.pop_back();
                let unlisted = last.unlisted;
                let changes = last.changes.iter().cloned().chain(changes).collect();
                let push = Push::new(self.now, app.clone(), changes);
                Push { unlisted: push.unlisted + unlisted, ..push }
            }
            None => Push::new(self.now, app.clone(), changes),
        };
        self.pushes.push_back(Arc::new(push));
        while self.pushes.len() > caps::PUSHES {
            self.pushes.pop_front();
        }
        if let Some(old) = old {
            self.note(|| Undo::Pushes(old));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, Event, GroupRef, Schedule, SnapshotRow, Time, decide};
    use serde_json::{Value, json};

    fn name(text: &str) -> Name {
        Name::parse("name", text).expect("a name")
    }

    fn command(state: &mut State, command: Command) -> crate::Result<crate::Answer> {
        let now = Time::from_millis(state.now().as_millis().max(0) + 1);
        decide(state, now, &command).map(|decision| decision.answer)
    }

    fn limited(app: &str, group: &str) -> Configuration {
        let group = group.parse::<GroupRef>().expect("a group");
        Configuration { limits: [(group, 3)].into(), ..Configuration::of(name(app)) }
    }

    /// A row as a release without apps wrote it. None if it wrote no such row.
    fn before_apps(row: &SnapshotRow) -> Option<SnapshotRow> {
        let mut row = serde_json::to_value(row).expect("JSON");
        if row.get("app").or(row.get("push")).is_some() {
            return None;
        }
        if let Some(limits) = row.pointer_mut("/limits/limits").and_then(Value::as_object_mut) {
            limits.remove("config_app");
            let code = limits["code"].as_array().expect("an array");
            limits["code"] = code.iter().map(|code| json!([code["task"], code["limit"]])).collect();
        }
        row.pointer_mut("/task").and_then(Value::as_object_mut).map(|task| task.remove("app"));
        Some(serde_json::from_value(row).expect("it can be read"))
    }

    #[test]
    fn a_snapshot_of_before_there_were_apps_belongs_to_the_default_one() {
        let mut state = State::new();
        let said = Configuration {
            queue_priorities: [(name("q"), 7)].into(),
            schedules: [(name("nightly"), Schedule::new("0 3 * * *", name("report")))].into(),
            retention: PartialRetention { failed_ms: Some(5), ..PartialRetention::default() },
            ..limited("default", "api")
        };
        command(&mut state, Command::Configure(said.clone())).expect("pushed");
        let task = TaskOptions { max_concurrent: Some(2), ..TaskOptions::new(name("resize")) };
        command(&mut state, Command::Register(vec![task.clone()])).expect("registered");
        let rows: Vec<_> = state.snapshot().filter_map(|row| before_apps(&row)).collect();
        let mut restored = State::restore(rows).expect("it is restored");
        assert_eq!(restored.audit(), Vec::<String>::new());
        assert_eq!(restored.configurations(), std::slice::from_ref(&said));
        assert_eq!(restored.registered_by(&default_app(), &name("resize")), Some(&task));
        // Its workers restart with the same file, and another service starts.
        for push in [said.clone(), limited("shop", "mail")] {
            command(&mut restored, Command::Configure(push)).expect("pushed");
        }
        assert_eq!(restored.configurations(), [said, limited("shop", "mail")]);
        assert_eq!(restored.audit(), Vec::<String>::new());
    }

    #[test]
    fn records_of_before_there_were_apps_are_of_the_default_one() {
        let text = r#"{"configured": {"limits": {"api": 3}, "retention": {"succeeded_ms": 1, "failed_ms": 2,
            "cancelled_ms": 3, "expired_ms": 4}}}"#;
        let configured: Event = serde_json::from_str(text).expect("an event");
        let text =
            r#"{"registered": {"task": "t", "group": null, "limit": 2, "timeout_ms": null, "retry": null}}"#;
        let registered: Event = serde_json::from_str(text).expect("an event");
        let mut state = State::new();
        state.evolve(&Event::Ticked(Time::from_millis(1)));
        for event in [configured, registered] {
            state.evolve(&event);
        }
        assert_eq!(state.configurations()[0].app, default_app());
        assert_eq!((state.retention().failed_ms, state.audit()), (2, Vec::new()));
        assert!(state.registered_by(&default_app(), &name("t")).is_some());
    }

    #[test]
    fn a_namespace_keeps_a_bounded_number_of_apps() {
        let mut state = State::new();
        for n in 0..caps::APPS {
            command(&mut state, Command::Configure(limited(&format!("app{n}"), "api")))
                .expect("there is room");
        }
        let error = command(&mut state, Command::Configure(limited("more", "api"))).expect_err("no room");
        assert!(error.message().starts_with("app: \"more\": must be one of at most 1000"), "{error}");
        command(&mut state, Command::Configure(limited("app7", "mail"))).expect("it is known");
        command(&mut state, Command::Configure(Configuration::of(name("app7"))))
            .expect("it says nothing any more");
        command(&mut state, Command::Configure(limited("more", "api"))).expect("there is room again");
        assert_eq!(state.pushes().len(), caps::PUSHES);
        assert_eq!(state.audit(), Vec::<String>::new());
    }

    #[test]
    fn a_push_of_the_same_again_decides_no_event() {
        let mut state = State::new();
        let task = TaskOptions { max_concurrent: Some(2), ..TaskOptions::new(name("resize")) };
        let pushes = [Command::Configure(limited("shop", "api")), Command::Register(vec![task])];
        for push in &pushes {
            command(&mut state, push.clone()).expect("pushed");
        }
        for push in &pushes {
            let decision = decide(&mut state, Time::from_millis(1_000), push).expect("pushed");
            assert_eq!(decision.events, [], "a worker that starts again must not cost a log a record");
        }
    }
}
