//! `qo submit --wait`

use super::hint_no_worker;
use crate::cli::Format;
use crate::command::argument::state_name;
use crate::output::{Screen, clean, ended};
use crate::place::Place;
use crate::trouble::{Done, FAILED, INTERRUPTED, Trouble};
use qo::core::{JobDetail, JobId, JobState, Submitted};
use qo::{Client, Error, ErrorKind};
use std::time::Duration;
use tokio::time::Instant;

/// After this long a job may have no worker: the user is warned.
const IMPATIENCE: Duration = Duration::from_secs(1);

/// How long a command waits for jobs.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    /// As the user asked for it.
    pub patience: Duration,
    /// When that is over.
    pub at: Instant,
}

/// Waits for a job, prints its output, and fails unless it succeeded.
pub async fn one(
    place: &Place,
    client: &Client,
    screen: &mut Screen,
    (submitted, id): (Submitted, JobId),
    format: Format,
    deadline: Option<Deadline>,
) -> Done {
    let detail = until_the_end(place, client, screen, id, deadline).await?;
    if format.json {
        screen.json(&ended(submitted, &detail))?;
    } else if let Some(output) = detail.output.as_ref().filter(|_| detail.view.state == JobState::Succeeded) {
        match (qo::program::bytes(output), text(output.as_str())) {
            (Some(bytes), _) => screen.bytes(&bytes)?,
            (None, Some(text)) => screen.written(&text, true)?,
            (None, None) => screen.line(output.as_str())?,
        }
    }
    match detail.view.state {
        JobState::Succeeded => Ok(()),
        // The document on stdout says it.
        _ if format.json => Err(Trouble::Exit(FAILED)),
        state => {
            screen.say(format_args!("job {id} {}{}", state_name(state), last_error(&detail)));
            screen.hint(format_args!("qo jobs show {id}"));
            Err(Trouble::Exit(FAILED))
        }
    }
}

/// The string that an output is. None if it is any other JSON.
fn text(output: &str) -> Option<String> {
    serde_json::from_str(output).ok()
}

/// What the last attempt that failed said.
pub fn last_error(detail: &JobDetail) -> String {
    let error = detail.attempts.iter().rev().find_map(|attempt| attempt.error.as_ref());
    let lines = |error: &str| error.trim_end().lines().map(clean).collect::<Vec<_>>().join("\n");
    error.map(|error| format!(": {}", lines(error.as_str()))).unwrap_or_default()
}

/// Waits for the end of a job. Ctrl-C and the deadline end the wait, not the job.
pub async fn until_the_end(
    place: &Place,
    client: &Client,
    screen: &mut Screen,
    id: JobId,
    deadline: Option<Deadline>,
) -> Done<JobDetail> {
    let waiting = client.wait(id);
    tokio::pin!(waiting);
    let interrupt = crate::machine::interrupted();
    tokio::pin!(interrupt);
    let too_late = async {
        match deadline {
            Some(deadline) => {
                tokio::time::sleep_until(deadline.at).await;
                deadline.patience
            }
            None => std::future::pending().await,
        }
    };
    tokio::pin!(too_late);
    let mut told = false;
    loop {
        tokio::select! {
            // A job that has ended by the deadline has ended in time.
            biased;
            detail = &mut waiting => return Ok(detail?),
            patience = &mut too_late => {
                let message = format!("job {id} has not ended within {patience:?}; it goes on");
                let error = Error::new(ErrorKind::Unavailable, message);
                return Err(Trouble::from(error).hint(format!("qo explain {id}")));
            }
            signal = &mut interrupt => {
                signal?;
                screen.say(format_args!("job {id} goes on after this command; see it with: qo jobs show {id}"));
                return Err(Trouble::Exit(INTERRUPTED));
            }
            () = tokio::time::sleep(IMPATIENCE), if !told => {
                told = true;
                let hint = async {
                    let job = client.store().job(id).await?;
                    match job.view.state.is_terminal() {
                        true => Ok(()),
                        false => hint_no_worker(place, client.store(), screen, &job.view.task).await,
                    }
                };
                // The wait goes on in any case.
                let _ = tokio::time::timeout(IMPATIENCE, hint).await;
            }
        }
    }
}
