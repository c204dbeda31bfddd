//! The faults of workers, guards, programs and the store, one after another, in random order.

use super::ground::Ground;
use super::process::{Worker, below, marked, signal};
use super::served::Network;
use super::stage::{Stage, pause};
use qo_judge::Stop;
use qo_testkit::random::Random;
use rustix::process::Signal;
use std::fmt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// The faults of a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// SIGKILL to a worker: its guards kill its programs.
    KillWorker,
    /// SIGKILL to a worker and its guards, as `pkill -9 qo` does.
    KillWithGuards,
    /// SIGKILL to one guard.
    KillGuard,
    /// SIGKILL to one program.
    KillProgram,
    /// SIGKILL to a submit.
    KillSubmit,
    /// SIGKILL to a script that holds slots: its guard kills the command.
    KillScript,
    /// SIGSTOP to a script that holds slots, for longer than its lease. Its guard goes on.
    StopScript,
    /// SIGSTOP to a worker for longer than its lease. Its guards go on, so its programs must end in time.
    StopWorker,
    /// SIGSTOP to a worker, its guards and its programs for longer than its lease.
    StopTree,
    /// SIGTERM to a worker: it drains, and exits with 0.
    TermWorker,
    /// SIGTERM to a worker, its guards and its programs at once, as systemd does by default.
    TermTree,
    /// A worker whose wall clock is off, by decades where the store allows it.
    WrongClock,
    /// A worker that may write no file larger than some KiB: its disk is full, other workers' disks are not.
    SmallDisk,
    /// The store is away: its disk is full, its server crashes, or its network resets every connection.
    Outage,
    /// Every connection to the server is cut.
    Cut,
    /// SIGKILL to one of the servers of the store, which starts again.
    KillServer,
    /// SIGTERM to one of the servers: it drains, exits with 0 and starts again.
    DrainServer,
    /// The network to the servers hands bytes on late.
    LateNetwork,
    /// The network to the servers hands on a kilobyte a second.
    SlowNetwork,
    /// The network to the servers swallows bytes without a word, and then resets the connections.
    HalfOpenNetwork,
}

impl Fault {
    /// What the attacker does on this ground, except stops, which take longer than a lease.
    fn short(ground: &Ground) -> Vec<Self> {
        use Fault::*;
        let mut all = vec![
            KillWorker,
            KillWithGuards,
            KillGuard,
            KillProgram,
            TermWorker,
            TermTree,
            WrongClock,
            Outage,
        ];
        match ground {
            Ground::Directory(_) => all.push(SmallDisk),
            Ground::Postgres(_) => all.push(Cut),
            Ground::Bucket(_) => {}
            Ground::Served(_) => {
                all.extend([Cut, KillServer, DrainServer, LateNetwork, SlowNetwork, HalfOpenNetwork]);
            }
        }
        all
    }

    /// Every fault that an attack on this ground has time for, on any thread.
    pub fn all(ground: &Ground) -> Vec<Self> {
        let others = [Self::StopWorker, Self::StopTree, Self::KillSubmit, Self::KillScript, Self::StopScript];
        [Self::short(ground), others.to_vec()].concat()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KillWorker => "worker killed",
            Self::KillWithGuards => "worker killed with its guards",
            Self::KillGuard => "guard killed",
            Self::KillProgram => "program killed",
            Self::KillSubmit => "submit killed",
            Self::KillScript => "script killed",
            Self::StopScript => "script stopped",
            Self::StopWorker => "worker stopped",
            Self::StopTree => "worker stopped with all its processes",
            Self::TermWorker => "worker terminated",
            Self::TermTree => "worker terminated with all its processes",
            Self::WrongClock => "process with a wrong clock",
            Self::SmallDisk => "worker with a full disk",
            Self::Outage => "store away",
            Self::Cut => "connections cut",
            Self::KillServer => "server killed",
            Self::DrainServer => "server drained",
            Self::LateNetwork => "late network",
            Self::SlowNetwork => "slow network",
            Self::HalfOpenNetwork => "half-open network",
        })
    }
}

/// Workers of the fleet.
const WORKERS: usize = 4;
/// Longest that a worker may take to end by itself, or to be gone after a fault.
const PATIENCE: Duration = Duration::from_secs(60);

/// A worker that leaves the fleet, or changes, at some time.
struct Passing {
    worker: Worker,
    until: Instant,
    what: Then,
}

/// What happens to it at that time.
#[derive(PartialEq, Eq)]
enum Then {
    /// It goes on, as a worker of the fleet.
    GoOn,
    /// It goes on for a moment, and is killed.
    GoOnAndDie,
    Die,
    /// It must have ended by then.
    BeGone,
}

