//! Two services that share a namespace keep their own configuration.

use crate::fixture::{Here, Worker, until};
use serde_json::Value;
use std::fs;
use std::process::Stdio;
use tokio_postgres::NoTls;

const SHOP: &str = r#"
app = "shop"
[concurrency.limits]
api = 3
"user/*" = 1
[queues.mail]
priority = 7
[schedules.nightly]
cron = "0 3 * * *"
task = "ship"
[tasks.ship]
command = ["true"]
max_concurrent = 4
"#;

const BILLING: &str = r#"
app = "billing"
[concurrency.limits]
invoice = 2
[schedules.monthly]
cron = "0 4 1 * *"
task = "bill"
[tasks.bill]
command = ["true"]
"#;

/// A directory for two services, each with its file, and a store that they share.
struct Two {
    here: Here,
    store: String,
}

impl Two {
    fn new() -> Self {
        let here = Here::new();
        let store = format!("file:{}", here.path("store").display());
        Self::on(here, store)
    }

    fn on(here: Here, store: String) -> Self {
        here.write("shop.toml", SHOP).write("billing.toml", BILLING);
        Self { here, store }
    }

    fn qo(&self, service: &str, arguments: &[&str]) -> crate::fixture::Ran {
        let file = format!("{service}.toml");
        let mut all = arguments.to_vec();
        all.extend(["--config", &file, "--store", &self.store]);
        self.here.qo(&all)
    }

    /// A worker of a service, at work.
    fn worker(&self, service: &str) -> Worker {
        let file = format!("{service}.toml");
        let log = fs::File::create(self.here.path(&format!("{service}.log"))).expect("a log");
        let arguments = ["worker", "--name", service, "--config", &file, "--store", &self.store];
        let child = self.here.command(&arguments).stdout(Stdio::null()).stderr(log).spawn();
        let worker = Worker::of(child.expect("qo starts"));
        until("the worker is alive", || {
            let workers = self.qo(service, &["workers", "--json"]);
            workers.code == 0 && workers.out.contains(&format!("\"{service}\""))
        });
        worker
    }

    fn log(&self, service: &str) -> String {
        fs::read_to_string(self.here.path(&format!("{service}.log"))).expect("a log")
    }

    /// The limit in force of a group, and its source.
    fn limit(&self, group: &str) -> (Option<u64>, Value) {
        let groups = self.qo("shop", &["concurrency", "status", "--json"]).json();
        let of = |status: &&Value| status["group"] == group;
        let status = groups.as_array().expect("an array").iter().find(of).cloned().unwrap_or_default();
        (status["limit"].as_u64(), status["sources"]["config_app"].clone())
    }

    fn schedules(&self) -> Vec<String> {
        let schedules = self.qo("shop", &["schedules", "--json"]).json();
        let name = |status: &Value| status["schedule"].as_str().expect("a name").to_owned();
        schedules.as_array().expect("an array").iter().map(name).collect()
    }

    /// The apps of the last pushes, the newest first, and their changes in words.
    fn history(&self) -> Vec<(String, Vec<String>)> {
        let pushes = self.qo("shop", &["config", "history", "--json"]).json();
        let change = |change: &Value| {
            let word = |field: &str| change[field].as_str().expect("a word").to_owned();
            format!("{} {}", word("setting"), word("name"))
        };
        let push = |push: &Value| {
            let changes = push["changes"].as_array().expect("changes").iter().map(change).collect();
            (push["app"].as_str().expect("an app").to_owned(), changes)
        };
        pushes.as_array().expect("an array").iter().map(push).collect()
    }

    /// What must hold after both services have started, in either order, any number of times.
    fn neither_wiped_the_other(&self) {
        assert_eq!(self.limit("api"), (Some(3), "shop".into()));
        assert_eq!(
            self.limit("ship"),
            (Some(4), "shop".into()),
            "max_concurrent of the file is configuration"
        );
        assert_eq!(self.limit("invoice"), (Some(2), "billing".into()));
        assert_eq!(self.schedules(), ["monthly", "nightly"]);
        let queues = self.qo("shop", &["queues", "--json"]).json();
        assert_eq!(queues[0]["priority"], 7, "{queues}");
    }
}

fn two_services_share(two: &Two) {
    let shop = two.worker("shop");
    let billing = two.worker("billing");
    two.neither_wiped_the_other();
    let log = two.log("shop");
    for line in [
        "added limit api: 3",
        "added limit ship: 4",
        "added queue priority mail: 7",
        "added schedule nightly",
    ] {
        assert!(log.contains(line), "{line:?} is not in the log of shop: {log}");
    }
    assert!(!two.log("billing").contains("removed"), "{}", two.log("billing"));

    // A deploy of billing, with another file; and of shop, with the same file.
    drop(billing);
    drop(shop);
    two.here.write("billing.toml", &BILLING.replace("invoice = 2", "invoice = 5\npdf = 1"));
    let billing = two.worker("billing");
    let shop = two.worker("shop");
    assert_eq!(two.limit("invoice"), (Some(5), "billing".into()));
    assert_eq!(two.limit("api"), (Some(3), "shop".into()));
    let log = two.log("billing");
    assert!(log.contains("changed limit invoice: 2 -> 5") && log.contains("added limit pdf: 1"), "{log}");
    assert!(
        !two.log("shop").contains("limit"),
        "what was said before is not said again: {}",
        two.log("shop")
    );

    let history = two.history();
    assert_eq!(history[0], ("billing".into(), vec!["limit invoice".into(), "limit pdf".into()]));
    assert!(history.iter().any(|(app, _)| app == "shop"), "{history:?}");
    drop((shop, billing));
}

