//! Submitting: one, many, from files and pipes.

use crate::fixture::{Here, millis, signal, until};
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

#[test]
fn a_submit_prints_the_id_and_the_job_is_there() {
    let here = Here::new();
    let id = here.qo(&["submit", "resize", r#"{"image": "cat.png"}"#, "--key", "user-7"]).line();
    let job = here.qo(&["jobs", "show", &id, "--json"]).json();
    assert_eq!(
        (&job["task"], &job["key"], &job["state"]),
        (&"resize".into(), &"user-7".into(), &"pending".into())
    );
    assert_eq!(job["payload"]["image"], "cat.png", "a payload is a value, not a text of JSON");
    here.qo(&["jobs", "show", &id]).ok().shows("resize/user-7").says("qo explain");
}

#[test]
fn every_option_of_a_job_arrives() {
    let here = Here::new();
    let arguments = [
        "submit",
        "pay",
        "{}",
        "--group",
        "bank",
        "--key",
        "ann",
        "--cost",
        "2",
        "--limits",
        "gpu=2,openai=1",
        "--queue",
        "stripe",
        "--priority",
        "-5",
        "--delay",
        "1h",
        "--good-until",
        "2h",
        "--timeout",
        "90s",
        "--max-attempts",
        "7",
        "--workflow",
        "order",
        "--on-failure",
        "continue",
        "--idempotency-key",
        "pay-7",
    ];
    let id = here.qo(&arguments).line();
    let job = here.qo(&["jobs", "show", &id, "--json"]).json();
    for (field, value) in [
        ("group", "bank".into()),
        ("key", "ann".into()),
        ("cost", 2.into()),
        ("queue", "stripe".into()),
        ("priority", (-5).into()),
        ("max_attempts", 7.into()),
        ("workflow", "order".into()),
        ("step", 1.into()),
        ("idempotency_key", "pay-7".into()),
        ("limits", serde_json::json!({"gpu": 2, "openai": 1})),
    ] {
        assert_eq!(job[field], value, "{field}");
    }
    let ms = |field: &str| millis(&job[field]);
    assert!((3_590_000..=3_610_000).contains(&(ms("run_at") - ms("submitted_at"))), "{job}");
    assert_eq!(ms("good_until") - ms("run_at"), 3_600_000);
}

#[test]
fn an_idempotency_key_finds_its_job_and_refuses_another_payload() {
    let here = Here::new();
    let first = here.qo(&["submit", "pay", "{\"n\": 1}", "--idempotency-key", "k"]).line();
    let again =
        here.qo(&["submit", "pay", "{\"n\": 1}", "--idempotency-key", "k"]).ok().says("submitted before");
    assert_eq!(again.out.trim(), first);
    here.qo(&["submit", "pay", "{\"n\": 2}", "--idempotency-key", "k"]).code(1).says("error: conflict:");
    assert_eq!(here.jobs().len(), 1);
}

#[test]
fn a_taken_group_rejects_skips_or_lets_wait() {
    let here = Here::new();
    here.qo(&["submit", "sync", "--limit", "1"]).ok();
    here.qo(&["submit", "sync", "--limit", "1", "--on-limit", "reject"])
        .code(4)
        .says("error: limit reached:");
    let skipped = here.qo(&["submit", "sync", "--limit", "1", "--on-limit", "skip"]).ok().says("skipped");
    assert_eq!(skipped.out, "");
    let skipped = here.qo(&["submit", "sync", "--limit", "1", "--on-limit", "skip", "--json"]).json();
    assert_eq!(skipped["outcome"], "skipped");
    here.qo(&["submit", "sync", "--limit", "1"]).ok();
    assert_eq!(here.jobs().len(), 2);
}

#[test]
fn a_payload_may_come_from_stdin() {
    let here = Here::new();
    let id = here.qo_with(&["submit", "mail", "-"], "{\"to\": \"ann\"}\n").line();
    assert_eq!(here.qo(&["jobs", "show", &id, "--json"]).json()["payload"]["to"], "ann");
    here.qo_with(&["submit", "mail", "-"], "{").code(2).says("payload");
}

#[test]
fn many_copies_go_in_batches() {
    let here = Here::new();
    here.qo(&["submit", "mail", "{}", "--count", "25000"]).ok().shows("25000 jobs submitted");
    here.qo(&["queues", "--json"]).ok();
    assert_eq!(here.qo(&["queues", "--json"]).json()[0]["due"], 25_000);
    here.qo(&["submit", "mail", "--count", "0"]).ok().shows("0 jobs submitted");
}

#[test]
fn a_file_with_large_payloads_is_cut_into_calls_that_fit() {
    let here = Here::new();
    let payload = "x".repeat(900_000);
    let lines: String =
        (0..12).map(|n| format!("{{\"task\": \"t{n}\", \"payload\": \"{payload}\"}}\n")).collect();
    here.write("jobs.ndjson", &lines);
    here.qo(&["submit", "--file", "jobs.ndjson"]).ok().shows("12 jobs submitted");
    assert_eq!(here.jobs().len(), 12);
}

#[test]
fn a_file_with_a_mistake_submits_nothing_and_names_every_line() {
    let here = Here::new();
    here.write(
        "jobs.ndjson",
        "{\"task\": \"a\"}\n\n{\"task\": \"a b\"}\n{\"task\": \"a\", \"cots\": 2}\nnonsense\n{\"payload\": 1}\n",
    );
    let ran = here.qo(&["submit", "--file", "jobs.ndjson"]).code(2);
    let ran = ran.says("line 3: task").says("line 4: cots").says("did you mean cost?").says("line 5: job");
    ran.says("line 6: task: \"\": must be given").says("nothing was submitted");
    assert!(!here.path(".qo").exists(), "not even a store was made");
}

#[test]
fn lines_take_what_the_command_line_says_where_they_say_nothing() {
    let here = Here::new();
    here.write("jobs.ndjson", "{\"payload\": 1}\n{\"task\": \"b\", \"queue\": \"fast\"}\n");
    let outcomes = here.qo(&["submit", "a", "--file", "jobs.ndjson", "--queue", "slow", "--json"]).json();
    assert_eq!(outcomes.as_array().map(Vec::len), Some(2));
    assert_eq!((&outcomes[1]["line"], &outcomes[1]["outcome"]), (&2.into(), &"accepted".into()));
    let jobs = here.jobs();
    assert_eq!((&jobs[0]["task"], &jobs[0]["queue"]), (&"a".into(), &"slow".into()));
    assert_eq!((&jobs[1]["task"], &jobs[1]["queue"]), (&"b".into(), &"fast".into()));
}

#[test]
fn a_pipe_is_submitted_as_it_comes_and_an_error_tells_what_was_kept() {
    let here = Here::new();
    let lines = "{\"task\": \"a\"}\n{\"task\": \"b\"}\n{\"task\": 7}\n{\"task\": \"c\"}\n";
    let ran = here.qo_with(&["submit", "--file", "-"], lines).code(2);
    ran.says("line 3: task").says("2 jobs were accepted before that");
    assert_eq!(here.jobs().len(), 2);

    // A job is submitted before the pipe ends and before a batch is full.
    let mut child =
        here.command(&["submit", "--file", "-"]).stdin(Stdio::piped()).spawn().expect("qo starts");
    let mut pipe = child.stdin.take().expect("a pipe");
    pipe.write_all(b"{\"task\": \"d\"}\n").expect("written");
    until("the job is there while the pipe is open", || here.jobs().len() == 3);
    signal(child.id(), "INT");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 job submitted; interrupted"), "{output:?}");
}

#[test]
fn refused_lines_are_named_and_the_rest_is_accepted() {
    let here = Here::new();
    let line = "{\"task\": \"sync\", \"limit\": 1, \"on_limit\": \"reject\"}\n";
    here.write("jobs.ndjson", &line.repeat(3));
    let ran = here.qo(&["submit", "--file", "jobs.ndjson"]).code(4);
    ran.says("line 2: ").says("line 3: ").shows("1 job submitted, 2 refused");
}

#[test]
fn waiting_prints_the_output_and_its_exit_code_tells_of_success() {
    let here = Here::new();
    here.script("double.sh", "read n; echo $((n * 2))");
    let _worker = here.worker(&["--task", "double=./double.sh", "--task", "fail=echo no >&2; exit 100"]);
    assert_eq!(here.qo(&["submit", "double", "21", "--wait"]).line(), "42");
    here.qo(&["submit", "fail", "--wait"]).code(1).says("failed: exit code 100: no");
    let detail = here.qo(&["submit", "double", "4", "--wait", "--json"]).json();
    assert_eq!((&detail["state"], &detail["output"]), (&"succeeded".into(), &8.into()));
    here.qo(&["submit", "double", "1", "--count", "5", "--wait"]).ok().says("5 succeeded");
}

#[test]
fn a_wait_for_a_task_that_no_worker_has_says_so_and_ends_with_ctrl_c() {
    let here = Here::new();
    let _worker = here.worker(&["--task", "double=cat"]);
    let mut child = here.command(&["submit", "dobule", "1", "--wait"]).spawn().expect("qo starts");
    let mut said = BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("did you mean double?")));
    signal(child.id(), "INT");
    assert!(said.any(|line| line.contains("goes on after this command")));
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    assert_eq!(here.jobs()[0]["state"], "pending", "the job stays");
}

