//! What can be measured, and where.

use super::bucket::{self, Site};
use super::figure::Figure;
use super::ground::Ground;
use super::postgres::{self, Fleet};
use super::{Bench, binding, idle, open, pickup, processes, served, throughput};
use crate::trouble::Trouble;
use clap::ValueEnum;
use qo::Result;
use std::fmt;

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// Directory, bucket: one process, submit to done.
    Throughput,
    /// Directory: the same under limits that do not bind.
    Limits,
    /// Directory: the same behind jobs whose groups are full.
    Parked,
    /// Directory: four worker processes; bucket: eight.
    Processes,
    /// Directory: processor time of an idle worker; bucket: requests of idle ones.
    Idle,
    /// Directory, bucket: opening a large namespace, and submitting to it.
    Open,
    /// All: a fleet behind a server, and what the way through it costs.
    Served,
    /// Directory: a server with 1,000 idle workers.
    ServedIdle,
    /// Bucket: requests and dollars of a job, at two rates.
    Cost,
    /// Bucket: requests of slots that are objects.
    Slots,
    /// PostgreSQL: no limits.
    ConcurrencyBaseline,
    /// PostgreSQL: all of 100 tasks limited, not binding; against the rate without limits.
    ConcurrencyEnabled,
    /// PostgreSQL: one of 100 tasks limited.
    ConcurrencyMixed,
    /// PostgreSQL: a limit of 500 and 8 workers.
    ConcurrencyHigh,
    /// Directory, PostgreSQL: a limit that is always full.
    Binding,
    /// PostgreSQL: cluster, queue, task and key limits.
    Nested,
    /// PostgreSQL: 100,000 keys, each with a limit of 1.
    Keys,
    /// PostgreSQL: 100,000 jobs of 2 full groups ahead of 50,000 free ones.
    Stuck,
    /// PostgreSQL: 100,000 jobs of a task that no worker handles stand ahead.
    Foreign,
    /// PostgreSQL: 30 programs wait for slots of a full group.
    Waiters,
    /// PostgreSQL: 1,000,000 pending jobs, against 10,000.
    Deep,
    /// PostgreSQL: the exchange against SQL that only claims and deletes.
    Bare,
    /// PostgreSQL: through the worker, as users run it.
    Worker,
    /// All: from submit to start on an idle store.
    Pickup,
    /// PostgreSQL: how long the slot of a full group stays idle between two jobs.
    Handover,
    /// PostgreSQL: how soon a killed worker's slot is back.
    Recovery,
    /// PostgreSQL: what limits cost inside the server's function.
    Bookkeeping,
}

/// The ground of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// Fresh directories.
    Directory,
    /// Fresh schemas of a server.
    Postgres,
    /// Fresh prefixes of a bucket.
    Bucket,
}

impl fmt::Display for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Directory => "a directory",
            Self::Postgres => "PostgreSQL",
            Self::Bucket => "a bucket",
        })
    }
}

impl Scenario {
    /// What it is called.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The scenarios to measure: the given one, which must exist on this ground, or all of them.
    pub fn chosen(asked: Option<Self>, on: On) -> std::result::Result<Vec<Self>, Trouble> {
        let there = Self::value_variants().iter().copied().filter(|scenario| scenario.is_on(on));
        let there: Vec<Self> = there.collect();
        match asked {
            None => Ok(there),
            Some(asked) if there.contains(&asked) => Ok(vec![asked]),
            Some(asked) => {
                let names: Vec<String> = there.into_iter().map(Self::name).collect();
                let rule = format!("scenario: \"{}\" is not measured on {on}", asked.name());
                Err(Trouble::usage(format!("{rule}: there are {}", names.join(", "))))
            }
        }
    }

    fn is_on(self, on: On) -> bool {
        match self {
            Self::Throughput | Self::Processes | Self::Idle | Self::Open => on != On::Postgres,
            Self::Limits | Self::Parked | Self::ServedIdle => on == On::Directory,
            Self::Cost | Self::Slots => on == On::Bucket,
            Self::Binding => on != On::Bucket,
            Self::Pickup | Self::Served => true,
            _ => on == On::Postgres,
        }
    }

