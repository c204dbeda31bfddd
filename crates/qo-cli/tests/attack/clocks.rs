//! A bucket whose answers carry a wrong time.
//!
//! Each process is a client of its own, and the server gives it wrong dates as the test says. The jobs themselves count
//! how many of them run; a job counts as long as its process exists.

use crate::fixture::{Here, Ran, Worker, millis, until};
use qo::core::{Clock, SystemClock};
use qo_testkit::{Bucket, DateLies};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

const HOUR_MS: i64 = 3_600_000;
/// How many jobs may run at once.
const LIMIT: usize = 2;

/// Records how many jobs run when it starts, and that it has ended.
const PROBE: &str = r#"
touch running/$$
count=0
for process in $(ls running); do
  if kill -0 $process 2>/dev/null; then count=$((count + 1)); fi
done
echo $count >> counts
sleep 1.5
rm -f running/$$
echo x >> ends
"#;

/// A server in memory, and a directory in which processes use it.
struct Scene {
    server: Bucket,
    here: Here,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let (server, here) = (Bucket::start(seed), Here::new());
        fs::create_dir(here.path("running")).expect("a folder");
        here.script("probe.sh", PROBE);
        let configuration = format!(
            "store = \"s3://qo-test/p\"\n[tasks.probe]\ncommand = [\"./probe.sh\"]\nmax_concurrent = {LIMIT}\n"
        );
        here.write(".qo.toml", &configuration);
        Self { server, here }
    }

    fn spawn(&self, client: &str, arguments: &[&str], log: &str) -> Child {
        let log = fs::File::create(self.here.path(log)).expect("a log");
        let mut command = self.here.command(arguments);
        command.envs(self.server.environment_of(client)).stderr(log).spawn().expect("qo starts")
    }

    fn qo(&self, client: &str, arguments: &[&str]) -> Ran {
        let mut command = self.here.command(arguments);
        let output = command.envs(self.server.environment_of(client)).output().expect("qo runs");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }

    /// A worker of this client, whose session lasts 5 s.
    fn worker(&self, client: &str) -> Worker {
        let arguments =
            ["worker", "--name", client, "--processes", "4", "--default-lease-duration-secs", "5"];
        let worker = Worker::of(self.spawn(client, &arguments, &format!("{client}.log")));
        let named = format!("\"{client}\"");
        until("the worker is alive", || self.qo("right", &["workers", "--json"]).out.contains(&named));
        worker
    }

    fn submit(&self, count: usize) {
        self.qo("right", &["submit", "probe", "--count", &count.to_string(), "--max-attempts", "20"]).ok();
    }

    fn ended(&self) -> usize {
        fs::read_to_string(self.here.path("ends")).unwrap_or_default().lines().count()
    }

    /// Waits until all jobs have succeeded, and returns how many attempts they took.
    fn attempts_of(&self, jobs: usize) -> u64 {
        let listed = || {
            let listed = self.qo("right", &["jobs", "list", "--json"]).json();
            listed.as_array().expect("an array").clone()
        };
        until("all jobs have succeeded", || {
            listed().iter().filter(|job| job["state"] == "succeeded").count() == jobs
        });
        listed().iter().map(|job| job["attempts_used"].as_u64().unwrap_or_else(|| panic!("{job}"))).sum()
    }

    /// The most jobs that ran at once.
    fn peak(&self) -> usize {
        let counts = fs::read_to_string(self.here.path("counts")).expect("jobs have run");
        counts.lines().filter_map(|count| count.trim().parse().ok()).max().unwrap_or(0)
    }

    /// How far store time is from the time of this machine, which the server has.
    fn store_is_off_ms(&self) -> u128 {
        let job = self.qo("right", &["submit", "later", "--delay", "1h", "--json"]).json();
        let id = job["id"].as_str().or(job[0]["id"].as_str()).expect("an id").to_owned();
        let shown = self.qo("right", &["jobs", "show", &id, "--json"]).json();
        let then_ms = millis(&shown["submitted_at"]);
        SystemClock::default().now().as_millis().abs_diff(then_ms).into()
    }
}

/// A process starts for which every answer is wrong; another process holds all slots.
fn a_process_is_told_a_wrong_time(wrong_ms: i64) {
    let scene = Scene::new(1);
    scene.server.set_dates("wrong", DateLies::always(wrong_ms));
    scene.submit(6);
    let _right = scene.worker("right");
    until("jobs run", || scene.here.path("counts").exists());
    let _wrong = scene.worker("wrong");
    assert_eq!(scene.attempts_of(6), 6, "no process lost a lease");
    assert_eq!(scene.peak(), LIMIT);
}

