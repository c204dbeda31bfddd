//! The faults: what is done to workers, connections and the server, by dice and by the clock.

use crate::fleet::{Fate, Fleet, Process};
use crate::server::Server;
use crate::worker::LEASE;
use qo_testkit::random::Random;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval};

const WORKERS: usize = 4;
/// A worker is killed this often.
const TICK: Duration = Duration::from_millis(300);
const TICKS: u64 = 70;
/// How long the faults go on.
pub const LENGTH: Duration = Duration::from_millis(TICK.as_millis() as u64 * TICKS);
/// Every so many ticks.
const CUT: u64 = 7;
const STOP: u64 = 13;
const CRASH: u64 = 20;

/// How many faults there were.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    pub kills: usize,
    pub stops: usize,
    pub cuts: usize,
    pub connections_cut: i64,
    pub restarts: usize,
}

/// A worker that stands still.
struct Stopped {
    process: Process,
    since_us: u64,
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

    /// Does all the harm. When it returns nobody stands still and the server is up.
    pub async fn rage(&mut self, server: &mut Server) {
        let (crash, mut crashes) = mpsc::unbounded_channel::<()>();
        let harm = async {
            let mut every = interval(TICK);
            every.tick().await;
            for tick in 1..=TICKS {
                every.tick().await;
                self.go_on(false).await;
                if tick % STOP == 0 && self.stopped.is_none() {
                    self.stop().await;
                }
                if tick % CRASH == 0 {
                    crash.send(()).expect("somebody listens");
                }
                self.kill().await;
            }
            self.go_on(true).await;
            drop(crash);
        };
        // Nobody waits for the server before the next kill.
        let outages = async {
            let (mut restarts, mut cuts) = (0, Vec::new());
            let mut every = interval(TICK * CUT as u32);
            every.tick().await;
            loop {
                tokio::select! {
                    wanted = crashes.recv() => match wanted {
                        None => return (restarts, cuts),
                        Some(()) => {
                            server.crash().await;
                            restarts += 1;
                        }
                    },
                    _ = every.tick() => cuts.extend(server.cut().await),
                }
            }
        };
        let ((), (restarts, cuts)) = tokio::join!(harm, outages);
        self.faults.restarts = restarts;
        (self.faults.cuts, self.faults.connections_cut) = (cuts.len(), cuts.iter().sum());
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
        // The oldest: it surely has jobs.
        let oldest = self.workers.iter().enumerate().min_by_key(|(_, process)| process.number);
        let oldest = oldest.expect("there are some").0;
        let mut process = self.workers.swap_remove(oldest);
        let since_us = process.stop().await;
        let until = Instant::now() + LEASE + Duration::from_millis(self.dice.within(300..=1_200));
        self.stopped = Some(Stopped { process, since_us, until });
        self.workers.push(self.fleet.start());
        self.faults.stops += 1;
    }

    /// Lets the one that stands still go on, if it is time to, or when it is.
    async fn go_on(&mut self, wait: bool) {
        let Some(stopped) = self.stopped.take_if(|stopped| wait || stopped.until <= Instant::now()) else {
            return;
        };
        tokio::time::sleep_until(stopped.until).await;
        let mut process = stopped.process;
        process.go_on(stopped.since_us);
        self.workers.push(process);
    }

    /// Ends the workers: how many faults there were, and what was done to each worker.
    pub async fn end(mut self) -> (Faults, BTreeMap<usize, Fate>) {
        for process in self.workers {
            let (number, fate) = process.end().await;
            self.over.insert(number, fate);
        }
        (self.faults, self.over)
    }
}
