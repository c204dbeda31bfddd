//! `qo wait`: until jobs have ended.

use super::argument::{self, state_name};
use super::submit::wait::{Deadline, last_error, until_the_end};
use crate::cli::Format;
use crate::output::{Screen, detail as detail_json};
use crate::place::Place;
use crate::trouble::{Done, FAILED, Trouble};
use clap::Args;
use qo::Client;
use qo::core::{JobDetail, JobId, JobState};
use std::time::Duration;
use tokio::time::Instant;

/// Wait until jobs have ended.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 all have succeeded, 1 one has not, 3 there is no such job, 75 not within --timeout. The jobs go on, whatever
becomes of this command.

Examples:
  qo wait JOB
  qo wait $(cat jobs.txt) --timeout 5m
  qo wait JOB --json | jq '.[0].output'")]
pub struct Wait {
    /// The jobs' ids.
    #[arg(value_parser = argument::job, required = true, value_name = "JOB")]
    jobs: Vec<JobId>,
    /// Wait no longer than this for all of them [default: for ever].
    #[arg(long, value_name = "TIME", value_parser = argument::duration, allow_hyphen_values = true)]
    timeout: Option<u64>,
    #[command(flatten)]
    format: Format,
}

impl Wait {
    /// Waits.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        let deadline = self
            .timeout
            .map(Duration::from_millis)
            .and_then(|patience| Some(Deadline { patience, at: Instant::now().checked_add(patience)? }));
        let client = Client::new(place.open_existing().await?);
        // A job that does not exist is a mistake, which the user hears of at once.
        let mut jobs = self.found(&client).await?;
        let waited = self.wait(place, &client, screen, deadline, &mut jobs).await;
        if self.format.json {
            // Also after a timeout: the jobs as they are then.
            let known: Vec<_> = jobs.iter().map(detail_json).collect();
            screen.json(&known)?;
        }
        waited?;
        let all_succeeded = jobs.iter().all(|job| job.view.state == JobState::Succeeded);
        if all_succeeded { Ok(()) } else { Err(Trouble::Exit(FAILED)) }
    }

    async fn found(&self, client: &Client) -> Done<Vec<JobDetail>> {
        let mut jobs = Vec::new();
        for id in &self.jobs {
            let found = client.store().job(*id).await;
            jobs.push(found.map_err(|error| {
                Trouble::from(error).hint("`qo jobs list` shows the jobs that are remembered")
            })?);
        }
        Ok(jobs)
    }

    /// Waits for one after another, and tells of each.
    async fn wait(
        &self,
        place: &Place,
        client: &Client,
        screen: &mut Screen,
        deadline: Option<Deadline>,
        jobs: &mut [JobDetail],
    ) -> Done {
        for job in jobs {
            if !job.view.state.is_terminal() {
                *job = until_the_end(place, client, screen, job.view.id, deadline).await?;
            }
            if !self.format.json {
                let view = &job.view;
                let why = if view.state == JobState::Succeeded { String::new() } else { last_error(job) };
                screen.line(format_args!(
                    "job {} ({}) {}{why}",
                    view.id,
                    view.task,
                    state_name(view.state)
                ))?;
            }
        }
        Ok(())
    }
}
