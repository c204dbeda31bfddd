//! Programs as tasks.

use crate::stage::{Stage, ended, is_alive, own_executable, signal, until};
use qo::RetryPolicy;
use qo::core::{Attempt, JobDetail, JobState, caps};
use qo::{ShutdownHandle, TaskConfig, Worker};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const LEASE: Duration = Duration::from_millis(1_000);

/// A worker in this process whose tasks are shell scripts.
struct Shell {
    stage: Stage,
    shutdown: ShutdownHandle,
    result: JoinHandle<qo::Result<()>>,
}

impl Shell {
    async fn new(scripts: &[(&str, &str)]) -> Self {
        let stage = Stage::new().await;
        let config = || TaskConfig::new().retry(RetryPolicy::immediately());
        let builder = Worker::builder(stage.store.clone()).guard(own_executable());
        let builder = builder.cancel_grace(Duration::from_millis(500)).lease(LEASE);
        let folder = stage.path("").display().to_string();
        let add = |builder: qo::WorkerBuilder, &(name, script): &(&str, &str)| {
            builder.program(name, config(), ["sh", "-c", &script.replace("FOLDER/", &folder)])
        };
        let vanishes = stage.path("vanishes").display().to_string();
        std::fs::write(&vanishes, "#!/bin/sh\n").expect("written");
        std::fs::set_permissions(&vanishes, std::fs::Permissions::from_mode(0o755)).expect("executable");
        let builder = scripts.iter().fold(builder, add).program("vanishes", config(), [&vanishes]);
        let worker = builder.build().expect("a worker");
        std::fs::remove_file(&vanishes).expect("removed");
        let shutdown = worker.shutdown_handle();
        Self { stage, shutdown, result: tokio::spawn(worker.run()) }
    }

    async fn run(&self, task: &str, payload: &str) -> JobDetail {
        let job = self.stage.client.submit(task, payload).key("user/7").max_attempts(2);
        ended(&self.stage.client, job.await.expect("submitted")).await
    }

    async fn log(&self, attempt: &Attempt) -> Option<String> {
        self.stage.store.log(attempt.token).await.expect("a log, or none")
    }

    async fn end(self) {
        self.shutdown.drain();
        self.result.await.expect("no panic").expect("it ends well");
    }
}

fn errors(detail: &JobDetail) -> Vec<&str> {
    detail.attempts.iter().filter_map(|attempt| Some(attempt.error.as_ref()?.as_str())).collect()
}

pub async fn an_exit_code_says_what_becomes_of_the_job() {
    let shell = Shell::new(&[
        ("succeeds", "echo warning >&2; exit 0"),
        ("temporary", "[ $QO_ATTEMPT = 2 ] && exit 0; echo busy >&2; exit 75"),
        ("permanent", "echo one >&2; echo broken >&2; exit 100"),
        ("other", "echo oops >&2; exit 3"),
        ("silent", "exit 4"),
        ("signal", "kill -SEGV $$"),
    ])
    .await;
    let detail = shell.run("succeeds", "").await;
    assert_eq!((detail.view.state, errors(&detail).len()), (JobState::Succeeded, 0));
    assert_eq!(shell.log(&detail.attempts[0]).await.as_deref(), Some("warning\n"));
    let detail = shell.run("temporary", "").await;
    assert_eq!((detail.view.state, errors(&detail)), (JobState::Succeeded, vec!["exit code 75: busy"]));
    let detail = shell.run("permanent", "").await;
    assert_eq!((detail.view.state, errors(&detail)), (JobState::Failed, vec!["exit code 100: one\nbroken"]));
    let detail = shell.run("other", "").await;
    assert_eq!((detail.view.state, errors(&detail)), (JobState::Failed, vec!["exit code 3: oops"; 2]));
    let detail = shell.run("silent", "").await;
    assert_eq!(errors(&detail), ["exit code 4"; 2]);
    assert_eq!(shell.log(&detail.attempts[0]).await, None);
    assert_eq!(errors(&shell.run("signal", "").await), ["killed by signal 11 (SIGSEGV)"; 2]);
    let gone = shell.run("vanishes", "").await;
    let error = errors(&gone)[0];
    assert!(error.starts_with("cannot start /") && error.contains("No such file"), "{gone:?}");
    shell.end().await;
}