/// Every way to submit must check the same rules.
#[test]
fn a_cost_above_the_limit_is_refused_however_it_is_submitted() {
    let here = Here::new();
    here.qo(&["concurrency", "set", "nap", "--limit", "1"]).ok();
    let refused = here.qo(&["submit", "nap", "--cost", "2"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("must be at most the limit of nap, 1"), "{}", refused.err);
    assert_eq!(here.jobs().len(), 0);
}

/// Where a record was lost nothing can be appended: a new record would contradict those after it, and no process would
/// read it.
#[test]
fn a_submit_into_a_log_with_a_gap_is_refused() {
    let here = Here::new();
    for _ in 0..6 {
        here.qo(&["submit", "hello"]).ok();
    }
    let third = here.path(".qo/log/00000000000000000003");
    std::fs::remove_file(&third).expect("it was there");
    let refused = here.qo(&["submit", "hello"]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(refused.err.contains("log/00000000000000000003: is missing"), "{}", refused.err);
    assert!(!third.exists(), "it was made anew");
}

#[test]
fn a_submit_that_is_terminated_says_how_many_jobs_were_accepted() {
    let here = Here::new();
    let mut command = here.command(&["submit", "m", "--count", "10000000"]);
    let submit = command.spawn().expect("qo starts");
    until("some are there", || here.path(".qo/log/00000000000000000003").exists());
    signal(submit.id(), "TERM");
    let ended = submit.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(130));
    let said = String::from_utf8_lossy(&ended.stderr).into_owned() + &String::from_utf8_lossy(&ended.stdout);
    assert!(said.contains("submitted; interrupted"), "{said}");
}

#[test]
fn wait_returns_when_all_jobs_have_ended_and_says_how() {
    let here = Here::new();
    here.write(
        ".qo.toml",
        "[tasks.ok]\ncommand = [\"echo\", \"1\"]\n[tasks.bad]\ncommand = [\"sh\", \"-c\", \"echo no >&2; exit 100\"]\n",
    );
    let ids = ["ok", "ok", "bad"].map(|task| here.qo(&["submit", task]).line());
    let [first, second, bad] = ids.each_ref().map(String::as_str);
    here.qo(&["wait", first, "--timeout", "50ms"]).code(75).says("has not ended within 50ms; it goes on");
    let late = here.qo(&["wait", first, bad, "--timeout", "50ms", "--json"]).code(75);
    let late: serde_json::Value = serde_json::from_str(&late.out).expect("JSON");
    assert_eq!((&late[0]["id"], &late[1]["state"]), (&first.into(), &"pending".into()), "{late}");
    // It waits for jobs that begin later.
    let waiting = here.command(&["wait", first, second]).spawn().expect("qo starts");
    let _worker = here.worker(&[]);
    let waited = waiting.wait_with_output().expect("it ends");
    assert!(waited.status.success(), "{waited:?}");
    let told = String::from_utf8(waited.stdout).expect("UTF-8");
    assert_eq!(told, format!("job {first} (ok) succeeded\njob {second} (ok) succeeded\n"));
    here.qo(&["wait", bad, first])
        .code(1)
        .shows(&format!("job {bad} (bad) failed: "))
        .shows("(ok) succeeded");
    let all = here.qo(&["wait", bad, first, "--json"]).code(1);
    let all: serde_json::Value = serde_json::from_str(&all.out).expect("JSON");
    assert_eq!((&all[0]["state"], &all[1]["output"]), (&"failed".into(), &1.into()), "{all}");
    // A job that is not there is told before any wait.
    here.qo(&["wait", first, "019a8a5e-7c1b-7a10-9d43-3e2a6f0c9b11"]).code(3).says("qo jobs list");
    here.qo(&["wait"]).code(2);
}
