//! A history as text: one line for each thing that happened, short enough to read.

use super::{Actor, Entry, History, What};
use crate::fixture::START;
use qo_core::{Answer, Claim, Command, Exchange, ExchangeReply, NewJob, Outcome, Prefetch, PrefetchedJob};
use qo_core::{Name, Progress, Result, Schedule, Settle, SlotRequest, Start, Steer};
use std::fmt::{self, Write as _};
use uuid::Uuid;

/// Some digits of an id, from its dice and its clock: enough to tell the ids of one run apart.
pub struct Short(pub Uuid);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.0.as_u128();
        write!(f, "{:06x}", (id ^ (id >> 80)) & 0xFF_FFFF)
    }
}

impl History {
    /// The whole trace. The same seed gives the same text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for entry in &self.entries {
            writeln!(text, "{entry}").expect("a String takes everything");
        }
        text
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worker(number) => f.pad(&format!("worker {number}")),
            Self::Submitter(number) => f.pad(&format!("client {number}")),
            Self::Program(number) => f.pad(&format!("program {number}")),
            Self::Operator => f.pad("operator"),
            Self::Sweeper => f.pad("sweeper"),
            Self::Network => f.pad("network"),
            Self::Auditor => f.pad("auditor"),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.at.ms_since(START);
        write!(f, "{:>6}.{:03} s  {:<9} ", ms / 1_000, ms % 1_000, self.actor)?;
        match &self.what {
            What::Sent(command) => write!(f, "sends    {}", Called(command)),
            What::Applied(command, answer) => {
                write!(f, "STORE    {} → {}", Called(command), Answered(answer))
            }
            What::Heard(command, answer) => match &**answer {
                Ok(_) => write!(f, "hears    {}: ok", verb(command)),
                Err(error) => write!(f, "hears    {}: {error}", verb(command)),
            },
            What::Fault(fault) => write!(f, "fault    {fault:?}"),
            What::HandlerStarted(job, token) => write!(f, "runs     {} token {token}", Short(job.0)),
            What::HandlerStopped(job, token) => write!(f, "ran      {} token {token}", Short(job.0)),
            What::Crashed => f.write_str("crashes"),
            What::Paused { ms, beyond_margin } => {
                write!(f, "pauses   {ms} ms, beyond margin: {beyond_margin}")
            }
            What::Session(session) => write!(f, "session  {}", Short(session.0)),
            What::Healed { bound_ms } => write!(f, "HEALED   nothing may be stuck longer than {bound_ms} ms"),
            What::Audited(audit) => write!(
                f,
                "looks    {} groups, {} jobs, {} sessions",
                audit.groups.len(),
                audit.jobs.len(),
                audit.workers.len()
            ),
        }
    }
}

fn verb(command: &Command) -> &'static str {
    match command {
        Command::Submit(_) => "submit",
        Command::Admit(_) => "admit",
        Command::Archive { .. } => "archive",
        Command::Cancel(_) => "cancel",
        Command::Register(_) => "register",
        Command::Configure(_) => "configure",
        Command::SetLimit(..) => "set",
        Command::UnsetLimit(_) => "unset",
        Command::PauseQueue(_, true) => "pause",
        Command::PauseQueue(_, false) => "resume",
        Command::OpenSession(_) => "open",
        Command::Exchange(_) => "exchange",
        Command::CloseSession(_) => "close",
        Command::ReleaseSlot(..) => "release",
        Command::Sweep => "sweep",
        Command::Retry(_) => "retry",
        Command::ChangeMatching { .. } => "change",
        Command::SteerWorkflow(_, Steer::Retry(_)) => "retry workflow",
        Command::SteerWorkflow(_, Steer::Skip(_)) => "skip step of workflow",
        Command::SteerWorkflow(_, Steer::Cancel) => "cancel workflow",
        Command::AcquireSlots(_) => "acquire",
        Command::ExtendSlots { .. } => "extend",
        Command::ReturnSlots(..) => "return",
        Command::EnableSchedule(_, true) => "enable",
        Command::EnableSchedule(_, false) => "disable",
        Command::TriggerSchedule(..) => "trigger",
        Command::CreateToken(..) => "create token",
        Command::RevokeToken(..) => "revoke token",
        Command::Record(_) => "record",
    }
}

