//! `qo bench`: what qo reaches on this machine, against the bars that it must reach.
//!
//! Every figure comes from the real client, the real worker and the real store, in a fresh directory, schema or prefix,
//! with everything synced to the disk. Two sides of a comparison are measured in one run, taking turns.
//!
//! | module | what it holds |
//! |---|---|
//! | [`scenario`] | what can be measured, and where |
//! | [`throughput`], [`binding`], [`processes`], [`pickup`], [`idle`], [`open`] | the scenarios on a directory |
//! | [`postgres`] | the scenarios on PostgreSQL |
//! | [`bucket`] | the scenarios in a bucket |
//! | [`noop`], [`process`] | jobs that do nothing, workers for them, here and in processes of their own, and servers |
//! | [`served`] | stores behind a server |
//! | [`ground`] | directories, and what the disk costs |
//! | [`figure`], [`report`] | rounds, medians, bars, and how they are shown |

mod binding;
mod bucket;
mod figure;
mod ground;
mod idle;
mod noop;
mod open;
mod pickup;
mod postgres;
mod process;
mod processes;
mod report;
mod scenario;
mod served;
mod throughput;

pub use process::{BenchServer, BenchWorker};

use crate::cli::Format;
use crate::machine::interrupted;
use crate::output::Screen;
use crate::trouble::{Done, INTERRUPTED, Trouble};
use bucket::Site;
use clap::Args;
use figure::Figure;
use ground::Ground;
use indicatif::{ProgressBar, ProgressStyle};
use postgres::Fleet;
use qo::Result;
use report::{Place, Report, Section};
use scenario::{On, Scenario};
use std::time::Duration;

/// Jobs of a quick round, which only shows that everything works.
const QUICK_JOBS: u64 = 300;
/// How many synced files are timed.
const FSYNCS: usize = 200;
const QUICK_FSYNCS: usize = 20;
/// How long background work may take after a measurement.
const SETTLED: Duration = Duration::from_millis(300);

/// Measure what qo reaches on this machine.
///
/// Jobs that do nothing, on a fresh directory, PostgreSQL schema or prefix of a bucket each round; everything is
/// durable before it is acknowledged. Ratios are measured in one run, both sides taking turns. The store decides which
/// scenarios there are.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qo bench                                      every scenario of a directory, some minutes
  qo bench throughput
  qo bench parked --rounds 9 --json
  qo bench --store file:/mnt/disk               on another disk: directories are made there, and removed
  qo bench --store postgres://me@host/db        every scenario of PostgreSQL, about an hour
  qo bench --store postgres://me@host/db nested --batch 500 --workers 2
  qo bench --store s3://bucket/prefix           every scenario of a bucket, about twenty minutes: speed, requests, dollars
  qo bench --store s3://bucket/prefix cost

On PostgreSQL every round has schemas of its own, qo_bench_…; the schema of the URL is not used. They are dropped at the end,
also after Ctrl-C. The user needs the rights to create schemas and to checkpoint; for bookkeeping, those of a superuser.
In a bucket everything is below PREFIX/qo-bench-…, and is deleted at the end, too. Its requests are billed: all scenarios
together make some hundred thousand, below one dollar at S3's list prices.")]
pub struct BenchArgs {
    /// What to measure [default: everything that there is on the store].
    #[arg(value_enum)]
    scenario: Option<Scenario>,
    /// How many rounds; the median counts.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Jobs a leg [default: 100000 on a directory, and 50000 for parked; 50000 on PostgreSQL; 20000 in a bucket].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    jobs: Option<u64>,
    /// On PostgreSQL: workers that claim at once [default: 2; concurrency-high 8].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: Option<u32>,
    /// On PostgreSQL: jobs that a worker claims, and settles, with one exchange [default: 500; some figures also with
    /// 50].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: Option<u32>,
    /// One tiny round: it shows that the benchmark works, and measures nothing.
    #[arg(long, conflicts_with_all = ["rounds", "jobs"])]
    quick: bool,
    #[command(flatten)]
    format: Format,
}

/// What the scenarios need to know.
struct Bench<'a, G = Ground> {
    ground: &'a G,
    rounds: u32,
    jobs: Option<u64>,
    quick: bool,
    progress: ProgressBar,
}

impl Bench<'_, Ground> {
    /// How long the disk takes to keep a small file now: a shared disk is not always equally fast.
    async fn fsync_ms(&self) -> Result<f64> {
        self.ground.fsync_ms(if self.quick { QUICK_FSYNCS } else { FSYNCS }).await
    }
}

impl<G> Bench<'_, G> {
    fn rounds(&self) -> u32 {
        if self.quick { 1 } else { self.rounds }
    }

    /// Jobs a round.
    fn jobs(&self, usual: u64) -> u64 {
        if self.quick { QUICK_JOBS.min(usual) } else { self.jobs.unwrap_or(usual) }
    }

    /// The order of legs in a round that compares two sides: A, B, B, A, and the other way round in every second
    /// round. So neither side gains when the machine gets slower or faster meanwhile.
    fn legs(&self, round: u32) -> Vec<bool> {
        let first = round.is_multiple_of(2);
        if self.quick { vec![first, !first] } else { vec![first, !first, !first, first] }
    }

    /// Shows the progress.
    fn at(&self, scenario: &str, round: u32, what: &str) {
        self.progress.set_message(format!("{scenario}, round {} of {}: {what}", round + 1, self.rounds()));
    }
}

