//! Workers and what they run.

use crate::fixture::{Here, millis, until};

#[test]
fn a_worker_runs_the_programs_of_the_file_wherever_it_is_started() {
    let here = Here::new();
    here.write(
        ".qo.toml",
        "[tasks.where]\ncommand = [\"./where.sh\"]\nmax_concurrent = 2\n[concurrency.limits]\napi = 3\n\
         [queues.fast]\npriority = 1\n[schedules.nightly]\ncron = \"0 3 * * *\"\ntask = \"where\"\npayload = {n = 1}\n",
    );
    here.script("where.sh", "cat > /dev/null; pwd");
    std::fs::create_dir(here.path("below")).expect("made");
    let mut child =
        here.command(&["worker", "--name", "w1"]).current_dir(here.path("below")).spawn().expect("qo starts");
    let output = here.qo(&["submit", "where", "--wait"]).line();
    assert!(
        output.trim_matches('"').ends_with(here.path("").display().to_string().trim_end_matches('/')),
        "{output}"
    );
    let limits = here.qo(&["concurrency", "status", "--json"]).json();
    let limit = |group: &str| {
        let found = limits.as_array().expect("an array").iter().find(|status| status["group"] == group);
        found.map(|status| (status["limit"].clone(), status["source"].clone()))
    };
    assert_eq!(limit("api"), Some((3.into(), "config".into())));
    assert_eq!(limit("where"), Some((2.into(), "config".into())), "max_concurrent of the file");
    let schedules = here.qo(&["schedules", "--json"]).json();
    assert_eq!(
        (&schedules[0]["schedule"], &schedules[0]["spec"]["payload"]["n"]),
        (&"nightly".into(), &1.into())
    );
    let id = here.qo(&["schedules", "trigger", "nightly"]).line();
    until("the triggered job has ended", || {
        here.qo(&["jobs", "show", &id, "--json"]).json()["state"] == "succeeded"
    });
    crate::fixture::signal(child.id(), "TERM");
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "a drained worker ends well");
}

#[test]
fn a_worker_without_tasks_says_how_to_name_one() {
    let here = Here::new();
    here.qo(&["worker", "--task", "a=true", "--task", "a=false"]).code(2).says("is given twice");
    here.qo(&["worker"]).code(2).says("no task that a program runs").says("--task NAME=COMMAND");
    here.qo(&["worker", "--task", "resize"]).code(2).says("NAME=COMMAND");
    here.qo(&["worker", "--task", "a b=true"]).code(2).says("must match");
}

#[test]
fn workers_and_their_logs_can_be_seen() {
    let here = Here::new();
    let worker =
        here.worker(&["--task", "talk=echo heard $QO_TASK $QO_KEY >&2; exit 75", "--queues", "default,fast"]);
    here.qo(&["workers"]).ok().shows("w1").shows("default,fast").shows("talk");
    let id = here.qo(&["submit", "talk", "--key", "ann", "--max-attempts", "1"]).line();
    until("the job has failed", || here.qo(&["jobs", "show", &id, "--json"]).json()["state"] == "failed");
    here.qo(&["jobs", "logs", &id]).ok().shows("heard talk ann\n");
    let logs = here.qo(&["jobs", "logs", &id, "--json"]).json();
    assert_eq!((&logs[0]["attempt"], &logs[0]["log"]), (&1.into(), &"heard talk ann\n".into()));
    here.qo(&["jobs", "logs", &id, "--attempt", "9"]).code(3);
    here.qo(&["jobs", "show", &id]).ok().shows("failed").shows("ATTEMPT");
    here.qo(&["explain", &id]).ok().shows("It failed at").shows("qo jobs retry");
    worker.signal("TERM");
    assert_eq!(worker.wait(), 0);
    here.qo(&["workers"]).ok().says("no worker is alive").says("qo worker --task");
    assert_eq!(here.qo(&["workers", "--json"]).json(), serde_json::json!([]));
}

#[test]
fn a_worker_that_was_killed_is_not_shown_as_alive() {
    let here = Here::new();
    let worker = here.worker(&["--task", "a=true", "--default-lease-duration-secs", "1"]);
    worker.signal("KILL");
    worker.wait();
    until("its lease is over", || here.qo(&["workers", "--json"]).json() == serde_json::json!([]));
    here.qo(&["workers"]).ok().says("no worker is alive");
    here.qo(&["submit", "b"]).ok();
    here.qo(&["doctor"]).ok().shows("the lease of w1 is over").shows("none is alive");
}

