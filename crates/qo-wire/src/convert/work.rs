//! Sessions and the exchange.

use super::{
    all, enumeration, job_id, json, key_if, messages, millis, moment, name, names, needed, session_id,
};
use super::{state, text, texts, token_id, value};
use crate::pb;
use qo_core::{Claim, ClaimedJob, Error, ErrorText, Exchange, ExchangeReply, FenceToken, Granted, Json};
use qo_core::{NewSession, OpenedSession, Outcome, Prefetch, PrefetchedJob, Progress, Result, RetryPolicy};
use qo_core::{Settle, Start, Started, Stop, StopReason, Swept, Time, Work};

enumeration!(StopReason, pb::StopReason, "reason", { Cancelled, LeaseEnded });

impl From<NewSession> for pb::OpenSessionRequest {
    fn from(session: NewSession) -> Self {
        let NewSession { id, worker, queues, tasks, lease_ms, permits, owner } = session;
        Self {
            session: id.to_string(),
            worker: text(worker),
            queues: texts(&queues),
            tasks: texts(&tasks),
            lease_ms,
            permits,
            owner: owner.map(String::from),
        }
    }
}

impl TryFrom<pb::OpenSessionRequest> for NewSession {
    type Error = Error;

    fn try_from(request: pb::OpenSessionRequest) -> Result<Self> {
        let pb::OpenSessionRequest { session, worker, queues, tasks, lease_ms, permits, owner } = request;
        Ok(Self {
            id: session_id("session", &session)?,
            worker: name("worker", &worker)?,
            queues: names("queues", &queues)?,
            tasks: names("tasks", &tasks)?,
            lease_ms,
            permits,
            owner: owner.map(|owner| token_id("owner", &owner)).transpose()?,
        })
    }
}

impl From<OpenedSession> for pb::OpenSessionReply {
    fn from(opened: OpenedSession) -> Self {
        let OpenedSession { now, lease_until } = opened;
        Self { now_ms: now.as_millis(), lease_until_ms: lease_until.as_millis() }
    }
}

impl From<pb::OpenSessionReply> for OpenedSession {
    fn from(reply: pb::OpenSessionReply) -> Self {
        let pb::OpenSessionReply { now_ms, lease_until_ms } = reply;
        Self { now: Time::from_millis(now_ms), lease_until: Time::from_millis(lease_until_ms) }
    }
}

impl From<Claim> for pb::Claim {
    fn from(claim: Claim) -> Self {
        let Claim { max, max_claim_batch, prefetch } = claim;
        let prefetch = prefetch.map(|Prefetch { buffer, lease_ms }| pb::Prefetch { buffer, lease_ms });
        Self { max, max_claim_batch, prefetch }
    }
}

impl From<pb::Claim> for Claim {
    fn from(claim: pb::Claim) -> Self {
        let pb::Claim { max, max_claim_batch, prefetch } = claim;
        let prefetch = prefetch.map(|pb::Prefetch { buffer, lease_ms }| Prefetch { buffer, lease_ms });
        Self { max, max_claim_batch, prefetch }
    }
}

impl From<Exchange> for pb::ExchangeRequest {
    fn from(exchange: Exchange) -> Self {
        let Exchange {
            session,
            number,
            settles,
            starts,
            progress,
            claim,
            free_permits,
            draining,
            memory_percent,
            idle_ms,
        } = exchange;
        Self {
            session: session.to_string(),
            number,
            settles: messages(settles),
            starts: messages(starts),
            progress: messages(progress),
            claim: Some(claim.into()),
            free_permits,
            draining,
            idle_ms,
            memory_percent: memory_percent.map(u32::from),
        }
    }
}

impl TryFrom<pb::ExchangeRequest> for Exchange {
    type Error = Error;

    fn try_from(request: pb::ExchangeRequest) -> Result<Self> {
        let pb::ExchangeRequest {
            session,
            number,
            settles,
            starts,
            progress,
            claim,
            free_permits,
            draining,
            idle_ms,
            memory_percent,
        } = request;
        Ok(Self {
            session: session_id("session", &session)?,
            number,
            settles: all(settles, "settles")?,
            starts: all(starts, "starts")?,
            progress: all(progress, "progress")?,
            claim: claim.map(Claim::from).unwrap_or_default(),
            free_permits,
            draining,
            // The store refuses what is no share.
            memory_percent: memory_percent.map(|percent| u8::try_from(percent).unwrap_or(u8::MAX)),
            idle_ms,
        })
    }
}

impl From<Settle> for pb::Settle {
    fn from(settle: Settle) -> Self {
        let Settle { job, token, outcome } = settle;
        Self { job: job.to_string(), token: token.0, outcome: Some(outcome.into()) }
    }
}