/// The fleet and its faults.
pub struct Attacker<'a> {
    stage: &'a Stage,
    dice: Random,
    workers: Vec<Worker>,
    passing: Vec<Passing>,
    deck: Vec<Fault>,
}

impl<'a> Attacker<'a> {
    /// Starts the workers.
    pub fn new(stage: &'a Stage, dice: Random) -> Self {
        let workers = (0..WORKERS).map(|_| stage.start_worker(|_| {})).collect();
        Self { stage, dice, workers, passing: Vec::new(), deck: Vec::new() }
    }

    /// Causes faults until the attack is over. `progress` is called now and then.
    pub fn rage(&mut self, ground: &mut Ground, every: (u64, u64), mut progress: impl FnMut()) {
        ground.annoy(true);
        while self.stage.pace.rest(Duration::from_millis(self.dice.within(every.0..=every.1))) {
            self.tend(false);
            let fault = self.next(ground);
            if self.harm(ground, fault) {
                self.stage.ledger().count(fault);
            }
            progress();
        }
        ground.annoy(false);
    }

    /// The next fault: each one once, in a new order each time. Slow faults come first.
    fn next(&mut self, ground: &Ground) -> Fault {
        if let Some(fault) = self.deck.pop() {
            return fault;
        }
        self.deck = Fault::short(ground);
        for last in (1..self.deck.len()).rev() {
            let other = self.dice.below(last + 1);
            self.deck.swap(last, other);
        }
        self.deck.push(Fault::StopTree);
        Fault::StopWorker
    }

    /// Causes one fault. Returns whether it could.
    fn harm(&mut self, ground: &mut Ground, fault: Fault) -> bool {
        let past_its_lease = self.stage.lease + Duration::from_millis(self.dice.within(300..=1_500));
        match fault {
            Fault::KillWorker => {
                let mut worker = self.take();
                worker.kill();
                self.gone(worker, None);
            }
            Fault::KillWithGuards => {
                let mut worker = self.take();
                // Stop it first, so that it does not see its guards die and react.
                worker.signal(Signal::STOP);
                let (guards, _) = below(worker.id());
                guards.into_iter().for_each(|guard| signal(guard, Signal::KILL));
                worker.kill();
                self.gone(worker, None);
            }
            Fault::KillGuard | Fault::KillProgram => {
                let running = self.workers.iter().map(|worker| below(worker.id()));
                let mut found: Vec<u32> = running
                    .flat_map(|(guards, programs)| if fault == Fault::KillGuard { guards } else { programs })
                    .collect();
                if fault == Fault::KillProgram {
                    // The shell line of this task ignores how its programs ended.
                    let careless = marked("QO_TASK=par");
                    found.retain(|pid| !careless.contains(pid));
                }
                if found.is_empty() {
                    return false;
                }
                signal(self.dice.pick(&found), Signal::KILL);
            }
            Fault::StopWorker => {
                let mut worker = self.take();
                worker.stop(false);
                self.pass(worker, past_its_lease, Then::GoOn);
            }
            Fault::StopTree => {
                let mut worker = self.take();
                let at_ns = worker.stop(true);
                let stop = Stop { worker: worker.number.to_string(), at_ns, until_ns: None, writes: None };
                self.stage.ledger().stops.push(stop);
                self.pass(worker, past_its_lease, Then::GoOnAndDie);
            }
            Fault::TermWorker => {
                let worker = self.take();
                worker.signal(Signal::TERM);
                self.pass(worker, PATIENCE, Then::BeGone);
            }
            Fault::TermTree => {
                let worker = self.take();
                let (guards, programs) = below(worker.id());
                worker.signal(Signal::TERM);
                guards.into_iter().chain(programs).for_each(|pid| signal(pid, Signal::TERM));
                self.pass(worker, PATIENCE, Then::BeGone);
            }
            Fault::WrongClock => {
                let (stage, dice, mut wrong) = (self.stage, &mut self.dice, false);
                let other = stage.start_worker(|command| wrong = stage.set_wrong_clock(command, dice));
                self.replace_one(other);
                return wrong;
            }
            Fault::SmallDisk => {
                let blocks = self.dice.within(1..=8);
                let worker = self.stage.start_worker(|command| *command = with_a_small_disk(command, blocks));
                self.pass(worker, self.stage.lease, Then::Die);
            }
            Fault::Outage => return ground.outage(&mut self.dice, pause),
            Fault::Cut => {
                return match ground {
                    Ground::Postgres(server) => server.cut(),
                    Ground::Served(served) => {
                        served.cut();
                        true
                    }
                    Ground::Directory(_) | Ground::Bucket(_) => false,
                };
            }
            Fault::KillServer
            | Fault::DrainServer
            | Fault::LateNetwork
            | Fault::SlowNetwork
            | Fault::HalfOpenNetwork => {
                let Ground::Served(served) = ground else { return false };
                let dice = &mut self.dice;
                match fault {
                    Fault::KillServer => served.kill(false, dice, pause),
                    Fault::DrainServer => self.stage.complain(served.drain(dice)),
                    Fault::LateNetwork => {
                        let by = Duration::from_millis(dice.within(20..=300));
                        served.disturb(Network::Late(by), dice, pause);
                    }
                    Fault::SlowNetwork => served.disturb(Network::Slow, dice, pause),
                    _ => served.disturb(Network::HalfOpen, dice, pause),
                }
            }
            Fault::KillSubmit | Fault::KillScript | Fault::StopScript => return false,
        }
        true
    }

