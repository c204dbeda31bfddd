//! The command line on PostgreSQL: a real server, and a schema of its own for each test.

use crate::fixture::{Here, Ran, until};
use serde_json::json;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio_postgres::NoTls;

/// A directory whose configuration names a schema, which is dropped with it.
struct There {
    here: Here,
    schema: String,
}

fn server() -> String {
    std::env::var("QO_TEST_POSTGRES").expect(
        "QO_TEST_POSTGRES must be the URL of a server; `make test` starts one: scripts/with_postgres.py",
    )
}

/// Runs statements on the server, without qo.
fn sql(statements: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (client, connection) =
            tokio_postgres::connect(&server(), NoTls).await.expect("the server answers");
        tokio::spawn(connection);
        client.batch_execute(statements).await.expect(statements);
    });
}

impl There {
    /// A schema that does not exist yet.
    fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let schema = format!("cli_{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        sql(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE"));
        let here = Here::new();
        here.write(".qo.toml", &format!("store = \"{}?schema={schema}\"\n", server()));
        Self { here, schema }
    }

    /// A namespace that can be used.
    fn made() -> Self {
        let there = Self::new();
        there.here.qo(&["migrate", "up"]).ok();
        there
    }
}

impl Drop for There {
    fn drop(&mut self) {
        sql(&format!("DROP SCHEMA IF EXISTS {} CASCADE", self.schema));
    }
}

/// The server's URL with a user and a password, at another port.
fn url_with_password(user: &str, port: Option<u16>) -> String {
    let server = server();
    let (_, place) = server.split_once('@').expect("a user");
    let (place, database) = place.split_once('/').expect("a database");
    let place = match port {
        Some(port) => format!("127.0.0.1:{port}"),
        None => place.to_owned(),
    };
    format!("postgres://{user}:geheim@{place}/{database}")
}

#[track_caller]
fn keeps_its_password(ran: Ran) -> Ran {
    assert!(!ran.err.contains("geheim") && !ran.out.contains("geheim"), "{ran:?}");
    ran
}

#[test]
fn migrate_makes_the_schema_and_says_what_it_did() {
    let there = There::new();
    let before = there.here.qo(&["migrate", "status", "--json"]).json();
    assert_eq!(before["store"], json!(null));
    let (release, steps) = (before["release"].clone(), before["pending"].clone());
    assert_ne!(steps, json!([]));
    there
        .here
        .qo(&["migrate", "status"])
        .ok()
        .shows("not there yet")
        .shows("to do: 1: tables (no call has to wait)");

    let raised = there.here.qo(&["migrate", "up", "--json"]).json();
    assert_eq!((&raised["done"], &raised["pending"]), (&steps, &json!([])));
    assert_eq!((&raised["store"], &raised["release"]), (&release, &release));
    there.here.qo(&["migrate", "up"]).ok().shows("up to date");
    let again = there.here.qo(&["migrate", "up", "--json"]).json();
    assert_eq!(again["done"], json!([]), "doing it again does nothing");
    there.here.qo(&["migrate", "status"]).ok().shows("up to date").shows("oldest that is let in: 2");
}

#[test]
fn four_deploys_may_migrate_at_once() {
    let there = There::new();
    let start = |_| there.here.command(&["migrate", "up", "--json"]).spawn().expect("qo starts");
    let deploys: Vec<_> = (0..4).map(start).collect();
    let mut steps = Vec::new();
    for deploy in deploys {
        let output = deploy.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let raised: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(raised["pending"], json!([]));
        steps.extend(raised["done"].as_array().expect("an array").clone());
    }
    let pending = There::new().here.qo(&["migrate", "status", "--json"]).json();
    // Each deploy reports what it did; another deploy may have done the step before.
    steps.sort_by_key(ToString::to_string);
    assert_eq!(json!(steps), pending["pending"], "every step was done by one of them");
}

#[test]
fn a_schema_of_a_later_release_is_left_alone() {
    let there = There::made();
    sql(&format!("UPDATE {}.version SET version = 1000, oldest_client = 1000", there.schema));
    there.here.qo(&["migrate", "status"]).ok().shows("newer than this release, which cannot work with it");
    there.here.qo(&["migrate", "up"]).code(1).says("is newer than this release");
    there.here.qo(&["submit", "mail"]).code(1).says("asks for a newer release").says("qo migrate status");
}

#[test]
fn without_its_schema_every_command_says_how_to_make_it() {
    let there = There::new();
    for arguments in [
        &["submit", "mail"][..],
        &["jobs", "list"],
        &["worker", "--task", "mail=true"],
        &["concurrency", "set", "mail", "--limit", "1"],
        &["slot", "run", "--group", "mail", "--", "true"],
        &["doctor"],
        &["doctor", "--repair"],
    ] {
        there.here.qo(arguments).code(3).says("error: not found:").says("hint: run `qo migrate up`");
    }
}

