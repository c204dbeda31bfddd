//! Schedules: jobs that are submitted by the clock, once across the fleet.
//!
//! A crate does the arithmetic of cron expressions and time zones; the rule book decides when a schedule fires and
//! what becomes of ticks that nobody was there for. The time zones are compiled in: every machine agrees on them.
//!
//! | on a day when | a schedule for a fixed time, `30 2 * * *` | one for every so often, `*/15 * * * *` |
//! |---|---|---|
//! | 02:30 does not exist | fires once, when the clock has jumped | goes on by the clock that is shown |
//! | 02:30 comes twice | fires once, the first time | fires both times |

use crate::{Error, ErrorKind, JobId, Json, Key, Name, NewJob, OnLimit, Result, Time, caps, job::within};
use croner::parser::{CronParser, Seconds};
use jiff::{Timestamp, tz::TimeZone};
use serde::{Deserialize, Serialize};

/// What becomes of ticks that came while nobody was there to see them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// The latest one runs.
    #[default]
    Latest,
    /// Each of them runs, one after another.
    All,
    /// None runs that is more than a minute late ([`TICK_GRACE_MS`](caps::TICK_GRACE_MS)).
    Skip,
}

/// A schedule, as configured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Five fields (minute, hour, day of month, month, day of week), or six with seconds first.
    pub cron: String,
    /// A name of the time-zone database, such as `Europe/Berlin`. Defaults to `UTC`.
    #[serde(default = "utc")]
    pub timezone: String,
    /// The handler that shall run.
    pub task: Name,
    /// What the handler gets. Defaults to `null`.
    #[serde(default = "Json::null")]
    pub payload: Json,
    /// The line that its jobs stand in. Defaults to `default`.
    #[serde(default = "crate::job::default_queue")]
    pub queue: Name,
    /// Priority of its jobs; lower runs first. Defaults to 0.
    #[serde(default)]
    pub priority: i32,
    /// Tries until a job of it fails for good. Defaults to 3.
    #[serde(default = "crate::job::default_max_attempts")]
    pub max_attempts: u32,
    /// How long one attempt may run. Defaults to the task's, else no limit.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// What becomes of missed ticks. Defaults to `latest`.
    #[serde(default)]
    pub missed: Missed,
    /// Whether a tick runs although the job of an earlier one has not ended. Defaults to false.
    #[serde(default)]
    pub overlap: bool,
}

fn utc() -> String {
    "UTC".into()
}

impl Schedule {
    /// A schedule with every option at its default.
    pub fn new(cron: impl Into<String>, task: Name) -> Self {
        Self {
            cron: cron.into(),
            timezone: utc(),
            task,
            payload: Json::null(),
            queue: crate::job::default_queue(),
            priority: 0,
            max_attempts: crate::job::default_max_attempts(),
            timeout_ms: None,
            missed: Missed::Latest,
            overlap: false,
        }
    }

    /// Checks every rule that needs no state.
    pub fn check(&self) -> Result<()> {
        self.parsed()?;
        self.payload.check_size("payload")?;
        within("max_attempts", self.max_attempts.into(), 1, caps::ATTEMPTS.into())?;
        self.timeout_ms.map_or(Ok(()), |ms| within("timeout_ms", ms, 1, caps::DURATION_MS))
    }

    /// The first tick after a moment; none if there is no other before the year 9999 ends.
    pub fn first_after(&self, after: Time) -> Result<Option<Time>> {
        let (cron, zone) = self.parsed()?;
        next_tick(&cron, &zone, after)
    }

    /// The last tick that is not later than `now`, if there is one from `from` on.
    pub fn last_until(&self, from: Time, now: Time) -> Result<Option<Time>> {
        let (cron, zone) = self.parsed()?;
        // Looks back a minute, then an hour, and so on: a schedule for every second has a million ticks in a
        // fortnight, and only the last one counts.
        let mut back_ms = 60_000;
        loop {
            let start = Time::from_millis(now.as_millis().saturating_sub_unsigned(back_ms)).max(from);
            let mut last = None;
            let mut next = next_tick(&cron, &zone, Time::from_millis(start.as_millis() - 1))?;
            while let Some(tick) = next.filter(|tick| *tick <= now) {
                last = Some(tick);
                next = next_tick(&cron, &zone, tick)?;
            }
            if last.is_some() || start <= from {
                return Ok(last);
            }
            back_ms *= 60;
        }
    }