    /// Measures it on a directory. Nothing if it is a scenario of another ground.
    pub async fn on_directory(self, bench: &Bench<'_, Ground>) -> Result<Vec<Figure>> {
        match self {
            Self::Throughput => throughput::throughput(bench).await,
            Self::Limits => throughput::limits(bench).await,
            Self::Parked => throughput::parked(bench).await,
            Self::Binding => binding::binding(bench).await,
            Self::Processes => processes::processes(bench).await,
            Self::Pickup => pickup::pickup(bench).await,
            Self::Idle => idle::idle(bench).await,
            Self::Open => open::open(bench).await,
            Self::Served => served::on_directory(bench).await,
            Self::ServedIdle => served::idle(bench).await,
            _ => Ok(Vec::new()),
        }
    }

    /// Measures it in a bucket. Nothing if it is a scenario of another ground.
    pub async fn on_bucket(self, bench: &Bench<'_, Site>) -> Result<Vec<Figure>> {
        match self {
            Self::Throughput => bucket::load::throughput(bench).await,
            Self::Cost => bucket::load::cost(bench).await,
            Self::Processes => bucket::processes::processes(bench).await,
            Self::Idle => bucket::idle::idle(bench).await,
            Self::Pickup => bucket::pickup::pickup(bench).await,
            Self::Open => bucket::open::open(bench).await,
            Self::Slots => bucket::slots::slots(bench).await,
            Self::Served => served::in_bucket(bench).await,
            _ => Ok(Vec::new()),
        }
    }

    /// Measures it on PostgreSQL. Nothing if it is a scenario of another ground.
    pub async fn on_postgres(self, bench: &Bench<'_, Fleet>) -> Result<Vec<Figure>> {
        use postgres::{Kind, ratio};
        match self {
            Self::ConcurrencyBaseline => ratio::baseline(bench).await,
            Self::ConcurrencyEnabled => ratio::ratio(bench, self, Kind::Enabled, 85.0).await,
            Self::ConcurrencyMixed => ratio::ratio(bench, self, Kind::Mixed, 95.0).await,
            Self::ConcurrencyHigh => ratio::ratio(bench, self, Kind::High, 85.0).await,
            Self::Binding => postgres::binding::binding(bench).await,
            Self::Nested => ratio::ratio(bench, self, Kind::Nested, 70.0).await,
            Self::Keys => ratio::ratio(bench, self, Kind::Keys, 50.0).await,
            Self::Stuck => ratio::ratio(bench, self, Kind::Stuck, 95.0).await,
            Self::Foreign => ratio::ratio(bench, self, Kind::Foreign, 95.0).await,
            Self::Waiters => ratio::ratio(bench, self, Kind::Waiters, 85.0).await,
            Self::Deep => ratio::ratio(bench, self, Kind::Deep, 90.0).await,
            Self::Bare => postgres::bare::bare(bench).await,
            Self::Worker => postgres::worker::worker(bench).await,
            Self::Pickup => postgres::pickup::pickup(bench).await,
            Self::Served => served::on_postgres(bench).await,
            Self::Handover => postgres::handover::handover(bench).await,
            Self::Recovery => postgres::recovery::recovery(bench).await,
            Self::Bookkeeping => postgres::bookkeeping::bookkeeping(bench).await,
            _ => Ok(Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_of_another_store_is_refused_with_the_known_ones() {
        let trouble = Scenario::chosen(Some(Scenario::Idle), On::Postgres).expect_err("not there");
        let Trouble::Error { error, .. } = trouble else { panic!("{trouble:?}") };
        let text = error.to_string();
        assert!(
            text.contains("\"idle\"") && text.contains("concurrency-mixed") && text.contains("binding"),
            "{text}"
        );
        assert_eq!(Scenario::chosen(None, On::Directory).expect("all").len(), 10);
        assert_eq!(Scenario::chosen(None, On::Postgres).expect("all").len(), 18);
        assert_eq!(Scenario::chosen(None, On::Bucket).expect("all").len(), 8);
    }
}
