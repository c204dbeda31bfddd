//! `qo migrate`

use crate::cli::Format;
use crate::output::Screen;
use crate::place::Place;
use crate::trouble::Done;
use clap::Subcommand;
use qo::settings::without_password;
use std::cmp::Ordering;

/// See and raise the format of a store.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  qo migrate status
  qo migrate up        after every worker runs the new release")]
pub enum Migrate {
    /// Show which format the store has, and which this release writes.
    #[command(after_help = "Example:\n  qo migrate status --json")]
    Status(Format),
    /// Raise the store to the format of this release. Older releases cannot open it afterwards.
    #[command(after_help = "Example:\n  qo migrate up")]
    Up(Format),
}

/// The format of a store, and the one of this release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
struct Level {
    /// What the store has; none if nobody has written to it.
    store: Option<u64>,
    /// What this release works with.
    release: u64,
}

impl Migrate {
    /// Shows or raises.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        let url = &place.settings.store;
        let format = match self {
            Self::Status(format) => {
                place.must_exist()?;
                format
            }
            Self::Up(format) => {
                place.must_exist()?;
                // Opening gives a new store its format. So far there is one, so there is nothing else to raise.
                drop(place.open().await?);
                format
            }
        };
        let (store, release) = qo::doctor::format_levels(url).await?;
        if format.json {
            return screen.json(&Level { store, release });
        }
        let url = without_password(url);
        let Some(store) = store else {
            return screen.line(format_args!("{url}: new; this release writes format {release}"));
        };
        let said = match store.cmp(&release) {
            Ordering::Less => "older than this release; `qo migrate up` raises it",
            Ordering::Equal => "up to date",
            Ordering::Greater => "newer than this release, which cannot work with it",
        };
        screen.line(format_args!("{url}: format {store}, {said}"))
    }
}