impl BenchArgs {
    /// Measures, and shows the figures.
    pub async fn run(self, store: Option<String>, screen: &mut Screen) -> Done {
        if cfg!(debug_assertions) && !self.quick {
            screen
                .warn("this is a debug build: its figures mean nothing, use `cargo run --release --features bench -- bench`");
        }
        let server =
            store.as_ref().filter(|url| url.starts_with("postgres:") || url.starts_with("postgresql:"));
        let report = match server {
            Some(url) => self.run_on_postgres(url).await?,
            None if store.as_ref().is_some_and(|url| url.starts_with("s3:")) => {
                self.run_on_bucket(store.as_deref().unwrap_or_default()).await?
            }
            None => self.run_on_directory(store.as_deref(), screen).await?,
        };
        if self.format.json { screen.json(&report.json()) } else { report.show(screen) }
    }

    async fn run_on_directory(&self, store: Option<&str>, screen: &mut Screen) -> Done<Report> {
        let scenarios = Scenario::chosen(self.scenario, On::Directory)?;
        self.refuse_fleet()?;
        let ground = Ground::find(store)?;
        if ground.is_in_memory() {
            let path = ground.path().display();
            screen.warn(format_args!(
                "{path} is in memory, where a sync costs nothing: name a disk with --store file:DIR"
            ));
        }
        let bench = self.bench(&ground, &scenarios);
        let measure = async {
            bench.progress.set_message("the disk");
            let fsync_ms = bench.fsync_ms().await?;
            let mut sections = Vec::new();
            for scenario in scenarios {
                sections.push(bench.section(scenario, scenario.on_directory(&bench).await?));
            }
            Ok(Report { place: Place::Directory { fsync_ms }, rounds: bench.rounds(), sections })
        };
        let measured = unless_interrupted(measure).await;
        // The store may still write a snapshot, and interrupted work may still run. Wait, so that the directory can be
        // removed.
        tokio::time::sleep(SETTLED).await;
        measured
    }

    async fn run_on_postgres(&self, url: &str) -> Done<Report> {
        let scenarios = Scenario::chosen(self.scenario, On::Postgres)?;
        let fleet = Fleet::find(url, self.workers, self.batch, self.quick).await?;
        let bench = self.bench(&fleet, &scenarios);
        let measure = async {
            let facts = fleet.server.facts().await?;
            let mut sections = Vec::new();
            for scenario in scenarios {
                sections.push(bench.section(scenario, scenario.on_postgres(&bench).await?));
            }
            let (workers, batch) = (fleet.workers(), fleet.batch());
            Ok(Report { place: Place::Postgres { facts, workers, batch }, rounds: bench.rounds(), sections })
        };
        let measured = unless_interrupted(measure).await;
        // Clean up, even if the measurement failed.
        let cleared = fleet.server.clear().await;
        let report = measured?;
        cleared?;
        Ok(report)
    }

    async fn run_on_bucket(&self, url: &str) -> Done<Report> {
        let scenarios = Scenario::chosen(self.scenario, On::Bucket)?;
        self.refuse_fleet()?;
        let site = Site::find(url)?;
        let bench = self.bench(&site, &scenarios);
        let measure = async {
            let facts = site.facts().await?;
            let mut sections = Vec::new();
            for scenario in scenarios {
                sections.push(bench.section(scenario, scenario.on_bucket(&bench).await?));
            }
            Ok(Report { place: Place::Bucket { facts }, rounds: bench.rounds(), sections })
        };
        let measured = unless_interrupted(measure).await;
        // Interrupted work may still write. Clean up after it, even if the measurement failed.
        tokio::time::sleep(SETTLED).await;
        let cleared = site.clear().await;
        let report = measured?;
        cleared?;
        Ok(report)
    }

    fn refuse_fleet(&self) -> Done {
        match self.workers.is_some() || self.batch.is_some() {
            true => Err(Trouble::usage("--workers and --batch are for PostgreSQL: --store postgres://…")),
            false => Ok(()),
        }
    }

    fn bench<'a, G>(&self, ground: &'a G, scenarios: &[Scenario]) -> Bench<'a, G> {
        let (rounds, jobs, quick) = (self.rounds, self.jobs, self.quick);
        Bench { ground, rounds, jobs, quick, progress: progress(scenarios.len() as u64) }
    }
}

impl<G> Bench<'_, G> {
    fn section(&self, scenario: Scenario, mut figures: Vec<Figure>) -> Section {
        if self.quick {
            figures.iter_mut().for_each(|figure| figure.bar = None);
        }
        self.progress.inc(1);
        Section { scenario: scenario.name(), figures }
    }
}

/// The result of a measurement, unless Ctrl-C ends it: then it is dropped.
async fn unless_interrupted<T>(measure: impl Future<Output = Result<T>>) -> Done<T> {
    tokio::select! {
        report = measure => Ok(report?),
        ended = interrupted() => ended.map_err(Trouble::from).and(Err(Trouble::Exit(INTERRUPTED))),
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