pub async fn a_program_gets_its_payload_and_its_environment() {
    let shell = Shell::new(&[
        ("echo", "cat"),
        ("line", "read -r line; printf '%s' \"$line\""),
        ("deaf", "exit 0"),
        ("trace", "printf %s \"${TRACEPARENT-none}\""),
        (
            "environment",
            "printf '%s %s %s %s %s' $QO_JOB_ID $QO_ATTEMPT $QO_FENCE_TOKEN $QO_TASK \"$QO_KEY\"",
        ),
    ])
    .await;
    let output = async |task, payload| {
        let detail = shell.run(task, payload).await;
        detail.output.clone().unwrap_or_else(|| panic!("no output of {task}: {:?}", errors(&detail)))
    };
    assert_eq!(output("echo", "grüße\n").await.as_str(), "\"grüße\\n\"");
    assert_eq!(output("line", "x").await.as_str(), "\"x\"");
    let large = "x".repeat(caps::PAYLOAD_BYTES - 2);
    assert_eq!(output("echo", &large).await.as_str().len(), caps::PAYLOAD_BYTES);
    assert_eq!(output("deaf", &large).await.as_str(), "null");
    assert_eq!(output("trace", "").await.as_str(), "\"none\"");
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let traced = shell.stage.client.submit("trace", "").traceparent(trace).await.expect("submitted");
    let traced = ended(&shell.stage.client, traced).await;
    assert_eq!(traced.output.expect("an output").as_str(), format!("\"{trace}\""));
    let detail = shell.run("environment", "").await;
    let token = detail.attempts[0].token;
    let expected = format!("\"{} 1 {token} environment user/7\"", detail.view.id);
    assert_eq!(detail.output.expect("an output").as_str(), expected);
    shell.end().await;
}

pub async fn whatever_a_program_writes_is_read_and_bounded() {
    let shell = Shell::new(&[
        ("noise", "head -c 5000000 /dev/zero | tr '\\0' e >&2; echo end >&2; echo fine"),
        ("huge", "head -c 50000000 /dev/zero | tr '\\0' o"),
        ("binary", "printf '\\377\\376' >&2; printf '\\377'"),
    ])
    .await;
    let detail = shell.run("noise", "").await;
    assert_eq!(detail.output.expect("an output").as_str(), "\"fine\"");
    let log = shell.log(&detail.attempts[0]).await.expect("a log");
    let (cut, rest) = qo::log::cut(&log);
    let bounds = caps::LOG_BYTES - 100..=caps::LOG_BYTES;
    assert!(bounds.contains(&log.len()) && rest.ends_with("eeend\n"), "{} bytes", log.len());
    assert_eq!(cut + rest.len() as u64, 5_000_004);
    let detail = shell.run("huge", "").await;
    assert_eq!((detail.view.state, detail.attempts.len()), (JobState::Failed, 1));
    assert_eq!(errors(&detail), ["output: stdout must have at most 1048576 bytes"]);
    let detail = shell.run("binary", "").await;
    let output = detail.output.as_ref().expect("an output");
    assert_eq!(qo::program::bytes(output).as_deref(), Some(&b"\xff"[..]), "{}", output.as_str());
    assert_eq!(shell.log(&detail.attempts[0]).await.as_deref(), Some("\\xff\\xfe"));
    shell.end().await;
}

pub async fn what_a_program_leaves_behind_is_killed() {
    let shell = Shell::new(&[
        ("leaves", "sleep 300 & echo $! > FOLDER/left; echo done"),
        // A process that leaves the process group, too, and holds the pipes open.
        ("flees", "setsid sleep 300 & echo $! > FOLDER/fled; echo fled"),
        ("forks", "setsid sh -c 'while :; do sleep 0.01 & done' & sleep 0.2; echo forked"),
    ])
    .await;
    let started = Instant::now();
    let detail = shell.run("leaves", "").await;
    assert_eq!(detail.output.expect("an output").as_str(), "\"done\"");
    let left = shell.stage.number("left").await;
    until("it is dead", async || !is_alive(left)).await;
    let detail = shell.run("flees", "").await;
    assert_eq!(detail.output.expect("an output").as_str(), "\"fled\"");
    assert!(!is_alive(shell.stage.number("fled").await), "it ended before the job did");
    let detail = shell.run("forks", "").await;
    assert_eq!(detail.output.expect("an output").as_str(), "\"forked\"");
    assert!(started.elapsed() < Duration::from_secs(20), "nothing waited for them");
    shell.end().await;
}

