//! What all parts of an attack share: the folder, the store's URL, the diary, the ledger and the time.

use super::attacker::Fault;
use super::diary::Diary;
use super::ground::{Ground, wrong_clock};
use super::ledger::Ledger;
use super::plan;
use super::probe::{DIARY, WORKER};
use super::process::Worker;
use crate::fixture::{Here, Ran};
use qo_judge::{Case, Verdict};
use qo_testkit::random::Random;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Lets time pass until it is stopped.
#[derive(Default)]
pub struct Pace {
    over: Mutex<bool>,
    changed: Condvar,
}

impl Pace {
    /// Waits for this long, or until the end. Returns whether the attack goes on.
    pub fn rest(&self, time: Duration) -> bool {
        let over = self.over.lock().expect("a flag");
        let (over, _) = self.changed.wait_timeout_while(over, time, |over| !*over).expect("a flag");
        !*over
    }

    pub fn end(&self) {
        *self.over.lock().expect("a flag") = true;
        self.changed.notify_all();
    }
}

/// Waits, even if the attack ends meanwhile.
pub fn pause(time: Duration) {
    Pace::default().rest(time);
}

pub struct Stage {
    pub here: Here,
    pub lease: Duration,
    pub diary: Diary,
    pub pace: Pace,
    environment: Vec<(&'static str, String)>,
    ledger: Mutex<Ledger>,
    /// The URL of the store behind the servers, where there are servers.
    behind: Option<String>,
    clock: Option<PathBuf>,
    clock_shifts: &'static [i64],
    workers: AtomicU32,
}

impl Stage {
    pub fn new(ground: &Ground) -> Self {
        let here = Here::new();
        let lease_secs = ground.lease_secs();
        here.write(".qo.toml", &plan::configuration(&ground.url(), lease_secs));
        Self {
            diary: Diary::open(&here.path("diary")),
            clock: wrong_clock(&here.path("")),
            clock_shifts: ground.clock_shifts(),
            environment: ground.environment(),
            behind: ground.behind(),
            lease: Duration::from_secs(lease_secs),
            pace: Pace::default(),
            ledger: Mutex::default(),
            workers: AtomicU32::new(0),
            here,
        }
    }

    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("a ledger")
    }

    /// `qo`, ready to run.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.here.command(arguments);
        command.envs(self.environment.iter().cloned());
        command
    }

    pub fn qo(&self, arguments: &[&str]) -> Ran {
        let output = self.command(arguments).output().expect("qo starts");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }

    /// What the doctor says of the store, which it reads without a server.
    pub fn doctor(&self) -> Ran {
        match &self.behind {
            Some(store) => self.qo(&["doctor", "--verify", "--store", store]),
            None => self.qo(&["doctor", "--verify"]),
        }
    }

    /// Gives a process a wrong wall clock; false where that cannot be done.
    pub fn set_wrong_clock(&self, command: &mut Command, dice: &mut Random) -> bool {
        let Some(library) = &self.clock else { return false };
        let shift = dice.pick(self.clock_shifts);
        command.env("LD_PRELOAD", library).env("ATTACK_CLOCK_SHIFT", shift.to_string());
        true
    }

    /// The fault that cannot be caused here, and why.
    pub fn left_out(&self) -> Option<(Fault, &'static str)> {
        self.clock
            .is_none()
            .then_some((Fault::WrongClock, "there is no C compiler (cc) for the shifted clock"))
    }

    /// An environment entry of every process of the fleet, and of no other.
    pub fn mark(&self) -> String {
        format!("{DIARY}={}", self.diary.path().display())
    }

    /// Starts a worker, after a change to the command.
    pub fn start_worker(&self, change: impl FnOnce(&mut Command)) -> Worker {
        let number = self.workers.fetch_add(1, Ordering::Relaxed) + 1;
        let log = self.here.path(&format!("worker-{number}.log"));
        let mut command = self.command(&["worker", "--name", &format!("w{number}")]);
        change(&mut command);
        command.env(DIARY, self.diary.path()).env(WORKER, number.to_string());
        let said = File::create(&log).expect("a log");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        Worker { number, child: command.spawn().expect("qo starts"), log, was_stopped: false }
    }

    /// What the judge says so far, or at the end, when these jobs are stuck.
    pub fn judge(&self, is_over: bool, stuck: Vec<String>) -> Verdict {
        // The lock order: the ledger, then the diary.
        let (ledger, book) = (self.ledger(), self.diary.book());
        Verdict::of(&Case { stuck, ..ledger.case(self.lease, is_over) }, &book.diary)
    }

    /// Jobs that were acknowledged and have not recorded their end.
    pub fn open(&self) -> Vec<u64> {
        let (ledger, book) = (self.ledger(), self.diary.book());
        ledger.acknowledged.difference(&book.done).copied().collect()
    }

    /// Records what must not be.
    pub fn complain(&self, complaint: Option<String>) {
        if let Some(complaint) = complaint {
            self.ledger().complaints.push(complaint);
        }
    }
}