struct Called<'a>(&'a Command);

impl fmt::Display for Called<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(verb(self.0))?;
        match self.0 {
            Command::Submit(jobs) | Command::Admit(jobs) => jobs.iter().try_for_each(|job| submitted(f, job)),
            Command::Cancel(jobs) | Command::Retry(jobs) | Command::Archive { jobs } => {
                jobs.iter().try_for_each(|job| write!(f, " {}", Short(job.0)))
            }
            Command::Register(tasks) => tasks.iter().try_for_each(|t| {
                write!(f, " {} (group {}, limit {:?})", t.task, t.group(), t.max_concurrent)
            }),
            Command::Configure(configuration) => configuration
                .limits
                .iter()
                .try_for_each(|(group, limit)| write!(f, " {group}={limit}"))
                .and_then(|()| write!(f, " priorities {:?}", configuration.queue_priorities))
                .and_then(|()| configuration.schedules.iter().try_for_each(|each| planned(f, each)))
                .and_then(|()| write!(f, " retention {:?}", configuration.retention)),
            Command::SetLimit(group, limit) => write!(f, " {group} = {limit}"),
            Command::UnsetLimit(group) => write!(f, " {group}"),
            Command::PauseQueue(queue, _) => write!(f, " {queue}"),
            Command::OpenSession(session) => {
                let served = (&session.tasks, &session.queues);
                write!(f, " {} lease {} ms, {served:?}", Short(session.id.0), session.lease_ms)
            }
            Command::Exchange(exchange) => exchanged(f, exchange),
            Command::CloseSession(session) => write!(f, " {}", Short(session.0)),
            Command::ReleaseSlot(group, slot) => write!(f, " {group} slot {slot}"),
            Command::Sweep => Ok(()),
            Command::ChangeMatching { change, filter, after, limit } => {
                write!(f, " {change:?} {filter:?} after {after:?}, at most {limit}")
            }
            Command::SteerWorkflow(workflow, steer) => write!(f, " {workflow} {steer:?}"),
            Command::AcquireSlots(request) => {
                let SlotRequest { id, group, slots, lease_ms, limit, .. } = request;
                write!(f, " {} {slots} of {group} for {lease_ms} ms, limit {limit:?}", Short(id.0))
            }
            Command::ExtendSlots { lease, token, lease_ms } => {
                write!(f, " {} token {token} by {lease_ms} ms", Short(lease.0))
            }
            Command::ReturnSlots(lease, token) => write!(f, " {} token {token}", Short(lease.0)),
            Command::EnableSchedule(schedule, _) => write!(f, " {schedule}"),
            Command::TriggerSchedule(schedule, job) => write!(f, " {schedule} as {}", Short(job.0)),
            Command::CreateToken(token, by) => write!(f, " {} ({}) by {by}", token.name, token.id),
            Command::RevokeToken(token, by) => write!(f, " {token} by {by}"),
            Command::Record(deed) => write!(f, " {} {} by {}", deed.what, deed.on, deed.by),
        }
    }
}

fn planned(f: &mut fmt::Formatter<'_>, (name, spec): (&Name, &Schedule)) -> fmt::Result {
    let Schedule { cron, task, missed, overlap, .. } = spec;
    write!(f, " [{name}: {cron} {task}, {missed:?}, overlap {overlap}]")
}

fn submitted(f: &mut fmt::Formatter<'_>, job: &NewJob) -> fmt::Result {
    write!(f, " [{} {} in {}", Short(job.id.0), job.task, job.queue)?;
    if let Some(group) = &job.group {
        write!(f, ", group {group}")?;
    }
    if let Some(key) = &job.key {
        write!(f, ", key {key}")?;
    }
    if job.cost != 1 {
        write!(f, ", cost {}", job.cost)?;
    }
    for (group, slots) in &job.limits {
        write!(f, ", {group}:{slots}")?;
    }
    if let Some(limit) = job.limit {
        write!(f, ", limit {limit}")?;
    }
    if job.clear_limit {
        f.write_str(", clears the limit")?;
    }
    if let Some(traceparent) = job.traceparent {
        write!(f, ", trace {traceparent}")?;
    }
    if let Some(workflow) = &job.workflow {
        write!(f, ", workflow {workflow} {:?}", job.on_failure)?;
    }
    f.write_str("]")
}

