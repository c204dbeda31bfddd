//! The store: each method is one function of the schema.

use crate::call::{Calls, Parameter};
use crate::exchange::{Shared, Unreadable, read_reply};
use crate::fire::{Due, first_ticks};
use crate::{Url, listen::Listener, migrate, said};
use async_trait::async_trait;
use qo_core::{AuditEntry, AuditText, Deed, NewToken, Token, TokenId};
use qo_core::{
    Change, Changed, Claim, Clock, Configuration, Cursor, Error, ErrorKind, Exchange, ExchangeReply,
    Explanation,
};
use qo_core::{
    FenceToken, GroupDetail, GroupPage, GroupRef, JobDetail, JobFilter, JobId, JobPage, JobState, LeaseId,
};
use qo_core::{
    Name, NewJob, NewSession, OpenedSession, Over, QueueStatus, Result, ScheduleStatus, SessionId, SlotLease,
};
use qo_core::{
    Push, Pushed, SlotRequest, Steer, Store, Submitted, Swept, TaskOptions, Time, Work, WorkerStatus,
    WorkflowPage,
};
use qo_core::{WorkflowStatus, caps, unreadable};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_postgres::types::Type;
use uuid::Uuid;

/// How a store works with its server.
#[derive(Clone)]
pub struct Options {
    /// The most connections that it opens. Defaults to 10.
    pub connections: usize,
    /// How long it waits for a connection before a call is `Unavailable`. Defaults to 5 s.
    pub patience: Duration,
    /// Whether it keeps a connection that listens for changes. Without it workers poll every 100 ms. Defaults to
    /// true; `notify=off` in a URL turns it off.
    pub notify: bool,
    /// The clock that `store_time()` reads, in schemas where tests have replaced that function. Defaults to none: the
    /// server's clock.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Default for Options {
    fn default() -> Self {
        Self { connections: 10, patience: Duration::from_secs(5), notify: true, clock: None }
    }
}

/// A namespace in a PostgreSQL schema.
pub struct PostgresStore {
    pub(crate) calls: Calls,
    listener: Option<Listener>,
    /// Unreadable jobs that the server has not been told of yet. Their sessions own them until then.
    pub(crate) untold: Mutex<Vec<(SessionId, Unreadable)>>,
}

/// How often a call is made again whose answer was outdated when it came.
const OUTDATED: usize = 10;

/// The error of a call that was outdated every time.
fn outdated(what: &str) -> Error {
    let message = format!("{what} has been changed {OUTDATED} times while it was being read: read it again");
    Error::new(ErrorKind::Conflict, message)
}

impl PostgresStore {
    /// Opens a namespace. `Unavailable` if the server cannot be reached, `NotFound` if its schema is not there ([`migrate::up`]
    /// makes it), `Conflict` if the schema is too new for this release, or too old.
    pub async fn open(url: &Url, options: Options) -> Result<Self> {
        let schema = url.schema();
        match migrate::status(url).await? {
            None => {
                let message = format!("there is no qo in schema {schema}: `qo migrate up` makes it");
                return Err(Error::new(ErrorKind::NotFound, message));
            }
            Some((_, oldest)) if oldest > migrate::VERSION => {
                let message = format!("schema {schema} asks for a newer release of qo");
                return Err(Error::new(ErrorKind::Conflict, message));
            }
            Some((version, _)) if version < migrate::VERSION => {
                let message = format!("schema {schema} is of an older release: `qo migrate up` raises it");
                return Err(Error::new(ErrorKind::Conflict, message));
            }
            Some(_) => {}
        }
        let calls = Calls::new(url, options.connections, options.patience, options.clock)?;
        let listener = (options.notify && url.notify).then(|| Listener::start(url.clone()));
        Ok(Self { calls, listener, untold: Mutex::default() })
    }

    /// Where the counts of slots differ from what their holders have. Empty if all is well.
    pub async fn drift(&self) -> Result<String> {
        self.answer("api_drift", &[]).await
    }

