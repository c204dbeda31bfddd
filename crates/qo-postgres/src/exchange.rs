//! The exchange beside others. Its parameters are arrays and its answer is rows, not JSON.

use crate::PostgresStore;
use crate::call::{MUST_BE_ALONE, Parameter, column};
use crate::store::number;
use qo_core::{
    ClaimedJob, Error, ErrorKind, Exchange, ExchangeReply, FenceToken, JobId, JobState, Json, Key, Name,
};
use qo_core::{Outcome, Result, RetryPolicy, SessionId, Time, Traceparent, caps};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::PoisonError;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

/// The answer to an exchange beside others.
pub(crate) enum Shared {
    /// The reply.
    Reply(Reply),
    /// It only asked, and there is nothing for it. Nothing has changed.
    Nothing,
    /// It must run alone. Nothing has changed.
    MustBeAlone,
}

/// A reply, and the jobs of it that cannot be read.
pub(crate) struct Reply {
    pub reply: ExchangeReply,
    pub unreadable: Vec<Unreadable>,
}

/// A job that its worker owns from now on and cannot read.
pub(crate) struct Unreadable {
    pub job: JobId,
    pub token: FenceToken,
    /// Why.
    pub error: Error,
}

/// Settles, column by column.
#[derive(Default)]
struct Settles<'a> {
    jobs: Vec<Uuid>,
    tokens: Vec<i64>,
    outcomes: Vec<&'static str>,
    errors: Vec<Option<&'a str>>,
    outputs: Vec<Option<&'a str>>,
    delays: Vec<Option<i64>>,
}

impl<'a> Settles<'a> {
    fn of(exchange: &'a Exchange) -> Self {
        let mut all = Self::default();
        for settle in &exchange.settles {
            all.jobs.push(settle.job.0);
            all.tokens.push(number(settle.token.0));
            let (outcome, error, output, delay) = match &settle.outcome {
                Outcome::Succeed { output } => ("succeeded", None, Some(output.as_str()), None),
                Outcome::Retry { error, delay_ms } => {
                    ("retried", Some(error.as_str()), None, Some(*delay_ms))
                }
                Outcome::Fail { error } => ("failed", Some(error.as_str()), None, None),
                Outcome::Snooze { delay_ms } => ("snoozed", None, None, Some(*delay_ms)),
                Outcome::Release => ("released", None, None, None),
                Outcome::Cancelled => ("cancelled", None, None, None),
            };
            all.outcomes.push(outcome);
            all.errors.push(error);
            all.outputs.push(output);
            all.delays.push(delay.map(number));
        }
        all
    }
}

/// Whether an exchange asks for nothing that must be done alone.
fn is_usual(exchange: &Exchange) -> bool {
    exchange.starts.is_empty()
        && exchange.progress.is_empty()
        && !exchange.draining
        && exchange.idle_ms.is_none()
        && exchange.claim.prefetch.is_none()
        && exchange.settles.iter().all(|settle| settle.outcome.check().is_ok())
}