#[test]
fn a_server_that_is_away_is_unavailable_and_no_password_is_shown() {
    let here = Here::new();
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let url = url_with_password("postgres", Some(free.port()));
    for arguments in [&["jobs", "list"][..], &["submit", "mail"], &["migrate", "up"], &["doctor"]] {
        let ran = here.qo(&[arguments, &["--store", &url]].concat()).code(75);
        let ran = keeps_its_password(ran).says("error: unavailable:").says("hint: is PostgreSQL reachable");
        ran.says(&format!("127.0.0.1:{}", free.port()));
    }
    keeps_its_password(here.qo(&["config", "show", "--store", &url]).ok()).shows(":***@");
    if cfg!(feature = "bench") {
        keeps_its_password(here.qo(&["bench", "--quick", "--store", &url]));
    }
}

#[test]
fn a_server_that_refuses_the_login_is_final_and_no_password_is_shown() {
    let here = Here::new();
    let url = url_with_password("qo_stranger", None);
    for arguments in [&["jobs", "list"][..], &["submit", "mail"], &["migrate", "up"], &["doctor"]] {
        let ran = here.qo(&[arguments, &["--store", &url]].concat()).code(2);
        let ran =
            keeps_its_password(ran).says("error: invalid:").says("answers and refuses").says("qo_stranger");
        assert!(!ran.err.contains("reachable"), "{ran:?}");
    }
}

#[test]
fn jobs_are_submitted_run_and_shown() {
    let there = There::made();
    let here = &there.here;
    let first = here.qo(&["submit", "shout", "\"early\"", "--key", "ann"]).line();
    here.qo(&["explain", &first]).ok().shows("No live worker has task shout");
    let worker =
        here.worker(&["--task", "shout=tr a-z A-Z; echo heard $QO_KEY >&2", "--task", "nap=exec sleep 600"]);
    assert_eq!(here.qo(&["submit", "shout", "\"hello\"", "--wait"]).line(), "HELLO");
    until("the first has ended", || {
        here.qo(&["jobs", "show", &first, "--json"]).json()["state"] == "succeeded"
    });
    here.qo(&["jobs", "show", &first]).ok().shows("\"EARLY\"").shows("w1");
    here.qo(&["jobs", "logs", &first]).ok().shows("heard ann\n");
    here.qo(&["workers"]).ok().shows("w1").shows("nap,shout");

    here.qo(&["concurrency", "set", "nap", "--limit", "1"]).ok();
    let [running, waiting] = [(), ()].map(|()| here.qo(&["submit", "nap"]).line());
    until("one naps", || here.qo(&["jobs", "show", &running, "--json"]).json()["state"] == "running");
    here.qo(&["explain", &waiting]).ok().shows("Group nap is full: its slot is taken").shows(&running);
    let status = here.qo(&["concurrency", "status", "nap", "--json"]).json();
    assert_eq!((&status["used"], &status["limit"]), (&json!(1), &json!(1)));
    here.qo(&["jobs", "cancel", &running, &waiting]).ok();
    until("both are cancelled", || {
        here.qo(&["jobs", "list", "--state", "cancelled", "--json"]).json().as_array().map(Vec::len)
            == Some(2)
    });
    worker.signal("TERM");
    assert_eq!(worker.wait(), 0);
    here.qo(&["doctor", "--verify"]).ok().shows("PostgreSQL").shows("0 groups whose count of slots differs");
}

#[test]
fn a_script_takes_a_slot_and_gives_it_back() {
    let there = There::made();
    let here = &there.here;
    let run = ["slot", "run", "--group", "backup", "--limit", "1", "--"];
    let inside = format!("{} slot run --group backup --limit 1 --no-wait -- true", env!("CARGO_BIN_EXE_qo"));
    here.qo(&[&run[..], &["sh", "-c", &inside]].concat()).code(4);
    let ran = here.qo(&[&run[..], &["sh", "-c", "echo $QO_GROUP; exit 7"]].concat()).code(7);
    assert_eq!(ran.out, "backup\n");
    here.qo(&["concurrency", "status", "backup"]).code(3);
    here.qo(&["doctor", "--verify"]).ok();
}

#[test]
fn the_doctor_finds_a_wrong_count_and_counts_anew() {
    let there = There::made();
    let here = &there.here;
    here.qo(&["concurrency", "set", "mail", "--limit", "2"]).ok();
    here.qo(&["doctor", "--repair"]).ok().shows("there is nothing to repair");
    sql(&format!("INSERT INTO {}.slots (ref, used, most) VALUES ('mail', 2, 5)", there.schema));
    here.qo(&["doctor"])
        .code(1)
        .shows("slots that are counted: 2; that its holders have: 0")
        .shows("qo doctor --repair");
    here.qo(&["doctor", "--repair"])
        .ok()
        .shows("counted anew")
        .shows("0 groups whose count of slots differs");
    here.qo(&["doctor", "--verify"]).ok();
}
