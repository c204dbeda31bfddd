use super::*;
use qo_core::{Missed, RetryPolicy};
use std::fs;
use std::time::Duration;
use tempfile::TempDir;

/// The file of the contract, and a little more.
const WHOLE: &str = r#"
store = "file:.qo"
app = "shop"
[concurrency]
default_lease_duration_secs = 30
cluster_wide_cap = 15
[concurrency.limits]
call_external_api = 10
"process_user/*" = 1
[queues.stripe]
priority = 1
max_concurrency = 3
[tasks.resize]
command = ["./resize.sh", "--fast"]
max_concurrent = 4
timeout_secs = 60
group = "images"
retry = { base_ms = 100, max_ms = 500 }
[tasks.report]
command = "report | mail"
[schedules.nightly]
cron = "0 3 * * *"
timezone = "Europe/Berlin"
task = "report"
payload = { kind = "daily", pages = [1, 2] }
missed = "skip"
[schedules.off]
cron = "@daily"
task = "report"
enabled = false
[worker]
max_concurrent_tasks = 20
queues = ["stripe", "default"]
[retention]
failed = "14d"
succeeded = "90m"
"#;

fn places(directory: &TempDir, environment: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Places {
    Places {
        directory: directory.path().to_owned(),
        file: None,
        environment: environment.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
        flags: flags.iter().map(|&(flag, value)| (flag, value.to_owned())).collect(),
    }
}

fn load(text: &str, environment: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Result<Settings> {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join(FILE), text).expect("written");
    Settings::load(places(&directory, environment, flags))
}

fn mistakes(text: &str) -> String {
    load(text, &[], &[]).expect_err("mistakes").to_string()
}

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

#[test]
fn a_whole_file_becomes_configuration_tasks_and_worker() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join(FILE), WHOLE).expect("written");
    let below = directory.path().join("a/b");
    fs::create_dir_all(&below).expect("made");
    let settings =
        Settings::load(Places { directory: below, ..places(&directory, &[], &[]) }).expect("settings");

    let home = directory.path().display().to_string();
    assert_eq!(settings.store, format!("file:{home}/.qo"), "beside the file, wherever one stands");
    let limit = |group: &str| settings.configuration.limits.get(&group.parse::<GroupRef>().expect("a group"));
    assert_eq!(limit("cluster"), Some(&15));
    assert_eq!(limit("queue:stripe"), Some(&3));
    assert_eq!(limit("call_external_api"), Some(&10));
    assert_eq!(limit("process_user/*"), Some(&1));
    assert_eq!(settings.configuration.queue_priorities.get(&name("stripe")), Some(&1));

    let resize = &settings.tasks[&name("resize")];
    let command = resize.command.as_ref().expect("a command");
    assert_eq!(command.arguments, [format!("{home}/./resize.sh"), "--fast".into()]);
    assert_eq!(command.directory, directory.path());
    assert_eq!((resize.options.max_concurrent, resize.options.timeout_ms), (None, Some(60_000)));
    assert_eq!(limit("images"), Some(&4), "max_concurrent is a limit that the file sets");
    assert_eq!((&settings.app, &settings.configuration.app), (&name("shop"), &name("shop")));
    assert_eq!(settings.worker.app(), name("shop"));
    let retry = RetryPolicy { base_ms: 100, max_ms: 500, ..RetryPolicy::default() };
    assert_eq!((resize.options.group.clone(), resize.options.retry), (Some(name("images")), Some(retry)));
    let line = settings.tasks[&name("report")].command.as_ref().expect("a command");
    assert_eq!(line.arguments, ["sh", "-c", &format!("{}report | mail", crate::guard::LINE)]);

    assert_eq!(settings.configuration.schedules.len(), 1, "one that is switched off is not pushed");
    let nightly = &settings.configuration.schedules[&name("nightly")];
    assert_eq!((nightly.timezone.as_str(), nightly.missed), ("Europe/Berlin", Missed::Skip));
    assert_eq!(nightly.payload.as_str(), r#"{"kind":"daily","pages":[1,2]}"#);
    let retention = settings.configuration.retention;
    assert_eq!((retention.succeeded_ms, retention.cancelled_ms), (Some(5_400_000), None));
    assert_eq!(settings.worker.queues, [name("stripe"), name("default")]);
    assert_eq!(
        (settings.worker.max_concurrent_tasks, settings.worker.lease),
        (Some(20), Duration::from_secs(30))
    );
}

#[test]
fn without_a_file_everything_is_at_its_default() {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = Settings::load(places(&directory, &[], &[])).expect("settings");
    assert_eq!(settings.store, format!("file:{}/.qo", directory.path().display()));
    assert_eq!((settings.worker.max_concurrent_tasks, settings.worker.claim.claim_batch_size), (None, 50));
    assert_eq!(settings.configuration, Configuration::default());
    assert!(settings.shown.iter().all(|shown| shown.source == Source::Default), "{:?}", settings.shown);
}

