//! How figures are shown.

use super::bucket;
use super::figure::{Bar, Figure, Unit};
use super::noop::{BATCH, PERMITS, SUBMIT};
use super::postgres::Facts;
use crate::output::{Screen, Style, Table};
use crate::trouble::Done;
use serde::Serialize;
use serde_json::{Value, json};

/// Everything that was measured.
pub struct Report {
    /// The ground of the measurement.
    pub place: Place,
    /// Rounds.
    pub rounds: u32,
    /// By scenario.
    pub sections: Vec<Section>,
}

/// The ground of a measurement.
pub enum Place {
    /// Directories of a disk.
    Directory {
        /// How long the disk takes to keep a small file.
        fsync_ms: f64,
    },
    /// Schemas of a server.
    Postgres {
        /// What the server says of itself.
        facts: Facts,
        /// Workers that claim at once.
        workers: u32,
        /// Jobs that one of them claims with one exchange.
        batch: u32,
    },
    /// Prefixes of a bucket.
    Bucket {
        /// How far away it is.
        facts: bucket::Facts,
    },
}

/// The figures of one scenario.
pub struct Section {
    /// Its name.
    pub scenario: String,
    /// What was measured.
    pub figures: Vec<Figure>,
}

/// A figure, for programs.
#[derive(Serialize)]
struct Row<'a> {
    scenario: &'a str,
    figure: &'a str,
    unit: Unit,
    median: f64,
    min: f64,
    max: f64,
    rounds: &'a [f64],
    bar: Option<Bar>,
    reached: Option<bool>,
}

impl Report {
    /// For people.
    pub fn show(&self, screen: &mut Screen) -> Done {
        self.show_place(screen)?;
        screen.line("")?;
        let mut table = Table::new(&["SCENARIO", "FIGURE", "MEDIAN", "MIN", "MAX", "BAR", ""]);
        for section in &self.sections {
            for figure in &section.figures {
                let unit = figure.unit;
                let (min, max) = figure.spread();
                let verdict = match figure.is_reached() {
                    Some(true) => ("reached".to_owned(), Style::Good),
                    Some(false) => ("missed".to_owned(), Style::Bad),
                    None => (String::new(), Style::Plain),
                };
                table.row([
                    (section.scenario.clone(), Style::Strong),
                    (figure.what.clone(), Style::Plain),
                    (unit.shown(figure.median()), Style::Strong),
                    (unit.shown(min), Style::Dim),
                    (unit.shown(max), Style::Dim),
                    (figure.bar.map(|bar| bar.shown(unit)).unwrap_or_default(), Style::Plain),
                    verdict,
                ]);
            }
        }
        screen.table(table)
    }

    fn show_place(&self, screen: &mut Screen) -> Done {
        let (cpus, rounds) = (cpus(), self.rounds);
        match &self.place {
            Place::Directory { fsync_ms } => {
                screen.line(format_args!(
                    "disk: {fsync_ms:.2} ms to keep a small file (write, fsync, link, fsync of the directory; median of 200)"
                ))?;
                screen.line(format_args!(
                    "worker: {PERMITS} permits, claims of up to {BATCH}; submits of {SUBMIT}; {cpus} CPUs; rounds: {rounds}"
                ))
            }
            Place::Postgres { facts, workers, batch } => {
                screen.line(format_args!(
                    "server: PostgreSQL {}, fsync {}, synchronous_commit {}, shared_buffers {}; {:.2} ms for a small commit",
                    facts.version, facts.fsync, facts.synchronous_commit, facts.shared_buffers, facts.commit_ms
                ))?;
                screen.line(format_args!(
                    "claimers: {workers} with batches of {batch}, if not said otherwise; enqueue excluded; {cpus} CPUs here; rounds: {rounds}"
                ))
            }
            Place::Bucket { facts } => {
                screen.line(format_args!(
                    "bucket: {:.1} ms for a small request; prices: S3 Standard, us-east-1",
                    facts.request_ms
                ))?;
                screen.line(format_args!(
                    "worker: {} permits, claims of up to {}; {cpus} CPUs; rounds: {rounds}",
                    bucket::PERMITS,
                    bucket::BATCH
                ))
            }
        }
    }

    /// For programs.
    pub fn json(&self) -> impl Serialize {
        #[derive(Serialize)]
        struct Document<'a> {
            #[serde(flatten)]
            place: Value,
            rounds: u32,
            figures: Vec<Row<'a>>,
        }
        let place = match &self.place {
            Place::Directory { fsync_ms } => json!({
                "fsync_ms": fsync_ms, "permits": PERMITS, "claim_batch_size": BATCH, "submit_jobs": SUBMIT,
            }),
            Place::Postgres { facts, workers, batch } => {
                json!({ "server": facts, "cpus": cpus(), "workers": workers, "batch": batch })
            }
            Place::Bucket { facts } => json!({
                "bucket": facts, "cpus": cpus(), "permits": bucket::PERMITS, "claim_batch_size": bucket::BATCH,
            }),
        };
        Document { place, rounds: self.rounds, figures: self.sections.iter().flat_map(rows).collect() }
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}

fn rows(section: &Section) -> Vec<Row<'_>> {
    let each = section.figures.iter().map(|figure| {
        let (min, max) = figure.spread();
        Row {
            scenario: &section.scenario,
            figure: &figure.what,
            unit: figure.unit,
            median: figure.median(),
            min,
            max,
            rounds: &figure.rounds,
            bar: figure.bar,
            reached: figure.is_reached(),
        }
    });
    each.collect()
}
