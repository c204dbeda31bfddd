//! A fleet under attack. Worker processes are killed, stopped and terminated, alone and with their guards and programs.
//! The store goes away and comes back, clocks are wrong, disks are full, limits change, queues pause and submits are
//! killed. Meanwhile the jobs themselves record when they run, and the judge (`qo_judge`) reads these records.
//!
//! `make test` attacks each store for some seconds. `make attack MINUTES=60` goes on for longer and reports; the
//! environment says how: `QO_ATTACK_MINUTES`, `QO_ATTACK_STORE` (`directory`, `postgres`, `bucket`, `served` or `all`) and
//! `QO_ATTACK_SEED`.

mod attacker;
mod diary;
mod ground;
mod judged;
mod ledger;
mod operator;
mod plan;
mod probe;
mod process;
mod scripts;
mod served;
mod stage;
mod submitter;

use attacker::{Attacker, Fault};
use ground::{Disk, Ground, Leftovers, Server};
use qo_judge::{Verdict, now_ns};
use qo_testkit::Bucket;
use qo_testkit::random::Random;
use rustix::process::Signal;
use serde_json::Value;
use served::Served;
use stage::{Pace, Stage, pause};
use std::io::Write;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// How long an attack lasts in `make test`.
const SHORT: Duration = Duration::from_secs(6);
/// Processes that submit.
const SUBMITTERS: u64 = 2;
/// How long everything may take once the faults are over.
const PATIENCE: Duration = Duration::from_secs(120);
/// On a machine with more work than cores everything takes longer.
const SLACK: Duration = Duration::from_secs(10);
/// How often an idle worker looks for work, at most.
const POLL: Duration = Duration::from_secs(5);
/// An attack of this length has caused every fault.
const ENOUGH: Duration = Duration::from_secs(300);
/// How often a long attack reports its progress.
const PROGRESS: Duration = Duration::from_secs(15);

/// What the environment asks for.
struct Order {
    length: Duration,
    seed: u64,
    /// It was started by `make attack`, not by `make test`.
    long: bool,
}

impl Order {
    /// None if another store is to be attacked.
    fn of(store: &str) -> Option<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let which = variable("QO_ATTACK_STORE").unwrap_or_else(|| "all".to_owned());
        assert!(
            ["directory", "postgres", "bucket", "served", "all"].contains(&which.as_str()),
            "QO_ATTACK_STORE: {which:?}: must be directory, postgres, bucket, served or all"
        );
        let seed = variable("QO_ATTACK_SEED").map(|seed| seed.parse().expect("QO_ATTACK_SEED is a number"));
        let minutes = variable("QO_ATTACK_MINUTES").map(|minutes| minutes.parse::<f64>());
        let order = match minutes {
            None => Self { length: SHORT, seed: seed.unwrap_or(1), long: false },
            Some(minutes) => Self {
                length: Duration::from_secs_f64(minutes.expect("QO_ATTACK_MINUTES is a number") * 60.0),
                seed: seed.unwrap_or_else(|| std::process::id().into()),
                long: true,
            },
        };
        (which == "all" || which == store).then_some(order)
    }
}

#[test]
fn a_fleet_on_a_directory_holds_under_attack() {
    if let Some(order) = Order::of("directory") {
        let disk = Disk::new(if order.long { 256 } else { 32 });
        attack(Ground::Directory(disk), &order);
    }
}

#[test]
fn a_fleet_on_postgresql_holds_under_attack() {
    if let Some(order) = Order::of("postgres") {
        attack(Ground::Postgres(Server::start()), &order);
    }
}

#[test]
fn a_fleet_in_a_bucket_holds_under_attack() {
    if let Some(order) = Order::of("bucket") {
        attack(Ground::Bucket(Bucket::start(order.seed)), &order);
    }
}

#[test]
fn a_fleet_behind_two_servers_holds_under_attack() {
    if let Some(order) = Order::of("served") {
        attack(Ground::Served(Served::start()), &order);
    }
}