#[test]
fn a_process_told_that_it_is_an_hour_later_ends_no_lease() {
    a_process_is_told_a_wrong_time(HOUR_MS);
}

#[test]
fn a_process_told_that_it_is_an_hour_earlier_ends_no_lease() {
    a_process_is_told_a_wrong_time(-HOUR_MS);
}

/// Any answer to a command may be the wrong one.
#[test]
fn one_wrong_answer_ends_no_lease_and_moves_no_clock() {
    let scene = Scene::new(2);
    scene.submit(6);
    let _right = scene.worker("right");
    until("jobs run", || scene.here.path("counts").exists());
    for answer in 0..16 {
        let wrong_ms = if answer % 4 == 3 { -HOUR_MS } else { HOUR_MS };
        scene.server.set_dates("once", DateLies::once(answer, wrong_ms));
        scene.qo("once", &["concurrency", "set", "probe", "--limit", &LIMIT.to_string()]).ok();
    }
    assert_eq!(scene.attempts_of(6), 6, "no process lost a lease");
    assert_eq!(scene.peak(), LIMIT);
    let off_ms = scene.store_is_off_ms();
    assert!(off_ms < 60_000, "store time is off by {off_ms} ms");
}

/// Every twentieth answer is wrong, to every process; one of the workers is killed.
#[test]
fn wrong_answers_by_chance_end_no_lease_and_a_dead_workers_jobs_run_again() {
    let scene = Scene::new(3);
    for client in ["right", "one", "two"] {
        scene.server.set_dates(client, DateLies::sometimes(5, HOUR_MS));
    }
    scene.submit(6);
    let one = scene.worker("one");
    until("jobs run", || scene.here.path("counts").exists());
    let _two = scene.worker("two");
    until("some have ended", || scene.ended() >= 2);
    one.signal("KILL");
    let attempts = scene.attempts_of(6);
    assert!((6..=6 + LIMIT as u64).contains(&attempts), "{attempts}: only the dead worker lost a lease");
    assert_eq!(scene.peak(), LIMIT);
    let off_ms = scene.store_is_off_ms();
    assert!(off_ms < 60_000, "store time is off by {off_ms} ms");
}

/// A slot that is an object, whose holder lives, while other clients get wrong dates.
#[test]
fn a_wrong_time_steals_no_slot_that_is_an_object() {
    let scene = Scene::new(4);
    let run = ["slot", "run", "--objects", "--group", "g", "--limit", "1", "--lease", "5s"];
    let holding = [&run[..], &["--", "sh", "-c", "echo held; sleep 6; echo kept"]].concat();
    let mut holder = scene.spawn("right", &holding, "holder.log");
    let mut said = BufReader::new(holder.stdout.take().expect("a pipe")).lines();
    assert_eq!(said.next().expect("a line").expect("read"), "held");
    scene.server.set_dates("wrong", DateLies::always(HOUR_MS));
    let no_wait = [&run[..], &["--no-wait", "--", "true"]].concat();
    scene.qo("wrong", &no_wait).code(4).says("not with --no-wait");
    for answer in 0..4 {
        scene.server.set_dates("once", DateLies::once(answer, HOUR_MS));
        scene.qo("once", &no_wait).code(4);
    }
    let waiting = [&run[..], &["--wait", "3s", "--", "true"]].concat();
    scene.qo("wrong", &waiting).code(4);
    assert_eq!(said.next().expect("a line").expect("read"), "kept");
    assert!(holder.wait().expect("it ends").success());
    scene.qo("wrong", &no_wait).ok();
}

/// The slot of a killed holder is free for a command that waits for a lease.
#[test]
fn a_slot_that_is_an_object_is_free_a_lease_after_its_holder_was_killed() {
    let scene = Scene::new(5);
    let run = ["slot", "run", "--objects", "--group", "g", "--limit", "1", "--lease", "5s"];
    let holding = [&run[..], &["--", "sh", "-c", "echo held; exec sleep 600"]].concat();
    let mut holder = scene
        .here
        .command(&holding)
        .envs(scene.server.environment_of("right"))
        .stderr(Stdio::null())
        .spawn()
        .expect("qo starts");
    let mut said = BufReader::new(holder.stdout.take().expect("a pipe")).lines();
    assert_eq!(said.next().expect("a line").expect("read"), "held");
    holder.kill().expect("killed");
    holder.wait().expect("it ends");
    scene.server.advance(Duration::from_secs(60));
    scene.qo("other", &[&run[..], &["--no-wait", "--", "true"]].concat()).code(4);
    scene.qo("other", &[&run[..], &["--wait", "20s", "--", "true"]].concat()).ok();
}