impl PostgresStore {
    /// The reply to an exchange, after its unreadable jobs have failed for good, in one call. If that call fails, the
    /// worker gets the others all the same: no reply is lost because of a bad job. The session owns the bad ones
    /// until its next exchange reports them.
    pub(crate) async fn without_unreadable(&self, session: SessionId, reply: Reply) -> ExchangeReply {
        let Reply { reply, unreadable } = reply;
        for Unreadable { job, error, .. } in &unreadable {
            tracing::error!(%job, "cannot be read, and fails: {error}");
        }
        let mut untold = {
            let mut untold = self.untold.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *untold)
        };
        untold.extend(unreadable.into_iter().map(|job| (session, job)));
        while let Some(&(session, _)) = untold.first() {
            let told = untold.iter().filter(|(of, _)| *of == session).map(|(_, job)| job);
            match self.fail_unreadable(session, told).await {
                Ok(()) => {
                    let mut left = caps::CLAIM;
                    untold.retain(|(of, _)| {
                        let is_told = *of == session && left > 0;
                        left -= u32::from(is_told);
                        !is_told
                    });
                }
                Err(error) => {
                    tracing::warn!("jobs that cannot be read are failed with the next exchange: {error}");
                    // Those beyond the cap stay with their sessions and are freed when these end.
                    untold.truncate(caps::CLAIM as usize);
                    self.untold.lock().unwrap_or_else(PoisonError::into_inner).append(&mut untold);
                }
            }
        }
        reply
    }

    async fn fail_unreadable(
        &self,
        session: SessionId,
        jobs: impl Iterator<Item = &Unreadable>,
    ) -> Result<()> {
        let (mut ids, mut tokens, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for Unreadable { job, token, error } in jobs.take(caps::CLAIM as usize) {
            ids.push(job.0);
            tokens.push(number(token.0));
            errors.push(format!("this job cannot be read: {}", error.message()));
        }
        let parameters: [Parameter<'_>; 4] = [
            (&session.0, Type::UUID),
            (&ids, Type::UUID_ARRAY),
            (&tokens, Type::INT8_ARRAY),
            (&errors, Type::TEXT_ARRAY),
        ];
        self.calls.call("api_fail_unreadable", &parameters).await.map(drop)
    }

    pub(crate) async fn exchange_shared(&self, exchange: &Exchange, only_asks: bool) -> Result<Shared> {
        if !is_usual(exchange) {
            return Ok(Shared::MustBeAlone);
        }
        let settles = Settles::of(exchange);
        let claim = &exchange.claim;
        // All three have been checked against their caps.
        let int = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
        let (max, max_claim_batch) = (int(claim.max), claim.max_claim_batch.map(int));
        let parameters: [Parameter<'_>; 13] = [
            (&exchange.session.0, Type::UUID),
            (&number(exchange.number), Type::INT8),
            (&settles.jobs, Type::UUID_ARRAY),
            (&settles.tokens, Type::INT8_ARRAY),
            (&settles.outcomes, Type::TEXT_ARRAY),
            (&settles.errors, Type::TEXT_ARRAY),
            (&settles.outputs, Type::TEXT_ARRAY),
            (&settles.delays, Type::INT8_ARRAY),
            (&max, Type::INT4),
            (&max_claim_batch, Type::INT4),
            (&int(exchange.free_permits), Type::INT4),
            (&only_asks, Type::BOOL),
            (&exchange.memory_percent.map(i32::from), Type::INT4),
        ];
        let rows = match self.calls.rows("api_exchange_shared", &parameters).await {
            Err(error) if error.message() == MUST_BE_ALONE => return Ok(Shared::MustBeAlone),
            rows => rows?,
        };
        match rows.first() {
            None => return Ok(Shared::MustBeAlone),
            Some(row) if column::<i32>(row, 0)? == 4 => return Ok(Shared::Nothing),
            Some(_) => {}
        }
        reply(exchange.number, &rows).map(Shared::Reply)
    }
}

/// Builds the reply. Its rows come in any order.
fn reply(number: u64, rows: &[Row]) -> Result<Reply> {
    let (mut settled, mut claimed, mut times) = (Vec::new(), Vec::new(), None);
    let mut unreadable = Vec::new();
    for row in rows {
        let place: i64 = column(row, 1)?;
        match column::<i32>(row, 0)? {
            0 => times = Some((Time::from_millis(column(row, 14)?), Time::from_millis(column(row, 15)?))),
            1 => settled.push((place, Ok(state(column(row, 4)?)?))),
            _ => match claimed_job(row) {
                Ok(job) => claimed.push((place, job)),
                Err(error) => {
                    let token = FenceToken(unsigned(column(row, 3)?)?);
                    unreadable.push(Unreadable { job: JobId(column(row, 2)?), token, error });
                }
            },
        }
    }
    let (now, lease_until) = times.ok_or_else(|| bad("an answer without a time"))?;
    settled.sort_by_key(|(place, _)| *place);
    claimed.sort_by_key(|(place, _)| *place);
    let reply = ExchangeReply {
        number,
        settled: settled.into_iter().map(|(_, state)| state).collect(),
        started: Vec::new(),
        claimed: claimed.into_iter().map(|(_, job)| job).collect(),
        prefetched: Vec::new(),
        stop: Vec::new(),
        now,
        lease_until,
    };
    Ok(Reply { reply, unreadable })
}

