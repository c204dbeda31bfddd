//! `qo doctor`

mod health;
mod stored;
mod sweep;

use crate::cli::Format;
use crate::output::{Screen, Style, Table};
use crate::place::Place;
use crate::trouble::{Done, FAILED, Trouble};
use clap::Args;
use serde::Serialize;
use sweep::Sweepable;

/// See whether a store is healthy: what it holds, and what is stuck in it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qo doctor
  qo doctor --verify      read everything that is stored and check it; on PostgreSQL, count every slot
  qo doctor --repair      get a damaged store going again; says what was lost
  qo doctor --release     after a repair that lost records: let jobs start again

It shows sessions, leases and slots that are objects in a bucket if they are over and no sweep has ended them yet. Workers
sweep them; this look changes nothing. With --json such a finding has the field `would_sweep`.

In a bucket the doctor checks that the credentials may write: it creates an object under probe/ and deletes it.

Exit code 1 if something is wrong.")]
pub struct Doctor {
    /// Read everything that is stored and check it.
    #[arg(long)]
    verify: bool,
    /// Get a damaged store going again. If records were lost, nothing starts until --release.
    #[arg(long)]
    repair: bool,
    /// Let jobs start again after a repair that lost records. Check limits and pauses first.
    #[arg(long, conflicts_with = "repair")]
    release: bool,
    #[command(flatten)]
    format: Format,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    /// All is well.
    Ok,
    /// It may be intended, or not.
    Note,
    /// Something is wrong.
    Problem,
}

/// Something that the doctor found.
#[derive(Debug, Clone, Serialize)]
struct Finding {
    level: Level,
    /// What it is about: `store`, `workers`, a group, a queue.
    about: String,
    /// What it is.
    what: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
    /// What a sweep would end, if it is about that.
    #[serde(skip_serializing_if = "Option::is_none")]
    would_sweep: Option<Sweepable>,
}

impl Finding {
    fn new(level: Level, about: impl Into<String>, what: impl Into<String>) -> Self {
        Self { level, about: about.into(), what: what.into(), advice: None, would_sweep: None }
    }

    fn advice(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    fn sweep(self, over: Sweepable) -> Self {
        Self { would_sweep: Some(over), ..self }
    }
}

impl Doctor {
    /// Examines the store and prints the findings.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        let is_there = place.has_namespace().await?;
        let mut findings = if self.release { stored::release(place).await? } else { Vec::new() };
        findings.extend(stored::examine(place, is_there, self.verify, self.repair).await?);
        if findings.iter().all(|finding| finding.level < Level::Problem) {
            if is_there {
                findings.extend(health::examine(place).await?);
            }
            findings.extend(sweep::slot_objects(place).await?);
        }
        let worst = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok);
        if self.format.json {
            screen.json(&findings)?;
        } else {
            tell(screen, &findings)?;
        }
        if worst == Level::Problem { Err(Trouble::Exit(FAILED)) } else { Ok(()) }
    }
}

fn tell(screen: &mut Screen, findings: &[Finding]) -> Done {
    let mut table = Table::new(&["", "ABOUT", "FINDING"]);
    for finding in findings {
        let (word, style) = match finding.level {
            Level::Ok => ("ok", Style::Good),
            Level::Note => ("note", Style::Warn),
            Level::Problem => ("problem", Style::Bad),
        };
        table.row([
            (word.into(), style),
            (finding.about.clone(), Style::Strong),
            (finding.what.clone(), Style::Plain),
        ]);
        if let Some(advice) = &finding.advice {
            table.row([
                (String::new(), Style::Plain),
                (String::new(), Style::Plain),
                (format!("→ {advice}"), Style::Dim),
            ]);
        }
    }
    screen.table(table)
}