/// Ends the other threads of an attack, however this thread ends.
struct Ending<'a>(&'a Pace);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn attack(mut ground: Ground, order: &Order) {
    let name = ground.name();
    let say = |text: String| {
        if order.long {
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    };
    say(format!("attack on a {name} for {:?}, QO_ATTACK_SEED={}", order.length, order.seed));
    let stage = Stage::new(&ground);
    if order.long {
        clean_up_when_stopped(ground.leftovers(), stage.mark());
    }
    let left_out: Vec<(Fault, &str)> = ground.left_out().into_iter().chain(stage.left_out()).collect();
    left_out.iter().for_each(|(fault, why)| say(format!("left out: {fault}: {why}")));
    if name == "postgres" {
        stage.qo(&["migrate", "up"]).ok();
    }
    let mut dice = Random::new(order.seed);
    let mut attacker = Attacker::new(&stage, dice.fork());
    let every = if order.long { (250, 900) } else { (150, 450) };
    let started = Instant::now();
    std::thread::scope(|scope| {
        let stage = &stage;
        let ending = Ending(&stage.pace);
        for first in 1..=SUBMITTERS {
            let dice = dice.fork();
            scope.spawn(move || submitter::submit(stage, dice, first, SUBMITTERS));
        }
        let (operators, scripts) = (dice.fork(), dice.fork());
        scope.spawn(move || operator::operate(stage, operators));
        scope.spawn(move || scripts::run(stage, scripts));
        scope.spawn(move || {
            if stage.pace.rest(order.length) {
                stage.pace.end();
            }
        });
        let mut told = started;
        attacker.rage(&mut ground, every, || {
            if order.long && told.elapsed() > PROGRESS {
                told = Instant::now();
                say(format!("{:>5} s: {}", started.elapsed().as_secs(), progress(stage)));
            }
        });
        drop(ending);
    });
    attacker.heal();
    let healed = Instant::now();
    let stuck = converge(&stage, &mut attacker);
    let drained = healed.elapsed();
    attacker.end();
    look_behind(&stage);
    stage.complain(ground.complaint());
    stage.ledger().complaints.extend(stuck.complaints);
    let verdict = stage.judge(true, stuck.jobs);
    let faults: Vec<String> =
        stage.ledger().faults.iter().map(|(fault, times)| format!("{fault} {times}")).collect();
    let report = format!(
        "attack on a {name}, seed {}, {:.0} s; the last job ended {:.1} s after the last fault\nfaults: {}\n{}, {verdict}",
        order.seed,
        (healed - started).as_secs_f64(),
        drained.as_secs_f64(),
        faults.join(", "),
        sizes(&stage)
    );
    say(report.clone());
    assert!(verdict.holds(), "{report}");
    if order.length >= ENOUGH {
        let mut missing = Fault::all(&ground);
        missing.retain(|fault| !stage.ledger().faults.contains_key(fault));
        missing.retain(|fault| left_out.iter().all(|(known, _)| known != fault));
        assert!(missing.is_empty(), "these faults never happened: {missing:?}\n{report}");
    }
}

/// How many jobs there were, and how many runs of which kind.
fn sizes(stage: &Stage) -> String {
    let (ledger, book) = (stage.ledger(), stage.diary.book());
    format!(
        "jobs {}, acknowledged {}, runs by the schedule {}, of scripts {}",
        ledger.jobs.range(..plan::SCRIPTS).count(),
        ledger.acknowledged.len(),
        book.runs(|number| number == 0),
        book.runs(|number| number >= plan::SCRIPTS)
    )
}

/// A signal ends a process without dropping anything: this thread cleans up.
fn clean_up_when_stopped(leftovers: Leftovers, mark: String) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    std::thread::spawn(move || {
        runtime.block_on(async {
            let listen = |kind| signal(kind).expect("a signal");
            let (mut terminate, mut hang_up) =
                (listen(SignalKind::terminate()), listen(SignalKind::hangup()));
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
                _ = hang_up.recv() => {}
            }
        });
        process::marked(&mark).into_iter().for_each(|pid| process::signal(pid, Signal::KILL));
        leftovers.remove();
        std::process::exit(130);
    });
}