    /// Stores jobs in the caller's own transaction: they are there when it commits. The answers are those of
    /// [`Store::submit`], as that transaction sees things.
    ///
    /// Workers do not wait for the transaction. With `on_limit` `reject` or `skip` it locks the counted group against
    /// other submits that reject or skip, until it ends; at REPEATABLE READ and SERIALIZABLE, `Unavailable` (40001)
    /// means that another transaction was faster: begin again. In a workflow it holds the workflow's next number
    /// likewise.
    pub async fn submit_in(
        &self,
        transaction: &tokio_postgres::Transaction<'_>,
        jobs: Vec<NewJob>,
    ) -> Result<Vec<Result<Submitted>>> {
        check_call(&jobs)?;
        let jobs = written(&jobs)?;
        let answer =
            self.calls.call_in(transaction, "api_submit", &[(&JsonParameter(&jobs), Type::JSONB)]).await?;
        read(answer.as_deref().unwrap_or("null"))
    }

    async fn ask<T: DeserializeOwned>(&self, function: &str, parameters: &[Parameter<'_>]) -> Result<T> {
        read(&self.answer(function, parameters).await?)
    }

    /// Asks for a view. A row that cannot be read is shown with stand-ins.
    async fn look<T: DeserializeOwned>(&self, function: &str, parameters: &[Parameter<'_>]) -> Result<T> {
        let answer = self.answer(function, parameters).await?;
        unreadable::read(&answer).map_or_else(|| read(&answer), Ok)
    }

    /// The same for a list. A row that cannot be shown even so is left out.
    async fn list<T: DeserializeOwned>(&self, function: &str) -> Result<Vec<T>> {
        let answer = self.answer(function, &[]).await?;
        let Some((list, left_out)) = unreadable::read_list(&answer) else { return read(&answer) };
        if left_out > 0 {
            tracing::warn!("{function}: {left_out} rows cannot be read and are left out");
        }
        Ok(list)
    }

    async fn answer(&self, function: &str, parameters: &[Parameter<'_>]) -> Result<String> {
        Ok(self.calls.call(function, parameters).await?.unwrap_or_else(|| "null".into()))
    }

    async fn tell(&self, function: &str, parameters: &[Parameter<'_>]) -> Result<()> {
        self.calls.call(function, parameters).await.map(|_| ())
    }

    /// Calls until no schedule is due. The last parameter says what the due ones fire.
    async fn ask_and_fire(&self, function: &str, parameters: &[Parameter<'_>]) -> Result<String> {
        let mut fires: Option<String> = None;
        loop {
            let said = fires.as_deref().map(JsonParameter);
            let mut all = parameters.to_vec();
            all.push((&said, Type::JSONB));
            let answer = self.answer(function, &all).await?;
            match Due::read(&answer) {
                Some(due) => fires = Some(due?.fires()?),
                None => return Ok(answer),
            }
        }
    }

    /// All configurations as they are stored, the newest last.
    async fn said(&self) -> Result<Vec<serde_json::Value>> {
        self.ask("api_configurations", &[]).await
    }

    /// Configurations and schedules that this release cannot read or fire.
    pub(crate) async fn unreadable_settings(&self) -> Result<Vec<String>> {
        let (_, mut unreadable) = said::configurations(&self.said().await?);
        let schedules: Vec<serde_json::Value> = self.ask("api_schedules", &[]).await?;
        unreadable.extend(said::schedules_that_stop(&schedules, self.now().await?));
        Ok(unreadable)
    }

    async fn schedule(&self, schedule: &Name) -> Result<ScheduleStatus> {
        self.ask("api_schedule", &[(&&**schedule, Type::TEXT)]).await
    }
}

/// Reads an answer.
pub(crate) fn read<T: DeserializeOwned>(answer: &str) -> Result<T> {
    serde_json::from_str(answer)
        .map_err(|error| Error::new(ErrorKind::Data, format!("answer of the schema: {error}")))
}

/// Writes a request.
pub(crate) fn written<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::new(ErrorKind::Internal, format!("request: {error}")))
}

/// A text that is sent as `jsonb`.
#[derive(Clone, Copy)]
struct JsonParameter<'a>(&'a str);

impl fmt::Debug for JsonParameter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of JSON", self.0.len())
    }
}

