//! `qo submit --wait`

use super::hint_nobody;
use crate::cli::Format;
use crate::command::argument::state_name;
use crate::output::{Screen, detail as detail_json};
use crate::trouble::{Done, FAILED, INTERRUPTED, Trouble};
use qo::Client;
use qo::core::{JobDetail, JobId, JobState};
use std::time::Duration;

/// After this long somebody should be told if nobody is there to run it.
const IMPATIENCE: Duration = Duration::from_secs(1);

/// Waits for a job, prints its output, and fails unless it succeeded.
pub async fn one(client: &Client, screen: &mut Screen, id: JobId, format: Format) -> Done {
    let detail = until_the_end(client, screen, id).await?;
    if format.json {
        screen.json(&detail_json(&detail))?;
    } else if let Some(output) = detail.output.as_ref().filter(|_| detail.view.state == JobState::Succeeded) {
        match qo::program::bytes(output) {
            Some(bytes) => screen.bytes(&bytes)?,
            None => screen.line(output.as_str())?,
        }
    }
    match detail.view.state {
        JobState::Succeeded => Ok(()),
        state => {
            screen.say(format_args!("job {id} {}{}", state_name(state), last_error(&detail)));
            screen.hint(format_args!("qo jobs show {id}"));
            Err(Trouble::Exit(FAILED))
        }
    }
}

fn last_error(detail: &JobDetail) -> String {
    let error = detail.attempts.iter().rev().find_map(|attempt| attempt.error.as_ref());
    error.map(|error| format!(": {}", error.as_str().trim_end())).unwrap_or_default()
}

/// Waits for the end of a job. Ctrl-C ends the waiting, not the job.
pub async fn until_the_end(client: &Client, screen: &mut Screen, id: JobId) -> Done<JobDetail> {
    let waiting = client.wait(id);
    tokio::pin!(waiting);
    let interrupt = crate::machine::interrupted();
    tokio::pin!(interrupt);
    let mut told = false;
    loop {
        tokio::select! {
            detail = &mut waiting => return Ok(detail?),
            signal = &mut interrupt => {
                signal?;
                screen.say(format_args!("job {id} goes on without us; see it with: qo jobs show {id}"));
                return Err(Trouble::Exit(INTERRUPTED));
            }
            () = tokio::time::sleep(IMPATIENCE), if !told => {
                told = true;
                if let Ok(job) = client.store().job(id).await && !job.view.state.is_terminal() {
                    hint_nobody(client.store(), screen, &job.view.task).await?;
                }
            }
        }
    }
}
