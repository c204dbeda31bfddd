//! One process: jobs from submit to done, plain, under limits that do not bind, and behind groups that are full.

use super::Bench;
use super::figure::{Bar, Figure, Unit};
use super::noop::{Noop, check_left, job, jobs, submit};
use crate::machine::cpu_ns;
use qo::core::{GroupRef, Key, LeaseId, Name, NewJob, SlotRequest, caps};
use qo::{Result, Store};
use std::sync::Arc;
use std::time::Instant;
use uuid::Uuid;

/// Keys that the jobs under limits have.
const KEYS: u64 = 1_000;
/// Groups that are full.
const FULL: [&str; 2] = ["full-1", "full-2"];

/// The jobs of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Jobs without limits.
    Plain,
    /// Every job is under a limit of each kind; none binds.
    Limited,
    /// Twice as many jobs stand behind full groups, ahead of the others.
    Parked,
}

/// One process, submit to done.
pub async fn throughput(bench: &Bench<'_>) -> Result<Vec<Figure>> {
    let jobs = bench.jobs(100_000);
    let (mut rates, mut cpu) = (Vec::new(), Vec::new());
    for round in 0..bench.rounds() {
        bench.at("throughput", round, "one process, submit to done");
        let took = took(bench, Kind::Plain, jobs).await?;
        rates.push(jobs as f64 / took.seconds);
        cpu.push(took.cpu_seconds / jobs as f64 * 1e6);
    }
    let figure = Figure::new(format!("one process, {jobs} jobs, submit to done"), Unit::JobsPerSecond, rates);
    Ok(vec![
        figure.bar(Bar::AtLeast(15_000.0)),
        Figure::new("processor time of a job, submit to done", Unit::Micros, cpu),
    ])
}

/// The same with limits that do not bind.
pub async fn limits(bench: &Bench<'_>) -> Result<Vec<Figure>> {
    let jobs = bench.jobs(100_000);
    let what = "cluster, queue, task and key limits, none binding";
    ratio(bench, "limits", jobs, Kind::Limited, what, Bar::AtLeast(85.0)).await
}

/// The same behind groups that are full.
pub async fn parked(bench: &Bench<'_>) -> Result<Vec<Figure>> {
    let jobs = bench.jobs(50_000);
    let what = format!("{} jobs behind 2 full groups, ahead of {jobs} free ones", jobs * 2);
    ratio(bench, "parked", jobs, Kind::Parked, &what, Bar::AtLeast(95.0)).await
}

/// What a round took.
#[derive(Debug, Clone, Copy, Default)]
struct Took {
    seconds: f64,
    /// Processor time of the whole process: it does not depend on other processes of the machine.
    cpu_seconds: f64,
}

impl Took {
    fn add(&mut self, other: Self) {
        self.seconds += other.seconds;
        self.cpu_seconds += other.cpu_seconds;
    }
}

/// The rate of one kind as a percentage of the plain one, and the same by processor time.
async fn ratio(
    bench: &Bench<'_>,
    scenario: &str,
    jobs: u64,
    kind: Kind,
    what: &str,
    bar: Bar,
) -> Result<Vec<Figure>> {
    let (mut ratios, mut by_cpu) = (Vec::new(), Vec::new());
    for round in 0..bench.rounds() {
        let (mut plain, mut other) = (Took::default(), Took::default());
        for is_plain in bench.legs(round) {
            bench.at(scenario, round, if is_plain { "without" } else { what });
            let took = took(bench, if is_plain { Kind::Plain } else { kind }, jobs).await?;
            if is_plain { plain.add(took) } else { other.add(took) }
        }
        ratios.push(plain.seconds / other.seconds * 100.0);
        by_cpu.push(plain.cpu_seconds / other.cpu_seconds * 100.0);
    }
    Ok(vec![
        Figure::new(format!("{what}, to the rate without"), Unit::Percent, ratios).bar(bar),
        Figure::new("the same, by processor time", Unit::Percent, by_cpu),
    ])
}

/// The time from the first submit until the last job is settled.
async fn took(bench: &Bench<'_>, kind: Kind, count: u64) -> Result<Took> {
    let plot = bench.ground.fresh()?;
    let store = qo::connect(&plot.url()).await?;
    let parked = match kind {
        Kind::Plain => 0,
        Kind::Limited => {
            limit(&store).await?;
            0
        }
        Kind::Parked => {
            fill(&store).await?;

            let behind =
                |index: u64| Ok(NewJob { group: Some(group(FULL[usize::from(index % 2 == 1)])?), ..job()? });
            submit(&store, jobs(count * 2, behind)?).await?;
            count * 2
        }
    };
    let worker = Noop::start(&store).await?;
    let calls = jobs(count, |index| {
        let key = (kind == Kind::Limited).then(|| Key::parse("key", &format!("user-{}", index % KEYS)));
        Ok(NewJob { key: key.transpose()?, ..job()? })
    })?;
    let (began, cpu) = (Instant::now(), cpu_ns());
    submit(&store, calls).await?;
    worker.tally.wait_for(count).await?;
    worker.end().await?;
    let seconds = began.elapsed().as_secs_f64();
    let cpu_seconds = cpu_ns().saturating_sub(cpu) as f64 / 1e9;
    check_left(&store, parked).await?;
    Ok(Took { seconds, cpu_seconds })
}

fn group(name: &str) -> Result<Name> {
    Name::parse("group", name)
}

/// A limit of each kind that nothing here reaches.
async fn limit(store: &Arc<dyn Store>) -> Result<()> {
    for group in ["cluster", "queue:default", "noop", "noop/*"] {
        store.set_limit(GroupRef::parse("group", group)?, caps::LIMIT).await?;
    }
    Ok(())
}

/// Fills two groups whose limit is one slot.
async fn fill(store: &Arc<dyn Store>) -> Result<()> {
    for name in FULL {
        let full = GroupRef::Group(group(name)?);
        store.set_limit(full.clone(), 1).await?;
        let id = LeaseId(Uuid::new_v4());
        store.acquire_slots(SlotRequest::new(id, full, group("holder")?, caps::LEASE_MAX_MS)).await?;
    }
    Ok(())
}