impl tokio_postgres::types::ToSql for JsonParameter<'_> {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut tokio_postgres::types::private::BytesMut,
    ) -> std::result::Result<tokio_postgres::types::IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&[1]);
        out.extend_from_slice(self.0.as_bytes());
        Ok(tokio_postgres::types::IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSONB
    }

    tokio_postgres::types::to_sql_checked!();
}

fn check_page(limit: usize) -> Result<i32> {
    match i32::try_from(limit) {
        Ok(page @ 1..) if limit <= caps::PAGE => Ok(page),
        _ => Err(Error::invalid("limit", limit, format_args!("must be 1 to {}", caps::PAGE))),
    }
}

fn at_most(field: &str, value: usize, most: usize) -> Result<()> {
    if value <= most {
        Ok(())
    } else {
        Err(Error::invalid(field, value, format_args!("must be 0 to {most}")))
    }
}

pub(crate) fn number(token: u64) -> i64 {
    // A token that was never drawn owns nothing.
    i64::try_from(token).unwrap_or(i64::MAX)
}

fn check_call(jobs: &[NewJob]) -> Result<()> {
    at_most("jobs", jobs.len(), caps::SUBMIT_JOBS)?;
    at_most("payload", jobs.iter().map(|job| job.payload.as_str().len()).sum(), caps::SUBMIT_BYTES)?;
    for (index, job) in jobs.iter().enumerate() {
        job.check().map_err(|error| error.at_item("jobs", index))?;
    }
    Ok(())
}

fn ids(jobs: &[JobId]) -> Vec<Uuid> {
    jobs.iter().map(|job| job.0).collect()
}

/// A settle that breaks a rule of its own is refused alone: the server is told so and records it with the others.
fn exchange_json(exchange: &Exchange) -> Result<String> {
    if exchange.settles.iter().all(|settle| settle.outcome.check().is_ok()) {
        return written(exchange);
    }
    let mut value = serde_json::to_value(exchange)
        .map_err(|error| Error::new(ErrorKind::Internal, format!("exchange: {error}")))?;
    for (index, settle) in exchange.settles.iter().enumerate() {
        if let Err(error) = settle.outcome.check() {
            let settle = serde_json::json!({ "job": settle.job, "token": settle.token, "invalid": error });
            value["settles"][index] = settle;
        }
    }
    written(&value)
}

#[async_trait]
impl Store for PostgresStore {
    async fn now(&self) -> Result<Time> {
        self.ask("api_now", &[]).await
    }

    async fn submit(&self, jobs: Vec<NewJob>) -> Result<Vec<Result<Submitted>>> {
        check_call(&jobs)?;
        self.ask("api_submit", &[(&JsonParameter(&written(&jobs)?), Type::JSONB)]).await
    }

    async fn cancel(&self, jobs: Vec<JobId>) -> Result<Vec<Result<JobState>>> {
        at_most("jobs", jobs.len(), caps::CANCELS)?;
        self.ask("api_cancel", &[(&ids(&jobs), Type::UUID_ARRAY)]).await
    }

    async fn retry(&self, jobs: Vec<JobId>) -> Result<Vec<Result<JobState>>> {
        at_most("jobs", jobs.len(), caps::CANCELS)?;
        self.ask("api_retry", &[(&ids(&jobs), Type::UUID_ARRAY)]).await
    }