pub async fn a_program_that_shall_stop_is_asked_then_killed() {
    let shell = Shell::new(&[
        ("polite", "trap 'echo bye >&2; exit 9' TERM; echo $$ > FOLDER/polite; while :; do sleep 0.01 2> /dev/null; done"),
        ("deaf", "trap '' TERM; echo $$ > FOLDER/deaf; while :; do sleep 0.01; done"),
    ])
    .await;
    for (task, log) in [("polite", Some("bye\n")), ("deaf", None)] {
        let job = shell.stage.client.submit(task, &()).await.expect("submitted");
        let pid = shell.stage.number(task).await;
        shell.stage.store.cancel(vec![job]).await.expect("cancelled");
        let detail = ended(&shell.stage.client, job).await;
        assert_eq!(detail.view.state, JobState::Cancelled, "{task}");
        assert!(!is_alive(pid), "{task} is dead before its slot is free");
        assert_eq!(shell.log(&detail.attempts[0]).await.as_deref(), log, "{task}");
    }
    let job = shell.stage.client.submit("polite", &()).timeout(Duration::from_millis(50)).max_attempts(1);
    let detail = ended(&shell.stage.client, job.await.expect("submitted")).await;
    assert_eq!(errors(&detail), ["timed out after 50ms: exit code 9: bye"]);
    shell.end().await;
}

const WAITS: &str = "[ $QO_ATTEMPT = 2 ] && exit 0; echo $PPID > FOLDER/guard; echo $$ > FOLDER/program; \
                     setsid sleep 300 & echo $! > FOLDER/child; \
                     while ! [ -e FOLDER/go ]; do sleep 0.01; done";

/// Its program probably got them too: exit code 0 after that is no success.
pub async fn a_guard_survives_signals_and_reports_them() {
    let shell = Shell::new(&[("wait", WAITS)]).await;
    let job = shell.stage.client.submit("wait", &()).await.expect("submitted");
    let program = shell.stage.number("program").await;
    for kind in [Signal::TERM, Signal::INT, Signal::HUP] {
        signal(shell.stage.number("guard").await, kind);
    }
    std::fs::write(shell.stage.path("go"), "").expect("written");
    let detail = ended(&shell.stage.client, job).await;
    assert_eq!((detail.view.state, detail.attempts.len()), (JobState::Succeeded, 2));
    assert!(errors(&detail)[0].starts_with("exit code 0 after signal "), "{:?}", errors(&detail));
    assert!(!is_alive(program));
    shell.end().await;
}

pub async fn a_guard_that_is_killed_takes_its_program_and_its_descendants_along() {
    let shell = Shell::new(&[("wait", WAITS)]).await;
    let job = shell.stage.client.submit("wait", &()).await.expect("submitted");
    let (program, child) = (shell.stage.number("program").await, shell.stage.number("child").await);
    signal(shell.stage.number("guard").await, Signal::KILL);
    let detail = ended(&shell.stage.client, job).await;
    assert_eq!((detail.view.state, errors(&detail)), (JobState::Succeeded, vec!["its guard is gone"]));
    assert!(!is_alive(program) && !is_alive(child));
    shell.end().await;
}

pub async fn a_blocked_event_loop_lets_no_program_be_killed() {
    let shell = Shell::new(&[("slow", "echo $$ > FOLDER/slow; sleep 2; echo done")]).await;
    let job = shell.stage.client.submit("slow", &()).await.expect("submitted");
    shell.stage.number("slow").await;
    // Every thread of the event loop blocks for more than two leases. This thread is not one of them.
    let (block, blocked) = mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    for _ in 0..4 {
        let blocked = blocked.clone();
        tokio::spawn(async move { blocked.lock().expect("no panic").recv_timeout(LEASE * 5 / 2).ok() });
    }
    let detail = ended(&shell.stage.client, job).await;
    drop(block);
    assert_eq!((detail.view.state, detail.attempts.len()), (JobState::Succeeded, 1), "{:?}", errors(&detail));
    shell.end().await;
}
