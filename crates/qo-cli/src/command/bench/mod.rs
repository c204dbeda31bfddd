//! `qo bench`: what qo reaches on this machine, against the bars that it must reach.
//!
//! Every figure comes from the real client and the real worker on a fresh directory, with everything synced to the disk.
//! What is compared is measured in one run, taking turns.
//!
//! | module | what it holds |
//! |---|---|
//! | [`throughput`], [`binding`], [`processes`], [`pickup`], [`idle`], [`open`] | the scenarios |
//! | [`noop`], [`process`] | jobs that do nothing, and workers for them, here and in processes of their own |
//! | [`ground`] | directories, and what the disk costs |
//! | [`figure`], [`report`] | rounds, medians, bars, and how they are shown |

mod binding;
mod figure;
mod ground;
mod idle;
mod noop;
mod open;
mod pickup;
mod process;
mod processes;
mod report;
mod throughput;

pub use process::BenchWorker;

use crate::cli::Format;
use crate::machine::interrupted;
use crate::output::Screen;
use crate::trouble::{Done, INTERRUPTED, Trouble};
use clap::{Args, ValueEnum};
use figure::Figure;
use ground::Ground;
use indicatif::{ProgressBar, ProgressStyle};
use qo::Result;
use report::{Report, Section};
use std::time::Duration;

/// Jobs of a round that only shows that everything works.
const QUICK_JOBS: u64 = 300;
/// Files whose way to the disk is timed.
const FSYNCS: usize = 200;
const QUICK_FSYNCS: usize = 20;
/// How long something may take that nobody waits for.
const SETTLED: Duration = Duration::from_millis(300);

/// Measure what qo reaches on this machine.
///
/// Jobs that do nothing, through the real client and worker, on a fresh directory each round, everything synced to the disk.
/// Ratios are measured in one run, both sides taking turns.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qo bench                              every scenario, some minutes
  qo bench throughput
  qo bench parked --rounds 9 --json
  qo bench --store file:/mnt/disk       on another disk: directories are made there, and removed")]
pub struct BenchArgs {
    /// What to measure [default: everything].
    #[arg(value_enum)]
    scenario: Option<Scenario>,
    /// How often; the median counts.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Jobs a round [default: 100000, where twice as many are parked 50000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    jobs: Option<u64>,
    /// One tiny round: it shows that the benchmark works, and measures nothing.
    #[arg(long, conflicts_with_all = ["rounds", "jobs"])]
    quick: bool,
    #[command(flatten)]
    format: Format,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// One process, submit to done.
    Throughput,
    /// The same under limits that do not bind.
    Limits,
    /// The same behind jobs whose groups are full.
    Parked,
    /// How well a limit that binds is used.
    Binding,
    /// Four worker processes on one directory.
    Processes,
    /// From submit to start on an idle store.
    Pickup,
    /// Processor time of an idle worker.
    Idle,
    /// Opening a large namespace, and submitting to it.
    Open,
}

impl Scenario {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    async fn measure(self, bench: &Bench<'_>) -> Result<Vec<Figure>> {
        match self {
            Self::Throughput => throughput::throughput(bench).await,
            Self::Limits => throughput::limits(bench).await,
            Self::Parked => throughput::parked(bench).await,
            Self::Binding => binding::binding(bench).await,
            Self::Processes => processes::processes(bench).await,
            Self::Pickup => pickup::pickup(bench).await,
            Self::Idle => idle::idle(bench).await,
            Self::Open => open::open(bench).await,
        }
    }
}

/// What the scenarios need to know.
struct Bench<'a> {
    ground: &'a Ground,
    rounds: u32,
    jobs: Option<u64>,
    quick: bool,
    progress: ProgressBar,
}

impl Bench<'_> {
    fn rounds(&self) -> u32 {
        if self.quick { 1 } else { self.rounds }
    }

    /// How long the disk takes to keep a small file, as it is now: disks that others use too move about.
    async fn fsync_ms(&self) -> Result<f64> {
        self.ground.fsync_ms(if self.quick { QUICK_FSYNCS } else { FSYNCS }).await
    }

    /// Jobs a round.
    fn jobs(&self, usual: u64) -> u64 {
        if self.quick { QUICK_JOBS.min(usual) } else { self.jobs.unwrap_or(usual) }
    }

    /// Whose turn it is in a round that compares two: one, the other, the other, one; in every second round the other way
    /// round. So neither gains from what the machine does meanwhile, be it that it gets slower or faster.
    fn turns(&self, round: u32) -> Vec<bool> {
        let first = round.is_multiple_of(2);
        if self.quick { vec![first, !first] } else { vec![first, !first, !first, first] }
    }

    /// Says where it is.
    fn at(&self, scenario: &str, round: u32, what: &str) {
        self.progress.set_message(format!("{scenario}, round {} of {}: {what}", round + 1, self.rounds()));
    }
}

impl BenchArgs {
    /// Measures, and shows what came of it.
    pub async fn run(self, store: Option<String>, screen: &mut Screen) -> Done {
        let ground = Ground::find(store.as_deref())?;
        if cfg!(debug_assertions) && !self.quick {
            screen
                .warn("this is a debug build: its figures mean nothing, use `cargo run --release -- bench`");
        }
        if ground.is_in_memory() {
            let path = ground.path().display();
            screen.warn(format_args!(
                "{path} is in memory, where a sync costs nothing: name a disk with --store file:DIR"
            ));
        }
        let measured = tokio::select! {
            report = self.measure(&ground) => Ok(report?),
            ended = interrupted() => ended.map_err(Trouble::from).and(Err(Trouble::Exit(INTERRUPTED))),
        };
        // A snapshot may still be written, and what was cut short may be at it: a directory can be removed when all is done.
        tokio::time::sleep(SETTLED).await;
        let report = measured?;
        if self.format.json { screen.json(&report.json()) } else { report.show(screen) }
    }

    async fn measure(&self, ground: &Ground) -> Result<Report> {
        let scenarios: Vec<Scenario> =
            self.scenario.map_or_else(|| Scenario::value_variants().to_vec(), |scenario| vec![scenario]);
        let progress = progress(scenarios.len() as u64);
        progress.set_message("the disk");
        let (rounds, jobs, quick) = (self.rounds, self.jobs, self.quick);
        let bench = Bench { ground, rounds, jobs, quick, progress };
        let fsync_ms = bench.fsync_ms().await?;
        let mut sections = Vec::new();
        for scenario in scenarios {
            let mut figures = scenario.measure(&bench).await?;
            if quick {
                figures.iter_mut().for_each(|figure| figure.bar = None);
            }
            sections.push(Section { scenario: scenario.name(), figures });
            bench.progress.inc(1);
        }
        bench.progress.finish_and_clear();
        Ok(Report { fsync_ms, rounds: bench.rounds(), sections })
    }
}

/// A bar on stderr; none if that is not a terminal.
fn progress(scenarios: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {bar:20} {pos}/{len} {elapsed}  {msg}");
    let bar = ProgressBar::new(scenarios);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
