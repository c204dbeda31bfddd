//! What operators do: limits, queues, jobs, workflows, schedules, health.

use crate::fixture::Here;
use serde_json::json;

#[test]
fn limits_are_set_shown_and_taken_back() {
    let here = Here::new();
    here.qo(&["concurrency", "set", "resize", "--limit", "4"]).ok().shows("resize: limit 4");
    here.qo(&["concurrency", "set", "user/*", "--limit", "1"]).ok();
    here.qo(&["concurrency", "status"]).ok().shows("resize").shows("operator").shows("for each key");
    here.qo(&["concurrency", "set", "resise", "--limit", "4"]).ok().says("did you mean resize?");
    here.qo(&["concurrency", "unset", "resize"]).ok().shows("resize: no limit");
    here.qo(&["concurrency", "unset", "resize"]).code(3).says("did you mean resise?");
    here.qo(&["concurrency", "status", "resize"]).code(3).says("error: not found:");
    assert_eq!(here.qo(&["concurrency", "status", "user/*", "--json"]).json()["limit"], 1);
}

#[test]
fn a_group_that_jobs_name_and_no_limit_has_is_pointed_out() {
    let here = Here::new();
    here.qo(&["submit", "mail", "--limits", "smpt=1"]).ok();
    here.qo(&["concurrency", "status"]).ok().shows("jobs name it, it has no limit");
    here.qo(&["doctor"]).ok().shows("smpt").shows("it has no limit: is it misspelled?");
    let findings = here.qo(&["doctor", "--json"]).json();
    assert!(findings.as_array().is_some_and(|all| all.iter().any(|f| f["about"] == "smpt")), "{findings}");
}

#[test]
fn a_queue_is_paused_and_resumed() {
    let here = Here::new();
    let id = here.qo(&["submit", "mail", "--queue", "slow"]).line();
    here.qo(&["queues", "pause", "slow"]).ok().shows("is paused");
    here.qo(&["queues"]).ok().shows("paused");
    assert_eq!(here.qo(&["queues", "--json"]).json()[0]["paused"], true);
    here.qo(&["explain", &id]).ok().shows("Its queue slow is paused.").shows("qo queues resume slow");
    here.qo(&["queues", "resume", "slow"]).ok();
    here.qo(&["queues", "pause", "slwo"]).ok().says("did you mean slow?");
    assert_eq!(here.qo(&["queues", "--json"]).json()[0]["paused"], false);
}

#[test]
fn jobs_are_listed_by_filter_and_page_by_page() {
    let here = Here::new();
    here.qo(&["submit", "mail", "--count", "3"]).ok();
    here.qo(&["submit", "resize", "--key", "ann"]).ok();
    let count = |arguments: &[&str]| {
        let all = [&["jobs", "list", "--json"], arguments].concat();
        here.qo(&all).json().as_array().map(Vec::len)
    };
    assert_eq!(
        (count(&[]), count(&["--task", "mail"]), count(&["--key", "ann"])),
        (Some(4), Some(3), Some(1))
    );
    assert_eq!((count(&["--state", "failed,running"]), count(&["--limit", "2"])), (Some(0), Some(2)));
    let page = here.qo(&["jobs", "list", "--limit", "3"]).ok();
    let after = page.err.split("--after ").nth(1).and_then(|rest| rest.split(',').next()).expect("a cursor");
    here.qo(&["jobs", "list", "--after", after]).ok().shows("resize/ann");
    here.qo(&["jobs", "list", "--task", "mial"]).ok().says("did you mean mail?");
    here.qo(&["jobs", "list", "--state", "runing"]).code(2).says("did you mean running?");
}

#[test]
fn jobs_are_cancelled_and_opened_again_by_id_and_by_filter() {
    let here = Here::new();
    let id = here.qo(&["submit", "mail"]).line();
    here.qo(&["submit", "resize", "--count", "4"]).ok();
    here.qo(&["jobs", "cancel", &id]).ok().shows("cancelled");
    let became = here.qo(&["jobs", "retry", &id, "--json"]).json();
    assert_eq!(became, json!({"changed": 1, "jobs": [{"id": id, "state": "pending"}]}));
    here.qo(&["jobs", "cancel"]).code(2).says("no jobs are named");
    here.qo(&["jobs", "cancel", "--task", "resize"]).code(2).says("4 jobs may match").says("--yes");
    here.qo(&["jobs", "cancel", "--task", "resize", "--yes"]).ok().shows("4 jobs cancelled");
    here.qo(&["jobs", "retry", "--state", "cancelled", "--yes"]).ok().shows("4 jobs open again");
    here.qo(&["jobs", "retry", "--state", "pending", "--yes"]).ok().shows("0 jobs");
    assert_eq!(
        here.qo(&["jobs", "cancel", "--all", "--yes", "--json"]).json(),
        json!({"changed": 5, "jobs": null})
    );
    let unknown = "019a8a5e-7c1b-7a10-9d43-3e2a6f0c9b11";
    here.qo(&["jobs", "cancel", &id, unknown]).code(3).shows(&id).says(unknown);
}