/// The progress of an attack, in one line.
fn progress(stage: &Stage) -> String {
    let verdict = stage.judge(false, Vec::new());
    let Verdict { runs, over_limit, overlaps, .. } = verdict;
    let (acknowledged, disorder) = (verdict.jobs.acknowledged, verdict.workflows.disorder);
    let faults: usize = stage.ledger().faults.values().sum();
    format!(
        "runs {runs}, acknowledged {acknowledged}, open {}, faults {faults}, over-limit {over_limit}, \
         overlaps {overlaps}, disorder {disorder}, violations {}",
        stage.open().len(),
        verdict.violations.len()
    )
}

/// Jobs that do not end.
#[derive(Default)]
struct Stuck {
    jobs: Vec<String>,
    /// What the store says about them.
    complaints: Vec<String>,
}

/// Waits until every job has ended. Returns what is wrong with those that do not: nothing may stand still for longer
/// than a lease, a sweep and a look for work (G5).
fn converge(stage: &Stage, attacker: &mut Attacker<'_>) -> Stuck {
    let (healed_ns, healed) = (now_ns(), Instant::now());
    let bound = stage.lease * 3 / 2 + POLL + SLACK;
    let mut ticks = true;
    loop {
        ticks = ticks && stage.qo(&["schedules", "disable", "tick"]).code != 0;
        let open = stage.open();
        if !ticks && open.is_empty() && live(stage) == Some(0) {
            return Stuck::default();
        }
        let last_ns = stage.diary.book().diary.last_ns().max(healed_ns);
        if now_ns() > last_ns + bound.as_nanos() as u64 || healed.elapsed() > PATIENCE {
            let mut complaints = Vec::new();
            let listed = stage.qo(&["jobs", "list", "--json"]);
            complaints.push(format!(
                "{:?} jobs are live, the last sign of one is {} s old",
                live(stage),
                (now_ns() - last_ns) / 1_000_000_000
            ));
            for job in serde_json::from_str::<Vec<Value>>(&listed.out).unwrap_or_default() {
                let is_live = ["pending", "claimed", "running"].map(Value::from).contains(&job["state"]);
                if let (true, Some(id)) = (is_live && complaints.len() < 8, job["id"].as_str()) {
                    complaints.push(format!("{id}: {}", stage.qo(&["explain", id]).out));
                }
            }
            return Stuck { jobs: open.iter().map(ToString::to_string).collect(), complaints };
        }
        attacker.keep_up();
        pause(Duration::from_millis(50));
    }
}

/// How many jobs have not ended, as the store says; none while it does not answer.
fn live(stage: &Stage) -> Option<u64> {
    let queues: Vec<Value> = serde_json::from_str(&stage.qo(&["queues", "--json"]).out).ok()?;
    let states = ["running", "claimed", "due", "scheduled", "waiting"];
    Some(queues.iter().flat_map(|queue| states.map(|state| queue[state].as_u64().unwrap_or(0))).sum())
}

/// What must hold when the fleet is gone: no process of it lives, no slot is held, and the store is whole.
fn look_behind(stage: &Stage) {
    let gone = Instant::now();
    let mut left = process::marked(&stage.mark());
    while !left.is_empty() && gone.elapsed() < SLACK {
        pause(Duration::from_millis(20));
        left = process::marked(&stage.mark());
    }
    stage.complain((!left.is_empty()).then(|| format!("processes outlive their workers: {left:?}")));
    left.into_iter().for_each(|pid| process::signal(pid, Signal::KILL));
    let status = stage.qo(&["concurrency", "status", "--json"]);
    let groups: Vec<Value> = serde_json::from_str(&status.out).unwrap_or_default();
    let held: Vec<&Value> = groups.iter().filter(|group| group["used"].as_u64() != Some(0)).collect();
    stage.complain(
        (groups.is_empty() || !held.is_empty()).then(|| format!("slots are held: {held:?} {}", status.err)),
    );
    let doctor = stage.doctor();
    stage.complain((doctor.code != 0).then(|| format!("the doctor: {}{}", doctor.out, doctor.err)));
}
