//! Settings, as the commands see them.

use crate::fixture::Here;

#[test]
fn config_show_says_where_every_setting_comes_from() {
    let here = Here::new();
    here.write(".qo.toml", "store = \"file:data\"\n[worker]\nclaim_batch_size = 7\n");
    here.qo(&["config", "show"]).ok().shows("worker.claim_batch_size").shows(".qo.toml:3").shows("default");
    let output = here
        .command(&["config", "show", "--json", "--store", "memory:"])
        .env("MAX_CONCURRENT_TASKS", "9")
        .output()
        .expect("qo runs");
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let setting = |name: &str| {
        let found = shown.as_array().expect("an array").iter().find(|setting| setting["setting"] == name);
        found.expect(name).clone()
    };
    assert_eq!(
        (&setting("store")["value"], &setting("store")["flag"]),
        (&"memory:".into(), &"--store".into())
    );
    let tasks = setting("worker.max_concurrent_tasks");
    assert_eq!((&tasks["value"], &tasks["variable"]), (&9.into(), &"MAX_CONCURRENT_TASKS".into()));
    assert_eq!(setting("worker.claim_batch_size")["line"], 3);
}

#[test]
fn mistakes_in_the_file_are_listed_and_nothing_is_done() {
    let here = Here::new();
    here.write(".qo.toml", "stor = \"file:.qo\"\n[worker]\nprefetch_bufer = 2\n[queues.a]\npriority = 0\n");
    let ran = here.qo(&["submit", "mail"]).code(2).says("3 mistakes").says("did you mean store?");
    ran.says(".qo.toml:3: worker.prefetch_bufer")
        .says("did you mean prefetch_buffer?")
        .says("queues.a.priority");
    assert!(!here.path(".qo").exists());
    here.write(".qo.toml", "= nonsense").qo(&["jobs", "list"]).code(2).says(".qo.toml:1:");
}

#[test]
fn a_config_that_is_a_directory_or_is_not_there_is_refused() {
    let here = Here::new();
    here.qo(&["jobs", "list", "--config", "missing.toml"]).code(3).says("missing.toml");
    std::fs::create_dir(here.path(".qo.toml")).expect("made");
    here.qo(&["jobs", "list"]).code(2).says("must be a file");
}

#[test]
fn a_bad_flag_or_variable_is_named() {
    let here = Here::new();
    let worker = |flag, value| here.qo(&["worker", "--task", "a=true", flag, value]);
    worker("--processes", "-1").code(2).says("--processes: \"-1\": must be a whole number from 1");
    worker("--claim-lease-ms", "500").code(2).says("set prefetch_buffer too");
    worker("--queues", "a b").code(2).says("--queues");
    let output = here.command(&["worker", "--task", "a=true"]).env("QO_PREFETCH_BUFFER", "x").output();
    let output = output.expect("qo runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("QO_PREFETCH_BUFFER: \"x\""), "{output:?}");
}

#[test]
fn a_misspelled_variable_is_pointed_out() {
    let here = Here::new();
    let output = here.command(&["submit", "mail"]).env("QO_STROE", "file:x").output().expect("qo runs");
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("did you mean QO_STORE?"), "{output:?}");
}

#[test]
fn completions_know_the_commands() {
    let here = Here::new();
    for shell in ["bash", "zsh", "fish"] {
        here.qo(&["completions", shell]).ok().shows("concurrency");
    }
    here.qo(&["completions", "tcsh"]).code(2);
}

#[test]
fn the_page_about_settings_has_every_one_of_them() {
    let page = include_str!("../../../../docs/reference/settings.md");
    let here = Here::new();
    let shown = here.qo(&["config", "show", "--json"]).json();
    for setting in shown.as_array().expect("an array") {
        let name = setting["setting"].as_str().expect("a name");
        let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("{name} is not on the page"));
        // The variable and the flag on the page must have an effect.
        let cells: Vec<&str> = row.split('`').collect();
        let [_, _, _, variable, _, flag, ..] = cells[..] else {
            assert!(row.contains("only in the file"), "{row}");
            continue;
        };
        let mut command = here.command(&["config", "show", "--json"]);
        if ["QO_PREFETCH_BUFFER", "QO_CLAIM_LEASE_MS"].contains(&variable) {
            // These two settings need each other.
            command.env("QO_PREFETCH_BUFFER", "7").env("QO_CLAIM_LEASE_MS", "500");
        } else {
            let value = match name {
                "store" => "memory:",
                "worker.metrics_addr" => "127.0.0.1:70",
                "worker.metrics_insecure" => "true",
                _ => "70",
            };
            command.env(variable, value);
        }
        let output = String::from_utf8(command.output().expect("qo runs").stdout).expect("UTF-8");
        assert!(output.contains(variable), "{variable}");
        let help = here.qo(&["worker", "--help"]).ok();
        assert!(help.out.contains(flag), "{flag}");
    }
    // The file on the page is a valid configuration.
    let file = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a file");
    here.write(".qo.toml", file).qo(&["config", "show"]).ok().shows("schedules.nightly.cron");
}