#[test]
fn the_environment_beats_the_file_and_flags_beat_both() {
    let text = "store = \"file:a\"\n[worker]\nmax_concurrent_tasks = 1\nclaim_batch_size = 2";
    let tasks = |environment: &[(&str, &str)], flags: &[(&'static str, &str)]| {
        let settings = load(text, environment, flags).expect("settings");
        let shown = settings.shown.iter().find(|shown| shown.setting == "worker.max_concurrent_tasks");
        (settings.worker.max_concurrent_tasks.unwrap_or(0), shown.expect("shown").source.to_string())
    };
    let (bare, ours) = (("MAX_CONCURRENT_TASKS", "3"), ("QO_MAX_CONCURRENT_TASKS", "4"));
    assert_eq!(tasks(&[], &[]), (1, ".qo.toml:3".into()));
    assert_eq!(tasks(&[bare], &[]), (3, "MAX_CONCURRENT_TASKS".into()));
    assert_eq!(tasks(&[bare, ours], &[]), (4, "QO_MAX_CONCURRENT_TASKS".into()));
    let flag = ("--max-concurrent-tasks", "5");
    assert_eq!(tasks(&[bare, ours], &[flag]), (5, "--max-concurrent-tasks".into()));
    assert_eq!(tasks(&[("QO_MAX_CONCURRENT_TASKS", "")], &[]).0, 1, "an empty variable is none");
}

#[test]
fn a_typed_store_is_relative_to_the_current_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join(FILE), "store = \"file:in-file\"").expect("written");
    let below = directory.path().join("below");
    fs::create_dir(&below).expect("made");
    let store = |environment: &[(&str, &str)]| {
        let places = Places { directory: below.clone(), ..places(&directory, environment, &[]) };
        Settings::load(places).expect("settings").store
    };
    assert_eq!(store(&[]), format!("file:{}/in-file", directory.path().display()));
    assert_eq!(store(&[("QO_STORE", "file:here")]), format!("file:{}/here", below.display()));
    assert_eq!(store(&[("QO_STORE", "file:///there")]), "file:/there");
    assert_eq!(store(&[("QO_STORE", "memory:")]), "memory:");
}

#[test]
fn every_mistake_is_listed_with_its_place_value_and_rule() {
    let text = r#"
stroe = "file:.qo"
[concurrency]
cluster_wide_cap = -1
[concurrency.limits]
"a b" = 1
api = "ten"
[queues.stripe]
priority = 0
[tasks.resize]
comand = ["x"]
timeout_secs = "long"
[schedules.nightly]
cron = "every day"
task = "report"
[schedules.empty]
[worker]
claim_batch_size = 0
[retention]
failed = 14
"#;
    let error = mistakes(text);
    for part in [
        "mistakes in the settings",
        ".qo.toml:2: stroe: \"stroe\": is not a setting; did you mean store?",
        ".qo.toml:4: concurrency.cluster_wide_cap: \"-1\": must be a whole number from 0 to 1000000",
        ".qo.toml:6: concurrency.limits.\"a b\": \"a b\": must match",
        ".qo.toml:7: concurrency.limits.api: \"ten\": must be a whole number",
        ".qo.toml:9: queues.stripe.priority: \"0\": must be a whole number from 1 to 1000",
        ".qo.toml:11: tasks.resize.comand: \"comand\": is not a setting; did you mean command?",
        ".qo.toml:12: tasks.resize.timeout_secs: \"long\": must be a number of seconds",
        ".qo.toml:14: schedules.nightly.cron: \"every day\": must be a cron expression",
        "schedules.empty.cron: \"\": must be given",
        "schedules.empty.task: \"\": must be given",
        ".qo.toml:18: worker.claim_batch_size: \"0\": must be a whole number from 1 to 10000",
        ".qo.toml:20: retention.failed: \"14\": must be a length of time in quotes",
    ] {
        assert!(error.contains(part), "{part}\n--- is not in ---\n{error}");
    }
}

#[test]
fn a_mistake_in_the_environment_or_a_flag_names_it() {
    let error = load("", &[("PREFETCH_BUFFER", "many")], &[("--queues", "a b")]).expect_err("mistakes");
    let error = error.to_string();
    assert!(error.contains("PREFETCH_BUFFER: \"many\": must be a whole number"), "{error}");
    assert!(error.contains("--queues: \"a b\": must match"), "{error}");
}

#[test]
fn settings_that_contradict_one_another_are_refused() {
    let error = mistakes("[concurrency]\ncluster_wide_cap = 5\n[worker]\nprefetch_buffer = 2");
    assert!(error.contains("cluster_wide_cap") && error.contains("needs claim_lease_ms"), "{error}");
    let error = mistakes("[concurrency.limits]\n\"queue:a\" = 1\n[queues.a]\nmax_concurrency = 2");
    assert!(error.contains("given twice"), "{error}");
}

#[test]
fn a_file_that_is_no_toml_says_where() {
    let error = mistakes("store = \"file:.qo\"\n[worker\nx = 1");
    assert!(error.contains(".qo.toml:2:"), "{error}");
    let error = load("store = \"a\"\n", &[], &[]).expect("any URL is read").store;
    assert_eq!(error, "a");
}