#[test]
fn the_doctor_shows_what_a_sweep_would_end_and_ends_nothing() {
    let here = Here::new();
    let lease = ["--default-lease-duration-secs", "1"];
    let worker = here.worker(&[&["--task", "long=exec sleep 600"][..], &lease].concat());
    here.qo(&["concurrency", "set", "long", "--limit", "1"]).ok();
    here.qo(&["concurrency", "set", "cluster", "--limit", "5"]).ok();
    let job = here.qo(&["submit", "long"]).line();
    let state = || here.qo(&["jobs", "show", &job, "--json"]).json()["state"].clone();
    until("it runs", || state() == "running");
    worker.signal("KILL");
    worker.wait();
    let swept = || {
        let findings = here.qo(&["doctor", "--json"]).json();
        let findings = findings.as_array().expect("an array").iter();
        findings
            .map(|finding| finding["would_sweep"].clone())
            .filter(|over| !over.is_null())
            .collect::<Vec<_>>()
    };
    until("its lease is over", || !swept().is_empty());
    let first = swept();
    assert_eq!(first.len(), 1, "{first:?}");
    let session = &first[0]["session"];
    assert_eq!(session["worker"], "w1", "{session}");
    assert_eq!(
        (&session["running"], &session["claimed"], &session["slots"]),
        (&1.into(), &0.into(), &2.into())
    );
    assert!(millis(&session["expired_at"]) > 0, "{session}");
    let shown = here.qo(&["doctor"]).ok().shows("the lease of w1 is over, it ended");
    shown.shows("it holds 1 job and 2 slots").shows("any running worker ends it");
    assert_eq!((state(), swept()), ("pending".into(), first), "it has not been swept");
    let _next = here.worker(&["--task", "other=true", "--name", "w2"]);
    until("it is swept", || swept().is_empty() && state() == "pending");
}

#[test]
fn a_running_job_holds_its_slot_and_an_operator_can_take_it_away() {
    let here = Here::new();
    let _worker = here.worker(&["--task", "long=exec sleep 600"]);
    here.qo(&["concurrency", "set", "long", "--limit", "1"]).ok();
    let first = here.qo(&["submit", "long", "--max-attempts", "1"]).line();
    let state = |id: &str| here.qo(&["jobs", "show", id, "--json"]).json()["state"].clone();
    until("the first runs", || state(&first) == "running");
    let second = here.qo(&["submit", "long"]).line();
    let why = here.qo(&["explain", &second]).ok();
    let why = why.shows("Group long is full: its slot is taken").shows(&first).shows("number 1 in line");
    assert!(why.out.contains("qo concurrency set long --limit N"), "{}", why.out);
    assert_eq!(here.qo(&["explain", &second, "--json"]).json()["reasons"][0]["reason"], "group_full");
    here.qo(&["explain", &first]).ok().shows("It runs on w1");

    let status = here.qo(&["concurrency", "status", "long", "--json"]).json();
    let slot = status["holders"][0]["token"].to_string();
    here.qo(&["concurrency", "status", "long"]).ok().shows("SLOT_ID").shows(&slot).shows(&first);
    here.qo(&["concurrency", "release", "long", &slot]).code(2).says("--force");
    here.qo(&["concurrency", "release", "long", &slot, "--force"]).ok();
    here.qo(&["concurrency", "release", "long", &slot, "--force"]).code(3).says("error: not found:");
    until("the second runs", || state(&second) == "running");
    assert_eq!(state(&first), "failed");
    here.qo(&["jobs", "cancel", &second]).ok().shows("asked to stop");
    until("the second is cancelled", || state(&second) == "cancelled");
}

#[test]
fn a_program_of_a_shell_line_has_time_to_tidy_up_before_it_stops() {
    let here = Here::new();
    here.script(
        "tidy.sh",
        "trap 'touch told; until [ -e go ]; do sleep 0.1; done; touch tidied; exit 0' TERM\n\
         touch started; while :; do sleep 0.1; done",
    );
    let _worker = here.worker(&["--task", "tidy=./tidy.sh", "--cancel-grace-ms", "60000"]);
    let id = here.qo(&["submit", "tidy"]).line();
    until("it runs", || here.path("started").exists());
    here.qo(&["jobs", "cancel", &id]).ok();
    until("it is told", || here.path("told").exists());
    here.write("go", "");
    until("it has ended", || here.jobs()[0]["state"] != "running");
    assert!(here.path("tidied").exists(), "it was killed before it was done");
    assert_eq!(here.jobs()[0]["state"], "cancelled", "a program that exits with 0 when told to stop");
}

/// Many programs exit with 0 after SIGTERM. That is no success.
#[test]
fn a_program_that_was_cut_short_has_not_succeeded_whatever_its_exit_code() {
    let here = Here::new();
    here.write(
        ".qo.toml",
        "[tasks.polite]\ncommand = \"trap 'exit 0' TERM; sleep 60 & wait\"\ntimeout_secs = 1\n",
    );
    let _worker = here.worker(&[]);
    let waited = here.qo(&["submit", "polite", "--max-attempts", "1", "--wait"]);
    assert_eq!(waited.code, 1, "{}", waited.err);
    assert!(waited.err.contains("timed out after 1s"), "{}", waited.err);
}

/// The lease of a killed worker is not ended while no other worker runs: `explain` says what to do.
#[test]
fn a_job_whose_worker_is_gone_is_explained() {
    let here = Here::new();
    let worker = here.worker(&["--task", "nap=sleep 60", "--default-lease-duration-secs", "1"]);
    let id = here.qo(&["submit", "nap"]).line().to_owned();
    until("it runs", || here.qo(&["jobs", "list", "--json"]).out.contains("running"));
    worker.signal("KILL");
    until("its lease is over", || here.qo(&["explain", &id]).out.contains("No live worker has task nap"));
    here.qo(&["explain", &id]).ok().shows("is pending").shows("start one: qo worker --task nap=COMMAND");
}
