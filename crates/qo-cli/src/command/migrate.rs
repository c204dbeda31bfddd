//! `qo migrate`

use crate::cli::Format;
use crate::output::Screen;
use crate::place::Place;
use crate::trouble::Done;
use clap::Subcommand;
use qo::migrate::Level;
use std::cmp::Ordering;

/// See and raise the version of a store.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  qo migrate status
  qo migrate up        on PostgreSQL before the first worker, and before workers of a new release;
                       on a directory after every worker runs the new release")]
pub enum Migrate {
    /// Show which version the store has, which this release works with, and what is to be done.
    #[command(after_help = "Example:\n  qo migrate status --json")]
    Status(Format),
    /// Make the schema of a PostgreSQL store, or raise a store to this release. Several processes may do it at once.
    #[command(after_help = "Examples:
  qo migrate up
  qo migrate up --store 'postgres://owner@db/shop?schema=qo'")]
    Up(Format),
}

/// What `up` did.
#[derive(Debug, serde::Serialize)]
struct Raised {
    #[serde(flatten)]
    level: Level,
    /// Steps that were done, if raising has steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    done: Option<Vec<String>>,
}

impl Migrate {
    /// Shows or raises.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        let url = &place.settings.store;
        match self {
            Self::Status(format) => {
                place.must_exist()?;
                let level = qo::migrate::status(url).await.map_err(|error| place.explained(error))?;
                if format.json {
                    return screen.json(&level);
                }
                tell(place, screen, &level)
            }
            Self::Up(format) => {
                let done = match qo::doctor::server(url) {
                    Some(_) => qo::migrate::up_telling(url, |said| screen.warn(said))
                        .await
                        .map_err(|error| place.explained(error))?,
                    // Opening the store makes it and prints that.
                    None => place.open().await.map(|_| Vec::new())?,
                };
                let level = qo::migrate::status(url).await.map_err(|error| place.explained(error))?;
                if format.json {
                    let done = level.pending.is_some().then_some(done);
                    return screen.json(&Raised { level, done });
                }
                for step in done {
                    screen.line(format_args!("done: {step}"))?;
                }
                tell(place, screen, &level)
            }
        }
    }
}

fn tell(place: &Place, screen: &mut Screen, level: &Level) -> Done {
    let (shown, release) = (place.shown(), level.release);
    // A directory has a format, a schema has a version.
    let word = if level.pending.is_some() { "version" } else { "format" };
    match level.store {
        None if level.pending.is_some() => {
            screen
                .line(format_args!("{shown}: not there yet; `qo migrate up` makes it, version {release}"))?;
        }
        None => screen.line(format_args!("{shown}: new; this release writes format {release}"))?,
        Some(store) => {
            let said = match store.cmp(&release) {
                Ordering::Less => "older than this release; `qo migrate up` raises it",
                Ordering::Equal => "up to date",
                // A schema says which clients it still lets in.
                Ordering::Greater if level.oldest_client.is_some_and(|oldest| oldest <= release) => {
                    "newer than this release, which can still work with it"
                }
                Ordering::Greater => "newer than this release, which cannot work with it",
            };
            screen.line(format_args!("{shown}: {word} {store}, {said}"))?;
        }
    }
    if let Some(oldest) = level.oldest_client {
        screen.line(format_args!("this release: version {release}; oldest that is let in: {oldest}"))?;
    }
    for step in level.pending.iter().flatten() {
        screen.line(format_args!("to do: {step}"))?;
    }
    Ok(())
}