    async fn change_matching(
        &self,
        change: Change,
        filter: JobFilter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Changed> {
        let limit = check_page(limit)?;
        let change = match change {
            Change::Cancel => "cancel",
            Change::Retry => "retry",
        };
        let (filter, after) = (written(&filter)?, after.map(|after| number(after.0)));
        let filter = JsonParameter(&filter);
        let parameters: [Parameter<'_>; 4] =
            [(&change, Type::TEXT), (&filter, Type::JSONB), (&after, Type::INT8), (&limit, Type::INT4)];
        self.ask("api_change_matching", &parameters).await
    }

    async fn job(&self, job: JobId) -> Result<JobDetail> {
        self.look("api_job", &[(&job.0, Type::UUID)]).await
    }

    async fn jobs(&self, filter: JobFilter, after: Option<Cursor>, limit: usize) -> Result<JobPage> {
        let limit = check_page(limit)?;
        let (filter, after) = (written(&filter)?, after.map(|after| number(after.0)));
        let filter = JsonParameter(&filter);
        self.look("api_jobs", &[(&filter, Type::JSONB), (&after, Type::INT8), (&limit, Type::INT4)]).await
    }

    async fn explain(&self, job: JobId) -> Result<Explanation> {
        self.look("api_explain", &[(&job.0, Type::UUID)]).await
    }

    async fn workflows(&self, after: Option<Name>, limit: usize) -> Result<WorkflowPage> {
        let limit = check_page(limit)?;
        self.look("api_workflows", &[(&after.as_deref(), Type::TEXT), (&limit, Type::INT4)]).await
    }

    async fn workflow(&self, workflow: Name) -> Result<WorkflowStatus> {
        self.look("api_workflow", &[(&&*workflow, Type::TEXT)]).await
    }

    async fn steer_workflow(&self, workflow: Name, steer: Steer) -> Result<()> {
        let (steer, step) = match steer {
            Steer::Retry(step) => ("retry", Some(step)),
            Steer::Skip(step) => ("skip", Some(step)),
            Steer::Cancel => ("cancel", None),
        };
        // A number beyond all that a workflow can have names no step.
        let step = step.map(|step| i32::try_from(step).unwrap_or(i32::MAX));
        let parameters: [Parameter<'_>; 3] =
            [(&&*workflow, Type::TEXT), (&steer, Type::TEXT), (&step, Type::INT4)];
        self.tell("api_steer_workflow", &parameters).await
    }

    async fn register(&self, tasks: Vec<TaskOptions>) -> Result<Pushed> {
        at_most("tasks", tasks.len(), caps::SERVED)?;
        for (index, task) in tasks.iter().enumerate() {
            task.check().map_err(|error| error.at_item("tasks", index))?;
        }
        self.ask("api_register", &[(&JsonParameter(&written(&tasks)?), Type::JSONB)]).await
    }

    async fn configure(&self, configuration: Configuration) -> Result<Pushed> {
        configuration.check()?;
        let new = written(&configuration)?;
        for _ in 0..OUTDATED {
            let next = first_ticks(&configuration, &self.said().await?, self.now().await?)?;
            let next = written(&next)?;
            let parameters: [Parameter<'_>; 2] =
                [(&JsonParameter(&new), Type::JSONB), (&JsonParameter(&next), Type::JSONB)];
            // Another app may have pushed between the two calls.
            if let Some(pushed) = self.ask("api_configure", &parameters).await? {
                return Ok(pushed);
            }
        }
        Err(outdated("a schedule that this app names no more and another app names"))
    }

    async fn configurations(&self) -> Result<Vec<Configuration>> {
        let (read, unreadable) = said::configurations(&self.said().await?);
        for what in unreadable {
            tracing::warn!("configurations: cannot be read and is left out: {what}");
        }
        Ok(read)
    }

    async fn pushes(&self) -> Result<Vec<Push>> {
        self.list("api_pushes").await
    }

    async fn set_limit(&self, group: GroupRef, limit: u32) -> Result<()> {
        let slots = i32::try_from(limit).ok().filter(|_| limit <= caps::LIMIT);
        let too_many = || Error::invalid("limit", limit, format_args!("must be 0 to {}", caps::LIMIT));
        let slots = slots.ok_or_else(too_many)?;
        self.tell("api_set_limit", &[(&group.to_string(), Type::TEXT), (&slots, Type::INT4)]).await
    }

    async fn unset_limit(&self, group: GroupRef) -> Result<()> {
        self.tell("api_unset_limit", &[(&group.to_string(), Type::TEXT)]).await
    }

    async fn pause_queue(&self, queue: Name, paused: bool) -> Result<()> {
        self.tell("api_pause_queue", &[(&&*queue, Type::TEXT), (&paused, Type::BOOL)]).await
    }

    async fn groups(&self, after: Option<GroupRef>, limit: usize) -> Result<GroupPage> {
        let limit = check_page(limit)?;
        let after = after.map(|after| after.to_string());
        self.look("api_groups", &[(&after, Type::TEXT), (&limit, Type::INT4)]).await
    }

    async fn group(&self, group: GroupRef) -> Result<GroupDetail> {
        self.look("api_group", &[(&group.to_string(), Type::TEXT)]).await
    }

    async fn release_slot(&self, group: GroupRef, slot: FenceToken) -> Result<()> {
        let parameters: [Parameter<'_>; 2] =
            [(&group.to_string(), Type::TEXT), (&number(slot.0), Type::INT8)];
        self.tell("api_release_slot", &parameters).await
    }

    async fn acquire_slots(&self, request: SlotRequest) -> Result<Option<SlotLease>> {
        request.check()?;
        self.ask("api_acquire_slots", &[(&JsonParameter(&written(&request)?), Type::JSONB)]).await
    }

    async fn extend_slots(&self, lease: LeaseId, token: FenceToken, lease_ms: u64) -> Result<SlotLease> {
        if !(caps::LEASE_MIN_MS..=caps::LEASE_MAX_MS).contains(&lease_ms) {
            let rule = format_args!("must be {} to {}", caps::LEASE_MIN_MS, caps::LEASE_MAX_MS);
            return Err(Error::invalid("lease_ms", lease_ms, rule));
        }
        let parameters: [Parameter<'_>; 3] =
            [(&lease.0, Type::UUID), (&number(token.0), Type::INT8), (&number(lease_ms), Type::INT8)];
        self.ask("api_extend_slots", &parameters).await
    }

    async fn return_slots(&self, lease: LeaseId, token: FenceToken) -> Result<()> {
        self.tell("api_return_slots", &[(&lease.0, Type::UUID), (&number(token.0), Type::INT8)]).await
    }

    async fn schedules(&self) -> Result<Vec<ScheduleStatus>> {
        self.list("api_schedules").await
    }

    async fn enable_schedule(&self, schedule: Name, enabled: bool) -> Result<()> {
        for _ in 0..OUTDATED {
            let spec = self.schedule(&schedule).await?.spec;
            let next = spec.first_after(self.now().await?)?.map(Time::as_millis);
            let parameters: [Parameter<'_>; 5] = [
                (&&*schedule, Type::TEXT),
                (&enabled, Type::BOOL),
                (&next, Type::INT8),
                (&spec.cron, Type::TEXT),
                (&spec.timezone, Type::TEXT),
            ];
            // A push may have changed it between the two calls.
            if self.ask("api_enable_schedule", &parameters).await? {
                return Ok(());
            }
        }
        Err(outdated(&format!("schedule {schedule}")))
    }

    async fn trigger_schedule(&self, schedule: Name, job: JobId) -> Result<Submitted> {
        let job = self.schedule(&schedule).await?.spec.triggered(&schedule, job)?;
        let mut outcomes = self.submit(vec![job]).await?;
        outcomes.pop().unwrap_or_else(|| Err(Error::new(ErrorKind::Internal, "no outcome")))
    }

    async fn create_token(&self, token: NewToken, by: AuditText) -> Result<()> {
        token.check()?;
        let token = written(&token)?;
        let parameters: [Parameter<'_>; 2] =
            [(&JsonParameter(&token), Type::JSONB), (&by.as_str(), Type::TEXT)];
        self.tell("api_create_token", &parameters).await
    }

    async fn revoke_token(&self, token: TokenId, by: AuditText) -> Result<()> {
        let parameters: [Parameter<'_>; 2] = [(&token.as_str(), Type::TEXT), (&by.as_str(), Type::TEXT)];
        self.tell("api_revoke_token", &parameters).await
    }

    async fn tokens(&self) -> Result<Vec<Token>> {
        self.ask("api_tokens", &[]).await
    }

    async fn record(&self, deed: Deed) -> Result<()> {
        self.tell("api_record", &[(&JsonParameter(&written(&deed)?), Type::JSONB)]).await
    }

    async fn audit(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditEntry>> {
        let (before, limit) = (before.map(number), check_page(limit)?);
        self.ask("api_audit", &[(&before, Type::INT8), (&limit, Type::INT4)]).await
    }

    async fn queues(&self) -> Result<Vec<QueueStatus>> {
        self.list("api_queues").await
    }

    async fn workers(&self) -> Result<Vec<WorkerStatus>> {
        self.list("api_workers").await
    }

    async fn over(&self) -> Result<Over> {
        self.look("api_over", &[]).await
    }

    async fn open_session(&self, session: NewSession) -> Result<OpenedSession> {
        session.check()?;
        self.ask("api_open_session", &[(&JsonParameter(&written(&session)?), Type::JSONB)]).await
    }

    async fn exchange(&self, exchange: Exchange) -> Result<ExchangeReply> {
        exchange.check()?;
        let session = exchange.session;
        if let Shared::Reply(reply) = self.exchange_shared(&exchange, false).await? {
            return Ok(self.without_unreadable(session, reply).await);
        }
        let exchange = exchange_json(&exchange)?;
        let answer = self.ask_and_fire("api_exchange", &[(&JsonParameter(&exchange), Type::JSONB)]).await?;
        Ok(self.without_unreadable(session, read_reply(&answer)?).await)
    }

    async fn fetch(&self, exchange: Exchange) -> Result<Option<ExchangeReply>> {
        exchange.check()?;
        if !exchange.only_asks() {
            return self.exchange(exchange).await.map(Some);
        }
        match self.exchange_shared(&exchange, true).await? {
            Shared::Reply(reply) => {
                return Ok(Some(self.without_unreadable(exchange.session, reply).await));
            }
            Shared::Nothing => return Ok(None),
            Shared::MustBeAlone => {}
        }
        let (session, exchange) = (exchange.session, exchange_json(&exchange)?);
        let answer = self.ask_and_fire("api_fetch", &[(&JsonParameter(&exchange), Type::JSONB)]).await?;
        if answer == "null" {
            return Ok(None);
        }
        Ok(Some(self.without_unreadable(session, read_reply(&answer)?).await))
    }

    async fn close_session(&self, session: SessionId) -> Result<()> {
        self.tell("api_close_session", &[(&session.0, Type::UUID)]).await
    }

    async fn sweep(&self) -> Result<Swept> {
        read(&self.ask_and_fire("api_sweep", &[]).await?)
    }

    async fn work(&self, session: SessionId, claim: Claim) -> Result<Work> {
        // Read the change counter first, so that no change during the look is missed.
        let seen = self.listener.as_ref().map_or(0, Listener::changes);
        let max = i32::try_from(claim.max).unwrap_or(i32::MAX);
        if claim.prefetch.is_none() {
            let parameters: [Parameter<'_>; 2] = [(&session.0, Type::UUID), (&max, Type::INT4)];
            if let Some(work) = self.calls.call("api_work_shared", &parameters).await? {
                return read(&work).map(|work| Work { seen, ..work });
            }
        }
        let claim = written(&claim)?;
        let parameters: [Parameter<'_>; 2] =
            [(&session.0, Type::UUID), (&JsonParameter(&claim), Type::JSONB)];
        read(&self.ask_and_fire("api_work", &parameters).await?).map(|work| Work { seen, ..work })
    }

    async fn changed(&self, seen: Option<u64>) -> Result<u64> {
        match (&self.listener, seen) {
            (Some(listener), None) => Ok(listener.changes()),
            (Some(listener), Some(seen)) => Ok(listener.after(seen).await),
            (None, None) => Ok(0),
            (None, Some(_)) => std::future::pending().await,
        }
    }

    fn tells_changes(&self) -> bool {
        self.listener.as_ref().is_some_and(Listener::listens)
    }

    async fn identity(&self) -> Result<Option<String>> {
        self.calls.identity().await
    }

    fn told_of_jobs(&self, seen: u64) -> bool {
        self.listener.as_ref().is_some_and(|listener| listener.told_of_jobs(seen))
    }

    async fn keep_log(&self, token: FenceToken, log: String) -> Result<()> {
        let cut = log.ceil_char_boundary(log.len().saturating_sub(caps::LOG_BYTES));
        self.tell("api_keep_log", &[(&number(token.0), Type::INT8), (&&log.as_bytes()[cut..], Type::BYTEA)])
            .await
    }

    async fn log(&self, token: FenceToken) -> Result<Option<String>> {
        self.calls.call("api_log", &[(&number(token.0), Type::INT8)]).await
    }
}