/// Reads a reply in JSON. If its jobs cannot be read together, each is read alone.
pub(crate) fn read_reply(answer: &str) -> Result<Reply> {
    if let Ok(reply) = serde_json::from_str(answer) {
        return Ok(Reply { reply, unreadable: Vec::new() });
    }
    let mut value: Value = crate::store::read(answer)?;
    let mut unreadable = Vec::new();
    let claimed = read_jobs(value["claimed"].take(), |job| job, &mut unreadable)?;
    let prefetched = read_jobs(value["prefetched"].take(), |ahead| &ahead["job"], &mut unreadable)?;
    (value["claimed"], value["prefetched"]) = (Value::Array(Vec::new()), Value::Array(Vec::new()));
    let mut reply: ExchangeReply = serde_json::from_value(value).map_err(|error| bad(&error.to_string()))?;
    (reply.claimed, reply.prefetched) = (claimed, prefetched);
    Ok(Reply { reply, unreadable })
}

fn read_jobs<T: DeserializeOwned>(
    list: Value,
    job: impl Fn(&Value) -> &Value,
    unreadable: &mut Vec<Unreadable>,
) -> Result<Vec<T>> {
    let mut jobs = Vec::new();
    let Value::Array(list) = list else { return Ok(jobs) };
    for item in list {
        match T::deserialize(&item) {
            Ok(item) => jobs.push(item),
            Err(error) => {
                let (id, token) = (&job(&item)["id"], &job(&item)["token"]);
                let id = JobId::deserialize(id).map_err(|error| bad(&error.to_string()))?;
                let token = FenceToken::deserialize(token).map_err(|error| bad(&error.to_string()))?;
                let error = Error::new(ErrorKind::Data, error.to_string());
                unreadable.push(Unreadable { job: id, token, error });
            }
        }
    }
    Ok(jobs)
}

fn claimed_job(row: &Row) -> Result<ClaimedJob> {
    let name = |field: &str, at: usize| Name::parse(field, column(row, at)?);
    let retry: Option<&str> = column(row, 13)?;
    let traceparent: Option<&str> = column(row, 16)?;
    Ok(ClaimedJob {
        id: JobId(column(row, 2)?),
        token: FenceToken(unsigned(column(row, 3)?)?),
        attempt: small(column(row, 5)?)?,
        max_attempts: small(column(row, 6)?)?,
        queue: name("queue", 7)?,
        task: name("task", 8)?,
        group: name("group", 9)?,
        key: column::<Option<&str>>(row, 10)?.map(|key| Key::parse("key", key)).transpose()?,
        // The worker that runs the job checks that it is JSON.
        payload: Json::as_stored(column(row, 11)?),
        timeout_ms: column::<Option<i64>>(row, 12)?.map(unsigned).transpose()?,
        retry: retry.map(crate::store::read).transpose()?.unwrap_or_else(RetryPolicy::default),
        traceparent: traceparent.map(|text| Traceparent::parse("traceparent", text)).transpose()?,
        due_at: column::<Option<i64>>(row, 17)?.map(Time::from_millis),
    })
}

fn state(text: &str) -> Result<JobState> {
    crate::store::read(&format!("\"{text}\""))
}

fn unsigned(value: i64) -> Result<u64> {
    u64::try_from(value).map_err(|_| bad("a negative number"))
}

fn small(value: i32) -> Result<u32> {
    u32::try_from(value).map_err(|_| bad("a negative number"))
}

fn bad(what: &str) -> Error {
    Error::new(ErrorKind::Data, format!("answer of the schema: {what}"))
}
