//! Programs that try to outlive their worker, their lease or their job.
//!
//! A program here records itself that it runs, and when it ended. A killed process is known to be gone by its id. Only
//! the outcome of a job is taken from qo.

use crate::fixture::{Here, Worker, signal, until};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What `/proc` says of a process.
#[derive(Debug, Clone)]
struct Process {
    id: u32,
    parent: u32,
    name: String,
}

/// All running processes, by their ids. A zombie does not run.
fn processes() -> BTreeMap<u32, Process> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter_map(|id| {
        let stat = fs::read(format!("/proc/{id}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat).into_owned();
        let (before, after) = stat.rsplit_once(") ")?;
        let words: Vec<&str> = after.split_whitespace().collect();
        let name = before.split_once('(')?.1.to_owned();
        (!matches!(words[0], "Z" | "X")).then_some((id, Process { id, parent: words[1].parse().ok()?, name }))
    })
    .collect()
}

/// A process and all its descendants, parents before children.
fn tree(root: u32) -> Vec<Process> {
    let all = processes();
    let mut found: Vec<Process> = all.get(&root).cloned().into_iter().collect();
    let mut at = 0;
    while at < found.len() {
        let parent = found[at].id;
        found.extend(all.values().filter(|process| process.parent == parent).cloned());
        at += 1;
    }
    found
}

fn is_alive(id: u32) -> bool {
    processes().contains_key(&id)
}

/// The numbers in a file, one a line; programs write their process ids to it.
fn numbers(path: &Path) -> Vec<u32> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

/// One command for all of them: the signals come within microseconds.
fn signal_all(name: &str, ids: &[u32]) {
    let ids = ids.iter().map(u32::to_string);
    let sent = Command::new("kill").arg(format!("-{name}")).args(ids).stderr(Stdio::null()).status();
    // A process may have ended because of an earlier signal.
    sent.expect("kill starts");
}

/// A worker whose process id is known.
fn worker(here: &Here, arguments: &[&str]) -> (Worker, u32) {
    let mut command = here.command(&[&["worker"][..], arguments].concat());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().expect("qo starts");
    let id = child.id();
    (Worker::of(child), id)
}

/// How many jobs of the namespace are in a state.
fn in_state(here: &Here, state: &str) -> usize {
    here.jobs().iter().filter(|job| job["state"] == state).count()
}

/// A signal to the whole tree: to all processes at once, one by one from the root, or to the shell long before its
/// worker.
#[test]
fn a_line_that_a_signal_to_the_whole_tree_ends_has_not_succeeded() {
    for order in ["at once", "one by one", "shell first"] {
        let here = Here::new();
        let line = "(sleep 60 && echo a >> o) & (sleep 60 && echo b >> o) & echo $$ > started; wait";
        let (worker, root) = worker(&here, &["--task", &format!("par={line}")]);
        let job = here.qo(&["submit", "par"]).line();
        until("it runs", || !numbers(&here.path("started")).is_empty());
        let shell = numbers(&here.path("started"))[0];
        let mut ids: Vec<u32> = tree(root).iter().map(|process| process.id).collect();
        assert!(ids.len() >= 5 && ids.contains(&shell), "a worker, a guard, a shell, its children: {ids:?}");
        if order == "shell first" {
            ids.sort_by_key(|id| *id != shell);
        }
        match order {
            "at once" => signal_all("TERM", &ids),
            _ => ids.iter().for_each(|id| signal_all("TERM", &[*id])),
        }
        assert_eq!(worker.wait(), 0, "a drained worker ends well");
        assert!(!here.path("o").exists(), "its work is undone");
        let detail = here.qo(&["jobs", "show", &job, "--json"]).json();
        assert_eq!(detail["state"], "pending", "{order}: {detail}");
        assert_eq!(detail["attempts_used"], 0, "{order}: {detail}");
    }
}

#[test]
fn a_program_that_exits_with_0_on_a_signal_to_the_tree_has_not_succeeded() {
    let here = Here::new();
    here.script("polite.sh", "trap 'exit 0' TERM; echo $$ > started; while :; do sleep 0.1; done");
    here.write(".qo.toml", "[tasks.polite]\ncommand = [\"./polite.sh\"]\n");
    let (worker, root) = worker(&here, &[]);
    let job = here.qo(&["submit", "polite"]).line();
    until("it runs", || !numbers(&here.path("started")).is_empty());
    let ids: Vec<u32> = tree(root).iter().map(|process| process.id).collect();
    signal_all("TERM", &ids);
    assert_eq!(worker.wait(), 0);
    let detail = here.qo(&["jobs", "show", &job, "--json"]).json();
    assert_eq!((&detail["state"], &detail["attempts_used"]), (&"pending".into(), &0.into()), "{detail}");
}

#[test]
fn a_cancelled_program_that_exits_with_0_has_not_succeeded() {
    for command in ["[\"./polite.sh\"]", "\"./polite.sh; exit 0\""] {
        let here = Here::new();
        here.script("polite.sh", "trap 'exit 0' TERM; echo $$ > started; while :; do sleep 0.1; done");
        here.write(
            ".qo.toml",
            &format!("[tasks.polite]\ncommand = {command}\n[tasks.next]\ncommand = \"touch next\"\n"),
        );
        let (_worker, _) = worker(&here, &[]);
        let job = here.qo(&["submit", "polite", "--workflow", "w"]).line();
        here.qo(&["submit", "next", "--workflow", "w"]).ok();
        until("it runs", || !numbers(&here.path("started")).is_empty());
        here.qo(&["jobs", "cancel", &job]).ok();
        until("it has ended", || in_state(&here, "running") == 0);
        let detail = here.qo(&["jobs", "show", &job, "--json"]).json();
        assert_eq!(detail["state"], "cancelled", "{command}: {detail}");
        assert_eq!(in_state(&here, "pending"), 1, "{command}: its workflow is halted");
        assert!(!here.path("next").exists());
    }
}

#[test]
fn a_line_may_exit_with_any_code() {
    let here = Here::new();
    let (_worker, _) = worker(&here, &["--task", "odd=exit 79", "--task", "even=exit 143"]);
    for (task, code) in [("odd", "79"), ("even", "143")] {
        here.qo(&["submit", task, "--max-attempts", "1", "--wait", "--wait-timeout", "1m"])
            .code(1)
            .says(&format!("exit code {code}"));
    }
}

#[test]
fn a_worker_whose_executable_was_replaced_goes_on() {
    let here = Here::new();
    fs::copy(env!("CARGO_BIN_EXE_qo"), here.path("qo-copy")).expect("a copy");
    let mut copy = Command::new(here.path("qo-copy"));
    copy.args(["worker", "--task", "a=touch done"]).current_dir(here.path("")).env_remove("QO_STORE");
    let child = copy.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let _worker = Worker::of(child);
    until("it is alive", || here.qo(&["workers", "--json"]).out.contains("\"worker\""));
    fs::remove_file(here.path("qo-copy")).expect("removed");
    here.script("qo-copy", "exit 1");
    here.qo(&["submit", "a", "--max-attempts", "1", "--wait", "--wait-timeout", "1m"]).ok();
    assert!(here.path("done").exists());
}

#[test]
fn the_guards_of_a_worker_that_is_itself_a_program_carry_no_mark() {
    let here = Here::new();
    let mark = format!("QO_GUARDED_BY=outer-{}", std::process::id());
    here.script("look.sh", "grep -lszxF -- \"$1\" /proc/[0-9]*/environ > marked; echo $PPID > guard; true");
    let mut run = here.command(&["slot", "run", "--group", "g", "--limit", "1", "--", "./look.sh", &mark]);
    let (name, value) = mark.split_once('=').expect("a variable");
    let mut holder = run.env(name, value).spawn().expect("qo starts");
    let root = holder.id();
    assert!(holder.wait().expect("it ends").success());
    let marked = fs::read_to_string(here.path("marked")).expect("it looked");
    assert_eq!(marked, format!("/proc/{root}/environ\n"), "only the outer program itself has it");
    assert_ne!(numbers(&here.path("guard")), [root], "a guard is between them");
}

#[test]
fn slot_run_with_a_killed_guard_frees_its_slot_after_its_command_ends() {
    let here = Here::new();
    family(&here);
    let run = ["slot", "run", "--group", "g", "--limit", "1", "--", "./family.sh"];
    let mut holder = here.command(&run).spawn().expect("qo starts");
    let alive = || numbers(&here.path("alive"));
    until("the command and its children run", || alive().len() == 4);
    let guard = tree(holder.id()).into_iter().find(|process| process.name == "task-guard");
    signal_all("KILL", &[guard.expect("a guard").id]);
    let next = here.qo(&["slot", "run", "--group", "g", "--limit", "1", "--", "sh", "-c", "cat alive; true"]);
    assert_eq!(next.ok().out.lines().count(), 4);
    let left: Vec<u32> = alive().into_iter().filter(|id| is_alive(*id)).collect();
    assert!(left.is_empty(), "{left:?} outlive their slot");
    holder.wait().expect("it ends");
}

#[test]
fn a_success_during_a_drain_that_only_the_worker_was_told_of_counts() {
    let here = Here::new();
    let (worker, root) =
        worker(&here, &["--task", "slow=touch started; until [ -e go ]; do sleep 0.05; done"]);
    let job = here.qo(&["submit", "slow"]).line();
    until("it runs", || here.path("started").exists());
    signal(root, "TERM");
    until("it drains", || here.qo(&["workers", "--json"]).out.contains("\"draining\": true"));
    here.write("go", "");
    assert_eq!(worker.wait(), 0);
    assert_eq!(here.qo(&["jobs", "show", &job, "--json"]).json()["state"], "succeeded");
}

#[test]
fn slot_run_does_not_call_a_command_that_was_told_to_stop_a_success() {
    for signalled in ["slot run alone", "all processes"] {
        let here = Here::new();
        here.script("polite.sh", "trap 'exit 0' TERM; echo $$ > started; while :; do sleep 0.1; done");
        let run = ["slot", "run", "--group", "g", "--limit", "1", "--", "./polite.sh"];
        let mut holder = here.command(&run).spawn().expect("qo starts");
        until("it runs", || !numbers(&here.path("started")).is_empty());
        let ids: Vec<u32> = tree(holder.id()).iter().map(|process| process.id).collect();
        match signalled {
            "all processes" => signal_all("TERM", &ids),
            _ => signal(holder.id(), "TERM"),
        }
        assert_eq!(holder.wait().expect("it ends").code(), Some(143), "{signalled}");
    }
}

/// A program that records its process id, and never ends by itself.
const PROBE: &str = "echo $$ >> started; exec sleep 600";

#[test]
fn what_moves_to_another_group_or_session_ends_with_its_attempt() {
    for wrapped in [
        "timeout 600 ./probe.sh",
        "setsid -w ./probe.sh",
        "setsid ./probe.sh & sleep 600",
        "timeout 600 setsid ./probe.sh & wait",
    ] {
        let here = Here::new();
        here.script("probe.sh", PROBE);
        here.write(
            ".qo.toml",
            &format!("[tasks.probe]\ncommand = \"{wrapped}\"\nmax_concurrent = 1\nretry = {{ base_ms = 0, max_ms = 0 }}\n"),
        );
        let (_worker, _) = worker(&here, &["--cancel-grace-ms", "100"]);
        here.qo(&["submit", "probe", "--timeout", "500ms", "--max-attempts", "3"]).ok();
        // When the next attempt has started, no process of the one before is left.
        let started = || numbers(&here.path("started"));
        for attempt in 1..=3 {
            until("the attempt has started", || started().len() == attempt);
            let alive: Vec<u32> = started().into_iter().filter(|id| is_alive(*id)).collect();
            assert!(alive.len() <= 1, "{wrapped}: {alive:?} of {:?} run at once", started());
        }
        until("the job has failed", || in_state(&here, "failed") == 1);
        let alive: Vec<u32> = started().into_iter().filter(|id| is_alive(*id)).collect();
        assert!(alive.is_empty(), "{wrapped}: {alive:?} outlived the job");
    }
}

#[test]
fn a_daemon_that_a_program_leaves_behind_does_not_outlive_its_job() {
    let here = Here::new();
    here.script("daemon.sh", "trap '' TERM HUP; echo $$ > daemon; while :; do sleep 0.1; done");
    let line = "setsid ./daemon.sh > /dev/null 2>&1 & until [ -s daemon ]; do sleep 0.01; done";
    let (_worker, _) = worker(&here, &["--task", &format!("leaves={line}")]);
    let job = here.qo(&["submit", "leaves"]).line();
    until("it has succeeded", || here.qo(&["jobs", "show", &job, "--json"]).json()["state"] == "succeeded");
    assert!(!is_alive(numbers(&here.path("daemon"))[0]), "the job ended and its daemon lives");
}

/// Programs with children in their own group, another group and another session. Each writes its id to `alive`.
fn family(here: &Here) {
    here.script("leaf.sh", "trap '' TERM HUP; echo $$ >> $1; while :; do sleep 0.1; done");
    here.script(
        "family.sh",
        "echo $$ >> alive; ./leaf.sh alive & setsid ./leaf.sh alive & timeout 600 ./leaf.sh alive & wait",
    );
    here.write(".qo.toml", "[tasks.family]\ncommand = [\"./family.sh\"]\nmax_concurrent = 3\n");
}

/// Kills a worker and the processes between it and its programs, found in one of three ways.
fn kill_with_guards(by: &str) {
    let here = Here::new();
    family(&here);
    let lease = ["--processes", "10", "--default-lease-duration-secs", "20"];
    let (worker, root) = worker(&here, &lease);
    here.qo(&["submit", "family", "--count", "5"]).ok();
    let alive = || numbers(&here.path("alive"));
    until("the programs and their children run", || alive().len() == 12);
    let programs = alive();
    assert!(programs.iter().all(|id| is_alive(*id)), "they run");
    let tree = tree(root);
    let executable = fs::read_link(format!("/proc/{root}/exe")).expect("a link");
    let is_ours = |process: &&Process| match by {
        "name" => process.name == "qo",
        "executable" => fs::read_link(format!("/proc/{}/exe", process.id)).is_ok_and(|exe| exe == executable),
        _ => !programs.contains(&process.id) && process.name != "sleep" && process.name != "timeout",
    };
    let killed: Vec<u32> = tree.iter().filter(is_ours).map(|process| process.id).collect();
    assert!(killed.contains(&root) && (by == "name" || killed.len() >= 4), "{by}: {killed:?} of {tree:?}");
    let at = Instant::now();
    signal_all("KILL", &killed);
    until("the programs are gone", || !programs.iter().any(|id| is_alive(*id)));
    assert!(
        at.elapsed() < Duration::from_secs(10),
        "{by}: long before the lease is over: {:?}",
        at.elapsed()
    );
    drop(worker);
}

#[test]
fn programs_end_with_a_worker_and_guards_that_are_killed_by_name() {
    kill_with_guards("name");
}

#[test]
fn programs_end_with_a_worker_and_guards_that_are_killed_by_executable() {
    kill_with_guards("executable");
}

#[test]
fn programs_end_with_a_worker_and_guards_that_are_killed_by_their_ids() {
    kill_with_guards("ids");
}

#[test]
fn a_limit_holds_when_a_worker_and_its_guards_are_killed_again_and_again() {
    let here = Here::new();
    // Each process records itself that it runs, one line a beat: children in another session and another group.
    here.script("beat.sh", "while :; do date +%s%N >> beats-$1; sleep 0.02; done");
    here.script(
        "work.sh",
        "setsid ./beat.sh $QO_FENCE_TOKEN & timeout 600 ./beat.sh $QO_FENCE_TOKEN & sleep 0.6",
    );
    here.write(".qo.toml", "[tasks.work]\ncommand = [\"./work.sh\"]\nmax_concurrent = 3\n");
    here.qo(&["submit", "work", "--count", "9", "--max-attempts", "20"]).ok();
    for _ in 0..3 {
        let before = here.jobs().iter().filter(|job| job["state"] == "pending").count();
        let (_worker, root) = worker(&here, &["--processes", "10", "--default-lease-duration-secs", "1"]);
        until("some run", || in_state(&here, "running") > 0 || in_state(&here, "pending") < before);
        let tree = tree(root);
        let guards: Vec<u32> =
            tree.iter().filter(|process| process.name == "task-guard").map(|process| process.id).collect();
        signal_all("KILL", &[&[root][..], &guards].concat());
    }
    let (_worker, _) = worker(&here, &["--processes", "10", "--default-lease-duration-secs", "1"]);
    until("all have succeeded", || in_state(&here, "succeeded") == 9);
    assert_eq!(most_at_once(&here), 3, "of a limit of 3");
}

/// How many attempts ran at once, at most, by the beats that they recorded.
fn most_at_once(here: &Here) -> usize {
    let files = fs::read_dir(here.path("")).expect("a directory").flatten();
    let beats = files.filter(|file| file.file_name().to_string_lossy().starts_with("beats-"));
    let mut moments: Vec<(u64, i32)> = Vec::new();
    for file in beats {
        let text = fs::read_to_string(file.path()).expect("beats");
        let beats: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        let (first, last) = (beats.iter().min(), beats.iter().max());
        moments.extend(first.map(|at| (*at, 1)));
        moments.extend(last.map(|at| (*at, -1)));
    }
    moments.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, change) in moments {
        now += change;
        most = most.max(now);
    }
    usize::try_from(most).expect("more starts than ends")
}

#[test]
fn a_worker_of_programs_runs_as_many_at_once_as_there_are_cpus() {
    let here = Here::new();
    let cpus = std::thread::available_parallelism().expect("a number").get();
    let permits = |name: &str| {
        let workers = here.qo(&["workers", "--json"]).json();
        let found =
            workers.as_array().expect("an array").iter().find(|worker| worker["worker"] == name).cloned();
        found.expect("it is alive")["permits"].clone()
    };
    let _usual = here.worker(&["--task", "a=true", "--name", "usual"]);
    assert_eq!(permits("usual"), cpus);
    let log = fs::read_to_string(here.path("usual.log")).expect("a log");
    assert!(log.contains(&format!("processes={cpus},")), "{log}");
    let _told = here.worker(&["--task", "a=true", "--name", "told", "--max-concurrent-tasks", "77"]);
    assert_eq!(permits("told"), 77);
}