impl From<Outcome> for pb::settle::Outcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Succeed { output } => Self::Succeed(output.into()),
            Outcome::Retry { error, delay_ms } => Self::Retry(pb::Retry { error: error.into(), delay_ms }),
            Outcome::Fail { error } => Self::Fail(error.into()),
            Outcome::Snooze { delay_ms } => Self::SnoozeMs(delay_ms),
            Outcome::Release => Self::Release(pb::Release {}),
            Outcome::Cancelled => Self::Cancelled(pb::Cancelled {}),
        }
    }
}

impl TryFrom<pb::Settle> for Settle {
    type Error = Error;

    fn try_from(settle: pb::Settle) -> Result<Self> {
        let pb::Settle { job, token, outcome } = settle;
        let outcome = Outcome::from(needed("outcome", outcome)?);
        Ok(Self { job: job_id("job", &job)?, token: FenceToken(token), outcome })
    }
}

impl From<pb::settle::Outcome> for Outcome {
    fn from(outcome: pb::settle::Outcome) -> Self {
        use pb::settle::Outcome as Wire;
        match outcome {
            Wire::Succeed(output) => Self::Succeed { output: Json::as_stored(&output) },
            Wire::Retry(pb::Retry { error, delay_ms }) => {
                Self::Retry { error: ErrorText::from(error), delay_ms }
            }
            Wire::Fail(error) => Self::Fail { error: error.into() },
            Wire::SnoozeMs(delay_ms) => Self::Snooze { delay_ms },
            Wire::Release(pb::Release {}) => Self::Release,
            Wire::Cancelled(pb::Cancelled {}) => Self::Cancelled,
        }
    }
}

impl From<Start> for pb::Start {
    fn from(start: Start) -> Self {
        let Start { job, token } = start;
        Self { job: job.to_string(), token: token.0 }
    }
}

impl TryFrom<pb::Start> for Start {
    type Error = Error;

    fn try_from(start: pb::Start) -> Result<Self> {
        let pb::Start { job, token } = start;
        Ok(Self { job: job_id("job", &job)?, token: FenceToken(token) })
    }
}

impl From<Progress> for pb::Progress {
    fn from(progress: Progress) -> Self {
        let Progress { job, token, percent, note } = progress;
        Self { job: job.to_string(), token: token.0, percent: percent.into(), note: note.into() }
    }
}

impl TryFrom<pb::Progress> for Progress {
    type Error = Error;

    fn try_from(progress: pb::Progress) -> Result<Self> {
        let pb::Progress { job, token, percent, note } = progress;
        // What does not fit is above 100 in any case: the store refuses it by its rule.
        let percent = u8::try_from(percent).unwrap_or(u8::MAX);
        Ok(Self { job: job_id("job", &job)?, token: FenceToken(token), percent, note: note.into() })
    }
}

impl From<ExchangeReply> for pb::ExchangeReply {
    fn from(reply: ExchangeReply) -> Self {
        let ExchangeReply { number, settled, started, claimed, prefetched, stop, now, lease_until } = reply;
        Self {
            number,
            settled: messages(settled),
            started: messages(started),
            claimed: messages(claimed),
            prefetched: messages(prefetched),
            stop: messages(stop),
            now_ms: now.as_millis(),
            lease_until_ms: lease_until.as_millis(),
        }
    }
}

impl TryFrom<pb::ExchangeReply> for ExchangeReply {
    type Error = Error;

    fn try_from(reply: pb::ExchangeReply) -> Result<Self> {
        let pb::ExchangeReply { number, settled, started, claimed, prefetched, stop, now_ms, lease_until_ms } =
            reply;
        Ok(Self {
            number,
            settled: all(settled, "settled")?,
            started: all(started, "started")?,
            claimed: all(claimed, "claimed")?,
            prefetched: all(prefetched, "prefetched")?,
            stop: all(stop, "stop")?,
            now: Time::from_millis(now_ms),
            lease_until: Time::from_millis(lease_until_ms),
        })
    }
}

impl From<Result<Started>> for pb::StartOutcome {
    fn from(outcome: Result<Started>) -> Self {
        use pb::start_outcome::Outcome;
        let outcome = match outcome {
            Ok(Started { then, run }) => Outcome::Started(pb::Started {
                then: pb::JobState::from(then).into(),
                run: run.map(pb::Granted::from),
            }),
            Err(error) => Outcome::Error(error.into()),
        };
        Self { outcome: Some(outcome) }
    }
}

impl TryFrom<pb::StartOutcome> for Result<Started> {
    type Error = Error;

    fn try_from(outcome: pb::StartOutcome) -> Result<Self> {
        match needed("outcome", outcome.outcome)? {
            pb::start_outcome::Outcome::Started(pb::Started { then, run }) => {
                Ok(Ok(Started { then: state("then", then)?, run: run.map(Granted::from) }))
            }
            pb::start_outcome::Outcome::Error(error) => super::error::outcome(error),
        }
    }
}