    /// Takes a worker out of the fleet and starts another.
    fn take(&mut self) -> Worker {
        let victim = self.dice.below(self.workers.len());
        let worker = self.workers.swap_remove(victim);
        self.workers.push(self.stage.start_worker(|_| {}));
        worker
    }

    /// Replaces a worker, which is killed.
    fn replace_one(&mut self, worker: Worker) {
        let victim = self.dice.below(self.workers.len());
        let mut other = std::mem::replace(&mut self.workers[victim], worker);
        other.kill();
        self.gone(other, None);
        self.stage.ledger().count(Fault::KillWorker);
    }

    fn pass(&mut self, worker: Worker, time: Duration, what: Then) {
        self.passing.push(Passing { worker, until: Instant::now() + time, what });
    }

    fn gone(&self, worker: Worker, code: Option<i32>) {
        self.stage.complain(worker.complaint(code));
    }

    /// Handles the workers whose time has come, and starts new ones for those that ended by themselves. At the end it
    /// waits for the others.
    fn tend(&mut self, wait: bool) {
        for passing in std::mem::take(&mut self.passing) {
            self.tend_one(passing, wait);
        }
        for index in 0..self.workers.len() {
            if let Some(status) = self.workers[index].child.try_wait().expect("a child") {
                let ended = std::mem::replace(&mut self.workers[index], self.stage.start_worker(|_| {}));
                self.gone(ended, status.code());
            }
        }
    }

    fn tend_one(&mut self, mut passing: Passing, wait: bool) {
        let mut ended = passing.worker.child.try_wait().expect("a child");
        while wait && ended.is_none() && Instant::now() < passing.until {
            pause(Duration::from_millis(10));
            ended = passing.worker.child.try_wait().expect("a child");
        }
        if let Some(status) = ended {
            return self.gone(passing.worker, status.code());
        }
        if Instant::now() < passing.until {
            return self.passing.push(passing);
        }
        match passing.what {
            Then::GoOn => {
                passing.worker.go_on();
                self.replace_one(passing.worker);
            }
            Then::GoOnAndDie => {
                passing.worker.go_on();
                self.pass(passing.worker, Duration::from_millis(700), Then::Die);
                if wait {
                    self.tend(true);
                }
            }
            Then::Die => {
                passing.worker.kill();
                self.gone(passing.worker, None);
            }
            Then::BeGone => {
                let complaint = format!("a worker did not end within {PATIENCE:?} of SIGTERM");
                self.stage.complain(Some(format!("{complaint}: {}", passing.worker.last_words())));
            }
        }
    }

    /// Ends all faults: no process is stopped, and the fleet is complete.
    pub fn heal(&mut self) {
        self.tend(true);
    }

    /// Starts a new worker for each that has ended.
    pub fn keep_up(&mut self) {
        self.tend(false);
    }

    /// Terminates the workers, and waits for their end.
    pub fn end(mut self) {
        let workers = std::mem::take(&mut self.workers);
        workers.iter().for_each(|worker| worker.signal(Signal::TERM));
        for worker in workers {
            self.pass(worker, PATIENCE, Then::BeGone);
        }
        self.tend(true);
    }
}

/// The same command, in a process that may write no file of more than some blocks of 512 bytes.
fn with_a_small_disk(command: &Command, blocks: u64) -> Command {
    let mut limited = Command::new("sh");
    // Ignore the signal that the kernel sends, so that the write itself fails, as on a full disk.
    limited.arg("-c").arg(format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\""));
    limited.arg(command.get_program()).args(command.get_args());
    if let Some(directory) = command.get_current_dir() {
        limited.current_dir(directory);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited.process_group(0);
    limited
}
