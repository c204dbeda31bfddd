//! The command line in a process that is not the program `qo`: this test program, started again.

use crate::fixture::Here;
use qo_cli::{Host, Outcome};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

/// The test that is the host, and the variable that has its arguments, one in each line.
const COMMAND_LINE: &str = "host::a_process_that_holds_the_command_line";
const ARGUMENTS: &str = "COMMAND_LINE_OF_HOST";
/// The program that only guards, if the feature `guard` builds it.
const GUARD: Option<&str> = option_env!("CARGO_BIN_EXE_qo-guard");
/// Its own command prints what it is started with, and fails.
const OWN_COMMAND: [&str; 4] = ["sh", "-c", "echo again: \"$@\" >&2; exit 3", "sh"];

/// The host. Run as a test of its own it has no command line, and does nothing.
#[test]
fn a_process_that_holds_the_command_line() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    let host = Host {
        python: true,
        own_command: Some(OWN_COMMAND.map(Into::into).to_vec()),
        // Cargo names it also where it does not build it.
        guard: Some(
            GUARD.filter(|guard| Path::new(guard).exists()).unwrap_or(env!("CARGO_BIN_EXE_qo")).into(),
        ),
    };
    let code = match qo_cli::main(arguments.split('\n').map(Into::into).collect(), host) {
        Outcome::Exit(code) => code,
        Outcome::Python(worker) => {
            say(&serde_json::to_string(&worker).expect("JSON"));
            match worker.settings().and_then(|settings| qo_cli::programs(&settings, &worker.tasks)) {
                Ok(programs) => {
                    programs.iter().for_each(|(task, line)| say(&format!("{} {line:?}", task.task)))
                }
                Err(error) => std::process::exit(qo_cli::report(error).into()),
            }
            tracing::info!("the host logs");
            qo_cli::finish_logging();
            100
        }
    };
    std::process::exit(code.into());
}

fn say(line: &str) {
    writeln!(std::io::stderr(), "{line}").expect("written");
}

fn run(here: &Here, arguments: &[&str]) -> (Option<i32>, String) {
    let as_here = here.command(&[]);
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", COMMAND_LINE, "--nocapture"]).current_dir(here.path(""));
    for (name, value) in as_here.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let Output { status, stderr, .. } =
        command.env(ARGUMENTS, arguments.join("\n")).output().expect("the host runs");
    (status.code(), String::from_utf8(stderr).expect("UTF-8"))
}

#[test]
fn guards_are_the_executable_that_the_host_names() {
    let here = Here::new();
    let slot =
        ["slot", "run", "--group", "g", "--limit", "1", "--", "sh", "-c", "echo $QO_GROUP > seen; exit 7"];
    let (code, said) = run(&here, &slot);
    assert_eq!(code, Some(7), "{said}");
    assert_eq!(std::fs::read_to_string(here.path("seen")).expect("it ran"), "g\n");
}

#[test]
fn the_workers_of_the_demo_are_started_by_the_command_of_the_host() {
    let here = Here::new();
    let (code, said) = run(&here, &["demo"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("again: demo-worker --number 1"), "{said}");
}

#[test]
fn errors_are_json_if_the_given_arguments_ask_for_it() {
    let here = Here::new();
    for arguments in [&["jobs", "list", "--json"][..], &["sbumit", "--json"]] {
        let (code, said) = run(&here, arguments);
        assert!(matches!(code, Some(2 | 3)), "{said}");
        assert!(said.trim_start().starts_with("{\"error\":{"), "{said}");
    }
}

#[test]
fn a_host_with_python_gets_the_worker_and_the_programs_beside_it() {
    let here = Here::new();
    here.write(".qo.toml", "[tasks.shout]\ncommand = [\"./shout.sh\"]\n").script("shout.sh", "true");
    let (code, said) = run(&here, &["worker", "shop.jobs:app", "--processes=2", "--task", "mail=./mail.sh"]);
    assert_eq!(code, Some(100), "{said}");
    assert!(said.contains("\"target\":\"shop.jobs:app\""), "{said}");
    assert!(said.contains("shout [\"") && said.contains("/shout.sh\"]"), "{said}");
    assert!(said.contains("mail [\"sh\", \"-c\""), "{said}");
    assert!(said.contains("INFO") && said.contains("the host logs"), "it logs as a worker does: {said}");
    assert!(!here.path(".qo").exists(), "nothing was opened");
}

#[test]
fn a_host_can_report_an_error_as_a_command_does() {
    let here = Here::new();
    here.write(".qo.toml", "[tasks.shout]\ncommand = [\"./nope.sh\"]\n");
    let (code, said) = run(&here, &["worker", "shop.jobs:app"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("error: ") && said.contains("tasks.shout.command"), "{said}");
}