#[test]
fn a_directory_in_the_place_of_the_file_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::create_dir(directory.path().join(FILE)).expect("made");
    let error = Settings::load(places(&directory, &[], &[])).expect_err("no file");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("must be a file"), "{error}");
    let missing = Places { file: Some("nowhere.toml".into()), ..places(&directory, &[], &[]) };
    assert_eq!(Settings::load(missing).expect_err("no file").kind(), ErrorKind::NotFound);
}

#[test]
fn a_misspelled_variable_is_pointed_out() {
    let settings = load("", &[("QO_STOER", "file:x"), ("QO_JOB_ID", "1"), ("QO_SOMETHING_ELSE", "1")], &[]);
    let warnings = settings.expect("settings").warnings;
    assert_eq!(warnings, ["QO_STOER is not a setting and was ignored; did you mean QO_STORE?"]);
}

#[test]
fn a_password_is_not_shown() {
    assert_eq!(without_password("postgres://ann:secret@db/qo"), "postgres://ann:***@db/qo");
    for url in ["postgres://ann:se@cret@db/qo?schema=a", "postgres://ann:se?cret@db/qo?schema=a"] {
        assert_eq!(without_password(url), "postgres://ann:***@db/qo?schema=a");
    }
    assert_eq!(
        without_password("postgres:///qo?user=ann&password=secret&schema=a"),
        "postgres:///qo?user=ann&password=***&schema=a"
    );
    for url in ["file:/a@b", "file:///a:b@c", "postgres://ann@db:5432/qo?application_name=a@b", "memory:"] {
        assert_eq!(without_password(url), url);
    }
}

#[test]
fn mistakes_are_listed_in_the_order_of_their_lines() {
    let text = r#"
[worker]
claim_batch_size = 0
[schedules.b]
cron = "61 * * * *"
timezone = "Mars/Base"
priority = "high"
[schedules.a]
cron = "0 0 30 2 *"
timezone = "Berlin"
[retention]
failed = 14
[tasks.t]
retry = { base_ms = 9, max_ms = 1 }
[concurrency.limits]
api = -1
"#;
    let error = load(text, &[("QO_PREFETCH_BUFFER", "many")], &[]).expect_err("mistakes").to_string();
    let places: Vec<&str> =
        error.lines().skip(1).map(|line| line.split(": \"").next().unwrap_or(line).trim()).collect();
    assert_eq!(
        places,
        [
            ".qo.toml:3: worker.claim_batch_size",
            ".qo.toml:4: schedules.b.task",
            ".qo.toml:5: schedules.b.cron",
            ".qo.toml:6: schedules.b.timezone",
            ".qo.toml:7: schedules.b.priority",
            ".qo.toml:8: schedules.a.task",
            ".qo.toml:9: schedules.a.cron",
            ".qo.toml:10: schedules.a.timezone",
            ".qo.toml:12: retention.failed",
            ".qo.toml:14: tasks.t.retry.max_ms",
            ".qo.toml:16: concurrency.limits.api",
            "QO_PREFETCH_BUFFER",
        ]
    );
}

#[test]
fn the_app_comes_from_the_file_the_environment_or_a_flag() {
    let app = |text: &str, environment: &[(&str, &str)], flags: &[(&'static str, &str)]| {
        let settings = load(text, environment, flags).expect("settings");
        assert_eq!(settings.configuration.app, settings.app);
        settings.app.to_string()
    };
    let file = "app = \"shop\"";
    assert_eq!(app("", &[], &[]), "default");
    assert_eq!(app(file, &[], &[]), "shop");
    assert_eq!(app(file, &[("QO_APP", "billing")], &[]), "billing");
    assert_eq!(app(file, &[("QO_APP", "billing")], &[("--app", "mail")]), "mail");
    let error = mistakes("app = \"a b\"");
    assert!(error.contains(".qo.toml:1: app: \"a b\": must match"), "{error}");
    let directory = tempfile::tempdir().expect("a directory");
    let settings = Settings::load(places(&directory, &[("QO_APP", "shop")], &[])).expect("settings");
    assert_eq!(settings.worker.configuration, None, "an app without a file clears nothing");
}

#[test]
fn a_limit_that_a_task_and_the_limits_give_differently_is_refused() {
    let text = "[concurrency.limits]\nresize = 3\n[tasks.resize]\nmax_concurrent = 4";
    assert!(mistakes(text).contains(".qo.toml:4: tasks.resize.max_concurrent: \"4\": is given twice"));
    let two = "[tasks.a]\ngroup = \"g\"\nmax_concurrent = 4\n[tasks.b]\ngroup = \"g\"\nmax_concurrent = 4";
    let settings = load(two, &[], &[]).expect("the same value twice is no contradiction");
    assert_eq!(settings.configuration.limits.len(), 1);
    assert!(mistakes(&two.replacen('4', "5", 1)).contains("another task of group g"));
}
