//! `qo jobs`

mod change;
mod filter;
mod list;
mod logs;
mod show;

use crate::output::{Screen, Style};
use crate::place::Place;
use crate::trouble::Done;
use clap::Subcommand;
use qo::core::JobState;

/// See jobs, their logs, cancel and retry them.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  qo jobs list --state failed --task resize
  qo jobs show JOB
  qo jobs retry --state failed --queue stripe --yes")]
pub enum Jobs {
    List(list::List),
    Show(show::Show),
    Logs(logs::Logs),
    Cancel(change::Cancel),
    Retry(change::Retry),
}

impl Jobs {
    /// Does it.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        match self {
            Self::List(list) => list.run(place, screen).await,
            Self::Show(show) => show.run(place, screen).await,
            Self::Logs(logs) => logs.run(place, screen).await,
            Self::Cancel(cancel) => cancel.run(place, screen).await,
            Self::Retry(retry) => retry.run(place, screen).await,
        }
    }
}

/// How a state looks.
pub fn style(state: JobState) -> Style {
    match state {
        JobState::Pending | JobState::Claimed => Style::Plain,
        JobState::Running => Style::Strong,
        JobState::Succeeded => Style::Good,
        JobState::Failed => Style::Bad,
        JobState::Cancelled | JobState::Expired => Style::Warn,
    }
}