#[test]
fn two_services_on_one_directory_do_not_wipe_each_other() {
    two_services_share(&Two::new());
}

#[test]
fn two_services_on_one_postgres_schema_do_not_wipe_each_other() {
    let server = std::env::var("QO_TEST_POSTGRES").expect("QO_TEST_POSTGRES must be the URL of a server");
    let schema = format!("attack_apps_{}", std::process::id());
    let drop_schema = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (client, connection) =
                tokio_postgres::connect(&server, NoTls).await.expect("the server answers");
            tokio::spawn(connection);
            client.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await.expect("it goes");
        });
    };
    drop_schema();
    let two = Two::on(Here::new(), format!("{server}?schema={schema}"));
    two.qo("shop", &["migrate", "up"]).ok();
    two_services_share(&two);
    drop_schema();
}

#[test]
fn where_two_apps_name_one_group_the_newest_push_counts() {
    let two = Two::new();
    two.qo("shop", &["config", "apply"]).ok();
    two.here.write("billing.toml", "app = \"billing\"\n[concurrency.limits]\napi = 9\n");
    two.qo("billing", &["config", "apply"]).ok();
    assert_eq!(two.limit("api"), (Some(9), "billing".into()));
    let group = two.qo("shop", &["concurrency", "status", "api"]).ok();
    group.shows("limit 9 set by config of billing");
    // Pushing the same configuration again does not make it newer.
    let same = two.qo("shop", &["config", "apply"]).ok().shows("nothing changed");
    same.says("limit api: that of app billing counts");
    assert_eq!(two.limit("api"), (Some(9), "billing".into()));
    two.here.write("billing.toml", "app = \"billing\"\n");
    two.qo("billing", &["config", "apply"]).ok().shows("removed limit api: 9");
    assert_eq!(two.limit("api"), (Some(3), "shop".into()), "shop's value counts again");
}

#[test]
fn config_diff_apply_and_history_work_without_a_worker() {
    let two = Two::new();
    two.here.write("empty.toml", "app = \"shop\"\n");
    two.qo("empty", &["submit", "anything"]).ok();
    let diff = two.qo("shop", &["config", "diff"]).code(1);
    diff.shows("added   limit api: 3").shows("added   limit user/*: 1");
    assert_eq!(two.limit("api").0, None, "a diff changes nothing");
    let json = two.qo("shop", &["config", "diff", "--json"]).code(1);
    let json: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!((&json["app"], &json["changes"][0]["new"]), (&"shop".into(), &"3".into()));

    two.qo("shop", &["config", "apply"]).ok().shows("added   schedule nightly: 0 3 * * * UTC ship");
    two.qo("shop", &["config", "diff"]).ok().shows("the store says what");
    two.here.write(
        "shop.toml",
        &SHOP.replace("api = 3", "api = 5").replace("\"user/*\" = 1\n", "[retention]\nfailed = \"2d\"\n"),
    );
    let diff = two.qo("shop", &["config", "diff"]).code(1);
    diff.shows("changed limit api: 3 -> 5")
        .shows("removed limit user/*: 1")
        .shows("added   retention failed: 2d");
    let applied = two.qo("shop", &["config", "apply", "--json"]).json();
    assert_eq!(applied["changes"].as_array().expect("changes").len(), 3, "{applied}");

    let history = two.qo("shop", &["config", "history"]).ok();
    history.shows("app shop").shows("changed limit api: 3 -> 5").shows("added   limit api: 3");
    assert_eq!(two.history()[0].1, ["limit api", "limit user/*", "retention failed"]);
    // Another app compares with its own last push.
    two.qo("shop", &["config", "diff", "--app", "billing"])
        .code(1)
        .shows("app billing")
        .shows("added   limit api: 5");
}

#[test]
fn apply_without_a_file_changes_nothing_and_says_so() {
    let here = Here::new();
    here.qo(&["config", "apply"]).code(2).says("none found");
    assert!(!here.path(".qo").exists(), "it made no store");
    here.qo(&["config", "history"]).code(3).says("there is no namespace");
}

#[test]
fn a_bad_app_is_refused_with_its_place() {
    let here = Here::new();
    here.write(".qo.toml", "app = \"my shop\"\n");
    here.qo(&["config", "show"]).code(2).says(".qo.toml:1: app: \"my shop\": must match");
    here.write(".qo.toml", "ap = \"shop\"\n");
    here.qo(&["config", "show"]).code(2).says("did you mean app?");
    here.write(".qo.toml", "app = \"shop\"\n");
    here.qo(&["config", "show"]).ok().shows("retention.failed").shows("14d");
    let mut command = here.command(&["config", "show", "--json"]);
    let shown = command.env("QO_APP", "billing").output().expect("qo runs");
    let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let app = shown.as_array().expect("an array").iter().find(|setting| setting["setting"] == "app");
    assert_eq!(app.map(|app| &app["value"]), Some(&"billing".into()));
}
