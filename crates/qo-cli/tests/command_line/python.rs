//! Workers of Python apps, as the program `qo` sees them: it has no Python.

use crate::fixture::Here;

#[test]
fn the_program_refuses_a_python_app_and_says_what_has_it() {
    let here = Here::new();
    let refused = here.qo(&["worker", "shop.jobs:app", "--processes=8"]).code(2);
    refused.says("MODULE:OBJECT: \"shop.jobs:app\": needs the Python package").says("pip install qo-queue");
    // It is refused before the settings are read.
    here.write(".qo.toml", "= nonsense").qo(&["worker", "shop.jobs:app"]).code(2).says("pip install");
    assert!(!here.path(".qo").exists());
}

#[test]
fn what_cannot_be_an_app_is_a_usage_error() {
    let here = Here::new();
    here.qo(&["worker", "shop"])
        .code(2)
        .says("'[MODULE:OBJECT]': must be MODULE:OBJECT, as in shop.jobs:app");
    here.qo(&["worker", "shop/jobs.py:app"]).code(2).says("not a file");
    here.qo(&["worker", "shop.jobs:app", "other:app"]).code(2).says("unexpected argument 'other:app'");
    let swallowed = here.qo(&["worker", "--processes", "shop.jobs:app"]).code(2);
    swallowed.says("must be a number; name the app first: qo worker shop.jobs:app --processes");
    let told = here.qo(&["worker", "shop", "--json"]).code(2);
    let told: serde_json::Value = serde_json::from_str(&told.err).expect("one line of JSON");
    assert_eq!(told["error"]["kind"], "invalid", "{told}");
}

#[test]
fn flags_for_python_apps_need_an_app() {
    let here = Here::new();
    let task = ["worker", "--task", "a=true"];
    for flags in
        [&["--reload"][..], &["--processes=2", "--recycle-jobs=9"], &["--processes=2", "--recycle-mib=9"]]
    {
        here.qo(&[&task, flags].concat()).code(2).says("<MODULE:OBJECT>");
    }
    for flag in ["--recycle-jobs", "--recycle-mib"] {
        here.qo(&["worker", "shop.jobs:app", flag, "9"]).code(2).says("--processes");
        for count in ["0", "-1", "x"] {
            here.qo(&["worker", "shop.jobs:app", "--processes", flag, count]).code(2).says(flag);
        }
    }
    assert!(!here.path(".qo").exists());
}

#[test]
fn processes_takes_a_number_or_means_the_number_of_cpus() {
    let here = Here::new();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    for (form, expected) in
        [(&["--processes"][..], cpus), (&["--processes=3"], 3), (&["--processes", "5"], 5)]
    {
        let worker = here.worker(&[&["--task", "a=true"], form].concat());
        let workers = here.qo(&["workers", "--json"]).json();
        assert_eq!(workers[0]["permits"], expected, "{form:?}: {workers}");
        worker.signal("TERM");
        assert_eq!(worker.wait(), 0);
    }
    here.qo(&["worker", "--task", "a=true", "--processes="]).code(2).says("--processes: \"\": must be");
}
