//! `qo jobs logs`

use super::show::find;
use crate::cli::Format;
use crate::command::argument;
use crate::machine;
use crate::output::{Screen, Style};
use crate::place::Place;
use crate::trouble::Done;
use clap::Args;
use qo::core::{FenceToken, JobDetail, JobId};
use qo::log;
use qo::{Error, ErrorKind, Store};
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Print what a job's attempts wrote to stderr, also while they run.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qo jobs logs JOB
  qo jobs logs JOB --attempt 2
  qo jobs logs JOB --follow

The last 64 KiB of each attempt are kept; the first line says how much was cut. Bytes that are not UTF-8 are shown as \\xNN.
The log of a running attempt is kept about every second, in a bucket after 2 seconds and then every 2 to 30.")]
pub struct Logs {
    /// The job's id.
    #[arg(value_parser = argument::job)]
    job: JobId,
    /// Only of this attempt, 1 for the first.
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
    /// Go on printing until the job ends, or Ctrl-C.
    #[arg(long, short, conflicts_with = "json")]
    follow: bool,
    #[command(flatten)]
    format: Format,
}

/// How often a followed log is looked at; in a bucket looks cost something.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const LOOK_EVERY_WHERE_IT_COSTS: Duration = Duration::from_secs(2);

/// The log of one attempt.
#[derive(Debug, Serialize)]
struct Log {
    attempt: u32,
    token: FenceToken,
    /// The attempt has not ended.
    running: bool,
    log: Option<String>,
}

impl Logs {
    /// Prints them.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        let store = place.open_existing().await?;
        if self.follow {
            return self.follow(&store, screen).await;
        }
        let job = find(&store, self.job).await?;
        let tries = self.tries(&job);
        self.must_exist(&tries)?;
        let mut logs = Vec::new();
        for (attempt, token, running) in tries {
            logs.push(Log { attempt, token, running, log: store.log(token).await? });
        }
        if self.format.json { screen.json(&logs) } else { print(screen, &logs) }
    }

    /// The attempts that were asked for, the oldest first, and whether they still run.
    fn tries(&self, job: &JobDetail) -> Vec<(u32, FenceToken, bool)> {
        let running = job.view.running.as_ref().map(|run| (job.view.attempts_used + 1, run.token, true));
        let ended = job.attempts.iter().map(|attempt| (attempt.number, attempt.token, false));
        let wanted = |number: u32| self.attempt.is_none_or(|wanted| wanted == number);
        ended.chain(running).filter(|(number, ..)| wanted(*number)).collect()
    }

    fn must_exist(&self, tries: &[(u32, FenceToken, bool)]) -> Done {
        match self.attempt {
            Some(attempt) if tries.is_empty() => {
                let message = format!("job {} has no attempt {attempt}", self.job);
                Err(Error::new(ErrorKind::NotFound, message).into())
            }
            _ => Ok(()),
        }
    }

    async fn follow(&self, store: &Arc<dyn Store>, screen: &mut Screen) -> Done {
        let pause = if store.renewals_cost() { LOOK_EVERY_WHERE_IT_COSTS } else { LOOK_EVERY };
        let following = async {
            let mut followed = Followed::default();
            while !self.look(store, screen, &mut followed).await? {
                tokio::time::sleep(pause).await;
            }
            Ok(())
        };
        tokio::select! {
            done = following => done,
            signal = machine::interrupted() => Ok(signal?),
        }
    }

    /// Prints what is new. Returns whether that was the last.
    async fn look(&self, store: &Arc<dyn Store>, screen: &mut Screen, followed: &mut Followed) -> Done<bool> {
        // Read the job before its logs: the log of an attempt that has ended by then is complete.
        let job = find(store, self.job).await?;
        let tries = self.tries(&job);
        for &(attempt, token, running) in &tries {
            if !followed.done.contains(&token) {
                followed.show(screen, &Log { attempt, token, running, log: store.log(token).await? })?;
            }
        }
        screen.flush()?;
        if job.view.state.is_terminal() {
            self.must_exist(&tries)?;
            return Ok(true);
        }
        // An attempt that was asked for and has ended will not run again.
        Ok(self.attempt.is_some() && !tries.is_empty() && tries.iter().all(|(.., running)| !running))
    }
}

/// How much of the logs of a job has been printed.
#[derive(Debug, Default)]
struct Followed {
    /// Attempts that have ended and were printed whole.
    done: BTreeSet<FenceToken>,
    /// The attempt that was printed last, and its log so far.
    last: Option<(FenceToken, String)>,
}

impl Followed {
    /// Prints what is new; only whole lines of a running attempt.
    fn show(&mut self, screen: &mut Screen, log: &Log) -> Done {
        if let Some(text) = &log.log {
            let end = if log.running { text.rfind('\n').map_or(0, |at| at + 1) } else { text.len() };
            let now = &text[..end];
            let before = self.last.take().filter(|(token, _)| *token == log.token);
            if before.is_none() && log.attempt > 1 && end > 0 {
                heading(screen, log)?;
            }
            let before = before.map(|(_, before)| before).unwrap_or_default();
            let (missed, new) = log::news(&before, now);
            if missed > 0 {
                screen.line(log::cut_mark(missed))?;
            }
            screen.written(new, !log.running && !new.is_empty())?;
            self.last = Some((log.token, now.to_owned()));
        }
        if !log.running {
            self.done.insert(log.token);
        }
        Ok(())
    }
}

fn heading(screen: &mut Screen, log: &Log) -> Done {
    let running = if log.running { ", still running" } else { "" };
    screen.line(screen.styled(&format!("--- attempt {}{running} ---", log.attempt), Style::Dim))
}

fn print(screen: &mut Screen, logs: &[Log]) -> Done {
    let running = logs.iter().find(|log| log.running);
    if logs.iter().all(|log| log.log.is_none()) {
        match running {
            None => screen.say(
                "no attempt of it has a log; a log is what a program wrote to stderr, or a handler logged",
            ),
            Some(log) => screen.say(format_args!(
                "attempt {} is still running, and has no log so far; --follow waits for one",
                log.attempt
            )),
        }
        return Ok(());
    }
    for log in logs {
        let Some(text) = &log.log else { continue };
        if logs.len() > 1 {
            heading(screen, log)?;
        }
        screen.written(text, logs.len() > 1 && !text.is_empty())?;
    }
    if let Some(log) = running {
        screen.say(format_args!(
            "attempt {} is still running: this is its log so far; --follow goes on",
            log.attempt
        ));
    }
    Ok(())
}
