//! Configurations as they are stored. A value that cannot be read must not keep every worker of the namespace from
//! starting: it is left out and reported, and all else is read.

use qo_core::{Configuration, ScheduleStatus, Time};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The parts of a configuration, each a map.
const PARTS: [&str; 4] = ["limits", "queue_priorities", "schedules", "retention"];

/// Configurations, as far as they can be read, and what of them cannot be.
pub(crate) fn configurations(said: &[Value]) -> (Vec<Configuration>, Vec<String>) {
    let mut unreadable = Vec::new();
    let read = said.iter().filter_map(|said| match Configuration::deserialize(said) {
        Ok(configuration) => Some(configuration),
        Err(_) => readable(said, &mut unreadable),
    });
    (read.collect(), unreadable)
}

fn readable(said: &Value, unreadable: &mut Vec<String>) -> Option<Configuration> {
    let app = &said["app"];
    let mut mended = json!({ "app": app });
    for part in PARTS {
        let mut kept = Map::new();
        for (name, value) in said[part].as_object().into_iter().flatten() {
            let alone = json!({ part: { name: value } });
            match Configuration::deserialize(alone) {
                Ok(_) => drop(kept.insert(name.clone(), value.clone())),
                Err(error) => unreadable.push(format!("app {app}: {part}: {name:?}: {error}")),
            }
        }
        mended[part] = Value::Object(kept);
    }
    Configuration::deserialize(mended)
        .inspect_err(|error| unreadable.push(format!("app {app}: {error}")))
        .ok()
}

/// Schedules that no worker of this release can fire, and why.
pub(crate) fn schedules_that_stop(rows: &[Value], now: Time) -> Vec<String> {
    let stops = |row: &Value| match ScheduleStatus::deserialize(row) {
        Err(error) => Some(error.to_string()),
        Ok(status) => status.spec.first_after(now).err().map(|error| error.to_string()),
    };
    let stopped = rows.iter().filter_map(|row| Some((row, stops(row)?)));
    stopped.map(|(row, why)| format!("schedule {}: {why}", row["schedule"])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_schedule_is_left_out_and_named_and_all_else_is_read() {
        let fine = json!({"cron": "0 3 * * *", "timezone": "UTC", "task": "t"});
        let mut bad = fine.clone();
        bad["missed"] = "wat".into();
        let said = [
            json!({"app": "shop", "limits": {"api": 3}, "schedules": {"good": fine, "evil": bad}}),
            json!({"app": "bad app!", "limits": {}}),
            json!({"app": "mail", "limits": {"smtp": 1}}),
        ];
        let (read, unreadable) = configurations(&said);
        let apps: Vec<&str> = read.iter().map(|read| &*read.app).collect();
        assert_eq!(apps, ["shop", "mail"]);
        assert_eq!((read[0].limits.len(), read[0].schedules.len()), (1, 1));
        assert_eq!(unreadable.len(), 2, "{unreadable:?}");
        assert!(unreadable[0].contains("\"shop\": schedules: \"evil\""), "{unreadable:?}");
    }

    #[test]
    fn a_schedule_that_cannot_fire_is_named() {
        let row = |spec: Value| json!({"schedule": "s", "spec": spec, "enabled": true, "next": 1, "last": null, "last_job": null});
        let rows = [
            row(json!({"cron": "0 3 * * *", "timezone": "UTC", "task": "t"})),
            row(json!({"cron": "wat", "timezone": "UTC", "task": "t"})),
            row(json!({"cron": "0 3 * * *", "timezone": "Mars/Olympus", "task": "t"})),
            row(json!(7)),
        ];
        assert_eq!(schedules_that_stop(&rows[..1], Time::from_millis(0)), Vec::<String>::new());
        assert_eq!(schedules_that_stop(&rows, Time::from_millis(0)).len(), 3);
    }
}
