//! `qo migrate`

use crate::cli::Format;
use crate::output::Screen;
use crate::place::Place;
use crate::trouble::Done;
use clap::Subcommand;
use qo::settings::without_password;

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

/// The format of a store, and the newest one that this release knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
struct Level {
    /// What the store has.
    store: u32,
    /// What this release writes.
    release: u32,
}

impl Migrate {
    /// Shows or raises.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        let url = &place.settings.store;
        let (format, level) = match self {
            Self::Status(format) => {
                drop(place.open_existing().await?);
                (format, level(url).await?)
            }
            Self::Up(format) => {
                drop(place.open().await?);
                (format, raise(url).await?)
            }
        };
        if format.json {
            return screen.json(&level);
        }
        let said = match level.store.cmp(&level.release) {
            std::cmp::Ordering::Less => "older than this release; `qo migrate up` raises it",
            std::cmp::Ordering::Equal => "up to date",
            std::cmp::Ordering::Greater => "newer than this release, which can read it but not write it",
        };
        screen.line(format_args!("{}: format {}, {said}", without_password(url), level.store))
    }
}

/// The format of the store at a URL. So far there is one; a store of another refuses to be opened.
async fn level(_url: &str) -> Done<Level> {
    Ok(Level { store: 1, release: 1 })
}

/// Raises the format of the store at a URL.
async fn raise(url: &str) -> Done<Level> {
    level(url).await
}
