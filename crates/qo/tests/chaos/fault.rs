//! The faults of workers, connections and the server, timed by the clock and chosen by dice.

use crate::fleet::{Fate, Fleet, Process};
use crate::server::{ROLES, Server};
use crate::worker::LEASE;
use qo_testkit::random::Random;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, interval, interval_at, sleep};

const WORKERS: usize = 4;
/// A worker is killed this often.
const TICK: Duration = Duration::from_millis(300);
const TICKS: u32 = 70;
/// How long the faults go on.
pub const LENGTH: Duration = Duration::from_millis(TICK.as_millis() as u64 * TICKS as u64);
/// The other faults happen every so many ticks:
const CUT: u32 = 4;
const STOP: u32 = 13;
const CRASH: u32 = 19;
const SHUT_OUT: u32 = 17;

/// How many faults there were.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    pub kills: usize,
    pub stops: usize,
    pub cuts: usize,
    pub connections_cut: i64,
    pub shut_outs: usize,
    pub restarts: usize,
}

/// A worker that stands still.
struct Stopped {
    process: Process,
    since_ns: u64,
    until: Instant,
}

/// The faults of one run.
pub struct Chaos {
    dice: Random,
    fleet: Fleet,
    workers: Vec<Process>,
    stopped: Option<Stopped>,
    over: BTreeMap<usize, Fate>,
    faults: Faults,
}

impl Chaos {
    /// Starts the workers.
    pub fn begin(seed: u64, url: &str, folder: &Path) -> Self {
        let mut fleet = Fleet::new(url, folder);
        let workers = (0..WORKERS).map(|_| fleet.start()).collect();
        let (dice, over, faults) = (Random::new(seed ^ 0xFA17), BTreeMap::new(), Faults::default());
        Self { dice, fleet, workers, stopped: None, over, faults }
    }

    /// Causes all faults. When it returns, no worker is stopped or shut out, and the server is up.
    pub async fn rage(&mut self, server: &Server) {
        let mut dice = self.dice.fork();
        // The kills do not wait for the server.
        let ((), cuts, shut_outs, restarts) =
            tokio::join!(self.harm_workers(), cuts(server), shut_outs(server, &mut dice), crashes(server));
        (self.faults.cuts, self.faults.connections_cut) = (cuts.len(), cuts.iter().sum());
        (self.faults.shut_outs, self.faults.restarts) = (shut_outs, restarts);
    }

    async fn harm_workers(&mut self) {
        let mut every = interval(TICK);
        every.tick().await;
        for tick in 1..=TICKS {
            every.tick().await;
            self.go_on(false).await;
            if tick % STOP == 0 && self.stopped.is_none() {
                self.stop().await;
            }
            self.kill().await;
        }
        self.go_on(true).await;
    }

    async fn kill(&mut self) {
        let victim = self.dice.below(self.workers.len());
        let (number, fate) = self.workers.swap_remove(victim).kill().await;
        self.over.insert(number, fate);
        self.faults.kills += 1;
        self.workers.push(self.fleet.start());
    }

    /// Stops a worker for longer than its lease; another takes its place meanwhile.
    async fn stop(&mut self) {
        // The oldest worker surely has jobs.
        let oldest = self.workers.iter().enumerate().min_by_key(|(_, process)| process.number);
        let oldest = oldest.expect("there are some").0;
        let mut process = self.workers.swap_remove(oldest);
        let since_ns = process.stop().await;
        let until = Instant::now() + longer_than_lease(&mut self.dice);
        self.stopped = Some(Stopped { process, since_ns, until });
        self.workers.push(self.fleet.start());
        self.faults.stops += 1;
    }

    /// Resumes the stopped worker if its time has come; with `wait`, waits until it has.
    async fn go_on(&mut self, wait: bool) {
        let Some(stopped) = self.stopped.take_if(|stopped| wait || stopped.until <= Instant::now()) else {
            return;
        };
        tokio::time::sleep_until(stopped.until).await;
        let mut process = stopped.process;
        process.go_on(stopped.since_ns);
        self.workers.push(process);
    }

    /// Ends the workers, and returns how many faults there were and what was done to each worker.
    pub async fn end(mut self) -> (Faults, BTreeMap<usize, Fate>) {
        for process in self.workers {
            let (number, fate) = process.end().await;
            self.over.insert(number, fate);
        }
        (self.faults, self.over)
    }
}

fn longer_than_lease(dice: &mut Random) -> Duration {
    LEASE + Duration::from_millis(dice.within(300..=1_200))
}

/// Cuts all connections again and again, and returns how many each time.
async fn cuts(server: &Server) -> Vec<i64> {
    let mut cuts = Vec::new();
    let mut every = interval_at(Instant::now() + TICK * CUT, TICK * CUT);
    for _ in 0..TICKS / CUT {
        every.tick().await;
        cuts.extend(server.cut().await);
    }
    cuts
}

/// Shuts some workers out for longer than their lease, while others go on; returns how often.
async fn shut_outs(server: &Server, dice: &mut Random) -> usize {
    let mut every = interval_at(Instant::now() + TICK, TICK * SHUT_OUT);
    let times = (TICKS / SHUT_OUT) as usize;
    for time in 0..times {
        every.tick().await;
        let role = ROLES[time % ROLES.len()];
        server.shut_out(role).await;
        sleep(longer_than_lease(dice)).await;
        server.let_in(role).await;
    }
    times
}

/// Crashes the server again and again; returns how often.
async fn crashes(server: &Server) -> usize {
    let mut every = interval_at(Instant::now() + TICK * CRASH, TICK * CRASH);
    let times = (TICKS / CRASH) as usize;
    for _ in 0..times {
        every.tick().await;
        server.crash().await;
    }
    times
}