fn exchanged(f: &mut fmt::Formatter<'_>, exchange: &Exchange) -> fmt::Result {
    write!(f, " {} #{}", Short(exchange.session.0), exchange.number)?;
    for Settle { job, token, outcome } in &exchange.settles {
        let how = match outcome {
            Outcome::Succeed { .. } => "succeeds",
            Outcome::Retry { .. } => "retries",
            Outcome::Fail { .. } => "fails",
            Outcome::Snooze { .. } => "snoozes",
            Outcome::Release => "is released",
            Outcome::Cancelled => "is cancelled",
        };
        write!(f, ", {} token {token} {how}", Short(job.0))?;
    }
    for Start { job, token } in &exchange.starts {
        write!(f, ", starts {} token {token}", Short(job.0))?;
    }
    for Progress { job, token, percent, .. } in &exchange.progress {
        write!(f, ", {} token {token} is at {percent} %", Short(job.0))?;
    }
    let Claim { max, max_claim_batch, prefetch } = exchange.claim;
    write!(f, ", wants {max}")?;
    if let Some(Prefetch { buffer, lease_ms }) = prefetch {
        write!(f, " and holds {buffer} for {lease_ms} ms")?;
    }
    if let Some(most) = max_claim_batch {
        write!(f, " (≤ {most} a queue)")?;
    }
    if exchange.draining { f.write_str(", draining") } else { Ok(()) }
}

struct Answered<'a>(&'a Result<Answer>);

impl fmt::Display for Answered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Err(error) => write!(f, "{error}"),
            Ok(Answer::Submitted(results)) => each(f, results),
            Ok(Answer::Cancelled(results) | Answer::Retried(results)) => each(f, results),
            Ok(Answer::Opened(opened)) => write!(f, "until {}", opened.lease_until.ms_since(START)),
            Ok(Answer::Exchanged(reply)) => replied(f, reply),
            Ok(Answer::Swept(swept)) => write!(f, "{swept:?}"),
            Ok(Answer::Changed(changed)) => write!(f, "{changed:?}"),
            Ok(Answer::Acquired(lease)) => write!(f, "{lease:?}"),
            Ok(Answer::Extended(lease)) => write!(f, "{lease:?}"),
            Ok(Answer::Triggered(outcome)) => write!(f, "{outcome:?}"),
            Ok(Answer::Pushed(pushed)) => write!(f, "{} changes", pushed.changes.len()),
            Ok(Answer::Done) => f.write_str("ok"),
        }
    }
}

fn each<T: fmt::Debug>(f: &mut fmt::Formatter<'_>, results: &[Result<T>]) -> fmt::Result {
    for (index, result) in results.iter().enumerate() {
        f.write_str(if index == 0 { "" } else { ", " })?;
        match result {
            Ok(done) => {
                let text = format!("{done:?}");
                f.write_str(text.split('(').next().unwrap_or(&text))?;
            }
            Err(error) => write!(f, "{error}")?,
        }
    }
    Ok(())
}

fn replied(f: &mut fmt::Formatter<'_>, reply: &ExchangeReply) -> fmt::Result {
    each(f, &reply.settled)?;
    for started in &reply.started {
        match started {
            Ok(started) => write!(f, " start: {:?} {:?}", started.then, started.run.map(|run| run.token))?,
            Err(error) => write!(f, " start: {error}")?,
        }
    }
    for job in &reply.claimed {
        write!(
            f,
            " +{} token {} ({} try {}/{})",
            Short(job.id.0),
            job.token,
            job.task,
            job.attempt,
            job.max_attempts
        )?;
    }
    for PrefetchedJob { job, claim_until } in &reply.prefetched {
        let until = claim_until.ms_since(START);
        write!(f, " ~{} token {} ({}) until {until}", Short(job.id.0), job.token, job.task)?;
    }
    for stop in &reply.stop {
        write!(f, " stop {} token {} ({:?})", Short(stop.job.0), stop.token, stop.reason)?;
    }
    write!(f, " until {}", reply.lease_until.ms_since(START))
}