impl From<Granted> for pb::Granted {
    fn from(granted: Granted) -> Self {
        let Granted { token, timeout_ms, retry } = granted;
        Self { token: token.0, timeout_ms, retry: Some(retry.into()) }
    }
}

impl From<pb::Granted> for Granted {
    fn from(granted: pb::Granted) -> Self {
        let pb::Granted { token, timeout_ms, retry } = granted;
        let retry = retry.map(RetryPolicy::from).unwrap_or_default();
        Self { token: FenceToken(token), timeout_ms, retry }
    }
}

impl From<ClaimedJob> for pb::ClaimedJob {
    fn from(job: ClaimedJob) -> Self {
        let ClaimedJob {
            id,
            token,
            attempt,
            max_attempts,
            queue,
            task,
            group,
            key,
            payload,
            timeout_ms,
            retry,
            traceparent,
            due_at,
        } = job;
        Self {
            id: id.to_string(),
            token: token.0,
            attempt,
            max_attempts,
            queue: text(queue),
            task: text(task),
            group: text(group),
            key: key.map(text),
            payload: payload.into(),
            timeout_ms,
            // The usual backoff is left out: most jobs have it.
            retry: (retry != RetryPolicy::default()).then(|| retry.into()),
            traceparent: traceparent.map(String::from),
            due_at_ms: due_at.map(Time::as_millis),
        }
    }
}

impl TryFrom<pb::ClaimedJob> for ClaimedJob {
    type Error = Error;

    fn try_from(job: pb::ClaimedJob) -> Result<Self> {
        Ok(Self {
            id: job_id("id", &job.id)?,
            token: FenceToken(job.token),
            attempt: job.attempt,
            max_attempts: job.max_attempts,
            queue: name("queue", &job.queue)?,
            task: name("task", &job.task)?,
            group: name("group", &job.group)?,
            key: key_if("key", job.key)?,
            payload: json(Some(&job.payload)),
            timeout_ms: job.timeout_ms,
            retry: job.retry.map(RetryPolicy::from).unwrap_or_default(),
            traceparent: super::traceparent_if(job.traceparent)?,
            due_at: job.due_at_ms.map(Time::from_millis),
        })
    }
}

impl From<PrefetchedJob> for pb::PrefetchedJob {
    fn from(ahead: PrefetchedJob) -> Self {
        let PrefetchedJob { job, claim_until } = ahead;
        Self { job: Some(job.into()), claim_until_ms: claim_until.as_millis() }
    }
}

impl TryFrom<pb::PrefetchedJob> for PrefetchedJob {
    type Error = Error;

    fn try_from(ahead: pb::PrefetchedJob) -> Result<Self> {
        let job = ClaimedJob::try_from(needed("job", ahead.job)?)?;
        Ok(Self { job, claim_until: Time::from_millis(ahead.claim_until_ms) })
    }
}

impl From<Stop> for pb::Stop {
    fn from(stop: Stop) -> Self {
        let Stop { job, token, reason } = stop;
        Self { job: job.to_string(), token: token.0, reason: pb::StopReason::from(reason).into() }
    }
}

impl TryFrom<pb::Stop> for Stop {
    type Error = Error;

    fn try_from(stop: pb::Stop) -> Result<Self> {
        let pb::Stop { job, token, reason } = stop;
        let reason = value::<pb::StopReason, _>("reason", reason)?;
        Ok(Self { job: job_id("job", &job)?, token: FenceToken(token), reason })
    }
}

impl pb::WorkReply {
    /// A look as a message. The change counter stays behind: numbers of one server mean nothing to another.
    pub fn of(work: Work, tells_changes: bool) -> Self {
        let Work { now, next, at, seen: _ } = work;
        Self { now, next_ms: millis(next), at_ms: at.as_millis(), tells_changes }
    }

    /// The look, for a caller that has its own change counter.
    pub(crate) fn seen(self, seen: u64) -> Work {
        Work { now: self.now, next: moment(self.next_ms), at: Time::from_millis(self.at_ms), seen }
    }
}

impl From<Swept> for pb::SweepReply {
    fn from(swept: Swept) -> Self {
        let Swept { sessions, attempts, claims, slots, fired, expired, forgotten } = swept;
        Self { sessions, attempts, claims, slots, fired, expired, forgotten }
    }
}

impl From<pb::SweepReply> for Swept {
    fn from(reply: pb::SweepReply) -> Self {
        let pb::SweepReply { sessions, attempts, claims, slots, fired, expired, forgotten } = reply;
        Self { sessions, attempts, claims, slots, fired, expired, forgotten }
    }
}
