//! How figures are shown.

use super::figure::{Bar, Figure, Unit};
use super::noop::{BATCH, PERMITS, SUBMIT};
use crate::output::{Screen, Style, Table};
use crate::trouble::Done;
use serde::Serialize;

/// Everything that was measured.
pub struct Report {
    /// How long the disk takes to keep a small file.
    pub fsync_ms: f64,
    /// Rounds.
    pub rounds: u32,
    /// By scenario.
    pub sections: Vec<Section>,
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
        let cpus = std::thread::available_parallelism().map_or(0, usize::from);
        screen.line(format_args!(
            "disk: {:.2} ms to keep a small file (write, fsync, link, fsync of the directory; median of 200)",
            self.fsync_ms
        ))?;
        screen.line(format_args!(
            "worker: {PERMITS} permits, claims of up to {BATCH}; submits of {SUBMIT}; {cpus} CPUs; rounds: {}",
            self.rounds
        ))?;
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

    /// For programs.
    pub fn json(&self) -> impl Serialize {
        #[derive(Serialize)]
        struct Document<'a> {
            fsync_ms: f64,
            permits: u32,
            claim_batch_size: u32,
            submit_jobs: usize,
            rounds: u32,
            figures: Vec<Row<'a>>,
        }
        let figures = self.sections.iter().flat_map(rows).collect();
        Document {
            fsync_ms: self.fsync_ms,
            permits: PERMITS,
            claim_batch_size: BATCH,
            submit_jobs: SUBMIT,
            rounds: self.rounds,
            figures,
        }
    }
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