    /// The job of one tick: once across the fleet by its idempotency key, and never two at once (unless `overlap`)
    /// by its key.
    pub fn job(&self, schedule: &Name, tick: Time) -> Result<NewJob> {
        let idempotency_key = Some(Key::parse("idempotency_key", &tick_key(schedule, tick)?)?);
        // A missed tick that shall run waits for the one before it; one that comes on time and finds the last
        // one still running is not wanted.
        let on_limit = if self.overlap || self.missed == Missed::All { OnLimit::Wait } else { OnLimit::Skip };
        Ok(NewJob { idempotency_key, on_limit, ..self.triggered(schedule, tick_id(schedule, tick))? })
    }

    /// The job that an operator triggers; `LimitReached` if the last one has not ended.
    pub fn triggered(&self, schedule: &Name, id: JobId) -> Result<NewJob> {
        Ok(NewJob {
            payload: self.payload.clone(),
            queue: self.queue.clone(),
            priority: self.priority,
            max_attempts: self.max_attempts,
            timeout_ms: self.timeout_ms,
            key: Some(Key::parse("key", schedule)?),
            limit: (!self.overlap).then_some(1),
            on_limit: if self.overlap { OnLimit::Wait } else { OnLimit::Reject },
            ..NewJob::new(id, self.task.clone())
        })
    }

    fn parsed(&self) -> Result<(croner::Cron, TimeZone)> {
        let cron = CronParser::builder().seconds(Seconds::Optional).build().parse(&self.cron);
        let cron = cron.map_err(|error| {
            let rule = format_args!("must be a cron expression of five fields, or six with seconds: {error}");
            Error::invalid("cron", &self.cron, rule)
        })?;
        let zone = TimeZone::get(&self.timezone).map_err(|_| {
            let rule = "must be a name of the time-zone database, such as Europe/Berlin";
            Error::invalid("timezone", &self.timezone, rule)
        })?;
        Ok((cron, zone))
    }
}

fn next_tick(cron: &croner::Cron, zone: &TimeZone, after: Time) -> Result<Option<Time>> {
    let Ok(start) = Timestamp::from_millisecond(after.as_millis()) else { return Ok(None) };
    match cron.find_next_occurrence(&start.to_zoned(zone.clone()), false) {
        Ok(next) => {
            let tick = Time::from_millis(next.timestamp().as_millisecond());
            Ok(Some(tick).filter(|tick| *tick > after && tick.as_millis() <= caps::TIME_MS))
        }
        Err(croner::errors::CronError::TimeSearchLimitExceeded) => Ok(None),
        Err(error) => Err(Error::new(ErrorKind::Internal, format!("cron: {error}"))),
    }
}

/// `{schedule}:{tick}`, the tick in UTC.
fn tick_key(schedule: &Name, tick: Time) -> Result<String> {
    let moment = Timestamp::from_millisecond(tick.as_millis());
    let moment = moment.map_err(|error| Error::new(ErrorKind::Internal, format!("tick {tick}: {error}")))?;
    Ok(format!("{schedule}:{moment}"))
}

/// The id of a tick's job: a UUIDv7 whose time is the tick and whose other bits are the schedule's name, because the
/// rule book has no dice and every reader must come to the same.
fn tick_id(schedule: &Name, tick: Time) -> JobId {
    // FNV-1a, 128 bits: small, and the same on every machine and in every release.
    let fnv = |hash: u128, byte: u8| (hash ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
    let hash = schedule.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, fnv);
    let millis = u64::try_from(tick.as_millis()).unwrap_or(0);
    let mut bytes = [0; 10];
    bytes.copy_from_slice(&hash.to_be_bytes()[6..]);
    JobId(uuid::Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid())
}

/// What became of a tick.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TickOutcome {
    /// Its job was accepted.
    Accepted(JobId),
    /// Its job was there already.
    Existing(JobId),
    /// The job of an earlier tick had not ended.
    Skipped,
    /// Its job was refused.
    Refused(String),
}