#[test]
fn a_workflow_is_shown_and_steered() {
    let here = Here::new();
    here.qo(&["workflows"]).code(3);
    for step in ["one", "two", "three"] {
        here.qo(&["submit", step, "--workflow", "order"]).ok();
    }
    let second = here.jobs()[1]["id"].as_str().expect("an id").to_owned();
    here.qo(&["explain", &second]).ok().shows("It waits for step 1 (pending");
    here.qo(&["workflows", "retry", "order"]).code(1).says("no step halts it");
    let first = here.jobs()[0]["id"].as_str().expect("an id").to_owned();
    here.qo(&["jobs", "cancel", &first]).ok();
    here.qo(&["workflows"]).ok().shows("order").shows("halted");
    here.qo(&["explain", &second]).ok().shows("is halted by step 1").shows("qo workflows retry order");
    here.qo(&["workflows", "show", "order"]).ok().shows("three").says("qo workflows skip order");
    let whole = here.qo(&["workflows", "show", "order", "--json"]).json();
    assert_eq!((&whole["state"], whole["jobs"].as_array().map(Vec::len)), (&"halted".into(), Some(3)));
    here.qo(&["workflows", "skip", "order", "--step", "2"]).code(1).says("conflict");
    here.qo(&["workflows", "skip", "order"]).ok().shows("step 1 is skipped");
    here.qo(&["workflows", "cancel", "order"]).ok();
    here.qo(&["submit", "four", "--workflow", "order"]).code(1).says("error: conflict:");
    here.qo(&["workflows", "show", "odrer"]).code(3).says("did you mean order?");
    assert_eq!(here.qo(&["workflows", "--json"]).json()[0]["state"], "cancelled");
}

#[test]
fn schedules_that_no_app_declared_are_not_found() {
    let here = Here::new();
    here.qo(&["submit", "mail"]).ok();
    here.qo(&["schedules"]).ok().says("no schedules").says(".qo.toml");
    for action in ["enable", "disable", "trigger"] {
        here.qo(&["schedules", action, "nightly"]).code(3).says("error: not found:");
    }
}

#[test]
fn a_healthy_store_is_called_so_and_damage_is_named_and_repaired() {
    let here = Here::new();
    here.qo(&["submit", "mail", "--count", "3"]).ok();
    here.qo(&["concurrency", "set", "mail", "--limit", "1"]).ok();
    here.qo(&["submit", "mail"]).ok();
    here.qo(&["doctor", "--verify"]).ok().shows("format 1");
    here.qo(&["doctor", "--repair"]).ok().shows("nothing to repair");
    here.qo(&["migrate", "status"]).ok().shows("up to date");
    assert_eq!(here.qo(&["migrate", "up", "--json"]).json(), json!({"store": 1, "release": 1}));

    let log = here.path(".qo/log");
    let mut records: Vec<_> =
        std::fs::read_dir(&log).expect("a log").map(|entry| entry.expect("an entry").path()).collect();
    records.sort();
    let victim = &records[records.len() - 1];
    let mut bytes = std::fs::read(victim).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(victim, bytes).expect("written");
    here.qo(&["jobs", "list"]).code(1).says("error: bad data:").says("qo doctor --repair");
    here.qo(&["submit", "mail"]).code(1).says("error: bad data:").says("qo doctor --repair");
    here.qo(&["doctor"]).code(1).shows("problem");
    here.qo(&["doctor", "--repair"]).ok().shows("lost: ");
    here.qo(&["jobs", "list"]).ok();
}

#[test]
fn a_token_is_shown_once_and_named_from_then_on() {
    let here = Here::new();
    here.qo(&["token", "create", "ops", "--scope", "root"]).code(2).says("read, submit, work or admin");
    let made = here.qo(&["token", "create", "ops", "--scope", "admin"]).ok().says("first token");
    let secret = made.out.trim().to_owned();
    let id = secret.split('_').nth(1).expect("an id").to_owned();
    here.qo(&["token", "create", "ops", "--scope", "read"]).code(1).says("another one has this name");
    let bound = ["--scope", "submit", "--queue", "mail,video", "--app", "shop", "--expires", "1h"];
    here.qo(&[&["token", "create", "shop"], &bound[..]].concat()).ok();
    let past = ["token", "create", "old", "--scope", "read", "--expires", "2020-01-01T00:00:00Z"];
    here.qo(&past).code(2).says("must be in the future");
    here.qo(&["token", "list"]).ok().shows("mail,video").shows("admin");
    let listed = here.qo(&["token", "list", "--json"]).json();
    assert_eq!((&listed[0]["name"], &listed[1]["queues"]), (&"ops".into(), &json!(["mail", "video"])));
    here.qo(&["token", "revoke", "opps"]).code(3).says("did you mean ops?");
    here.qo(&["token", "revoke", &id]).ok().shows("token ops is revoked");
    here.qo(&["token", "revoke", "shop"]).ok().says("last token");
    here.qo(&["token", "list"]).ok().says("no tokens");
    // Who did what, and the secret nowhere.
    let entries = here.qo(&["audit", "--json"]).json();
    let text = |entry: usize, field: &str| entries[entry][field].as_str().expect("text").to_owned();
    let told: Vec<_> =
        (0..4).map(|at| text(at, "what") + " " + text(at, "on").split(' ').next().expect("a name")).collect();
    assert_eq!(told, ["revoke token shop", "revoke token ops", "create token shop", "create token ops"]);
    assert!(entries[0]["by"].as_str().is_some_and(|by| by.contains('@')), "{entries}");
    let bare = secret.rsplit('_').next().expect("a secret");
    let everything = ["token list", "token list --json", "audit", "audit --json"]
        .map(|line| here.qo(&line.split(' ').collect::<Vec<_>>()).ok().out);
    assert!(everything.iter().all(|out| !out.contains(bare)));
    here.qo(&["audit", "--limit", "1"]).ok().shows("shop").says("--before 4");
    here.qo(&["audit", "--limit", "1", "--before", "2"]).ok().shows("create token");
}
