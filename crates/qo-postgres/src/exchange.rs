//! The usual exchange, beside others: its parameters and its answer are rows and arrays, not JSON.

use crate::PostgresStore;
use crate::call::{MUST_BE_ALONE, Parameter, column};
use crate::store::number;
use qo_core::{
    ClaimedJob, Error, ErrorKind, Exchange, ExchangeReply, FenceToken, JobId, JobState, Json, Key, Name,
};
use qo_core::{Outcome, Result, RetryPolicy, Time};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

/// What became of an exchange that tried to do without being alone.
pub(crate) enum Shared {
    /// It was answered.
    Reply(ExchangeReply),
    /// It only asked, and there is nothing: nothing has happened.
    Nothing,
    /// It is not a usual one: nothing has happened.
    MustBeAlone,
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

/// Whether an exchange asks for nothing that only one who is alone can do.
fn is_usual(exchange: &Exchange) -> bool {
    exchange.starts.is_empty()
        && exchange.progress.is_empty()
        && !exchange.draining
        && exchange.idle_ms.is_none()
        && exchange.claim.prefetch.is_none()
        && exchange.settles.iter().all(|settle| settle.outcome.check().is_ok())
}

impl PostgresStore {
    pub(crate) async fn exchange_shared(&self, exchange: &Exchange, only_asks: bool) -> Result<Shared> {
        if !is_usual(exchange) {
            return Ok(Shared::MustBeAlone);
        }
        let settles = Settles::of(exchange);
        let claim = &exchange.claim;
        // All three are checked to be small.
        let int = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
        let (max, per_queue) = (int(claim.max), claim.max_per_queue.map(int));
        let parameters: [Parameter<'_>; 12] = [
            (&exchange.session.0, Type::UUID),
            (&number(exchange.number), Type::INT8),
            (&settles.jobs, Type::UUID_ARRAY),
            (&settles.tokens, Type::INT8_ARRAY),
            (&settles.outcomes, Type::TEXT_ARRAY),
            (&settles.errors, Type::TEXT_ARRAY),
            (&settles.outputs, Type::TEXT_ARRAY),
            (&settles.delays, Type::INT8_ARRAY),
            (&max, Type::INT4),
            (&per_queue, Type::INT4),
            (&int(exchange.free_permits), Type::INT4),
            (&only_asks, Type::BOOL),
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

/// Puts an answer together. Its rows come in no order.
fn reply(number: u64, rows: &[Row]) -> Result<ExchangeReply> {
    let (mut settled, mut claimed, mut times) = (Vec::new(), Vec::new(), None);
    for row in rows {
        let place: i64 = column(row, 1)?;
        match column::<i32>(row, 0)? {
            0 => times = Some((Time::from_millis(column(row, 14)?), Time::from_millis(column(row, 15)?))),
            1 => settled.push((place, Ok(state(column(row, 4)?)?))),
            _ => claimed.push((place, claimed_job(row)?)),
        }
    }
    let (now, lease_until) = times.ok_or_else(|| bad("an answer without a time"))?;
    settled.sort_by_key(|(place, _)| *place);
    claimed.sort_by_key(|(place, _)| *place);
    Ok(ExchangeReply {
        number,
        settled: settled.into_iter().map(|(_, state)| state).collect(),
        started: Vec::new(),
        claimed: claimed.into_iter().map(|(_, job)| job).collect(),
        prefetched: Vec::new(),
        stop: Vec::new(),
        now,
        lease_until,
    })
}

fn claimed_job(row: &Row) -> Result<ClaimedJob> {
    let name = |at: usize| Name::parse("name", column(row, at)?);
    let retry: Option<&str> = column(row, 13)?;
    Ok(ClaimedJob {
        id: JobId(column(row, 2)?),
        token: FenceToken(unsigned(column(row, 3)?)?),
        attempt: small(column(row, 5)?)?,
        max_attempts: small(column(row, 6)?)?,
        queue: name(7)?,
        task: name(8)?,
        group: name(9)?,
        key: column::<Option<&str>>(row, 10)?.map(|key| Key::parse("key", key)).transpose()?,
        payload: Json::parse("payload", column(row, 11)?)?,
        timeout_ms: column::<Option<i64>>(row, 12)?.map(unsigned).transpose()?,
        retry: retry.map(crate::store::read).transpose()?.unwrap_or_else(RetryPolicy::default),
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
