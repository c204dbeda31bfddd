//! One call, one short transaction. BEGIN, the function and COMMIT are sent together and answered together, so no
//! lock is held across a round trip, and no server setting or pooler changes what the call means.

use crate::Url;
use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, TimeoutType,
};
use qo_core::{Cause, Clock, Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;
use tokio_postgres::error::{DbError, Severity, SqlState};
use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{Client, NoTls, Row, Transaction};

/// Connections to one namespace.
pub(crate) struct Calls {
    pool: Pool,
    patience: Duration,
    schema: String,
    clock: Option<Arc<dyn Clock>>,
    identity: OnceCell<Option<String>>,
}

/// A parameter and its type. Nothing is prepared, so a pooler may send every call to another connection.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// How often a call is made again that lost a race and so changed nothing.
const RACES: u32 = 10;

/// The message of an exchange beside others that must run alone.
pub(crate) const MUST_BE_ALONE: &str = "it must be alone";

/// How long a call may take. The longest are sweeps of a large backlog. A caller with less patience drops the call.
const LONGEST: Duration = Duration::from_secs(60);

/// If a call is dropped after it has waited this long, its server may be gone.
const SUSPICIOUS: Duration = Duration::from_secs(1);

/// How every call begins. The call means the same whatever the server's defaults are, and it is durable when it is
/// answered. COMMIT is sent together with BEGIN; if it does not arrive, the client has vanished, and the timeout
/// frees its locks long before the server's TCP notices.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL synchronous_commit = on; \
    SET LOCAL idle_in_transaction_session_timeout = '5s'";

impl Calls {
    pub fn new(
        url: &Url,
        connections: usize,
        patience: Duration,
        clock: Option<Arc<dyn Clock>>,
    ) -> Result<Self> {
        let (config, longest) = url.within(patience);
        let manager =
            Manager::from_config(config, NoTls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
        let pool = Pool::builder(manager).max_size(connections).wait_timeout(Some(patience));
        let pool = pool.create_timeout(Some(longest)).runtime(Runtime::Tokio1).build();
        let pool = pool.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
        Ok(Self { pool, patience, schema: url.schema.clone(), clock, identity: OnceCell::new() })
    }

    /// Calls a function of the schema; its answer, if it has one, is JSON.
    pub async fn call(&self, function: &str, parameters: &[Parameter<'_>]) -> Result<Option<String>> {
        let query = format!("SELECT {}", self.invocation(function, parameters.len()));
        text_of(&self.run(&query, parameters).await?)
    }

    /// Calls a function in the caller's own transaction.
    pub async fn call_in(
        &self,
        transaction: &Transaction<'_>,
        function: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Option<String>> {
        let query = format!("SELECT {}", self.invocation(function, parameters.len()));
        let rows =
            transaction.query_typed(&query, parameters).await.map_err(|error| match failure(error) {
                Failure::Race(error) | Failure::Told(error) | Failure::ReadOnly(error) => error,
            })?;
        text_of(&rows)
    }

    /// Calls a function of the schema whose answer is rows.
    pub async fn rows(&self, function: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>> {
        self.run(&format!("SELECT * FROM {}", self.invocation(function, parameters.len())), parameters).await
    }

    /// Which schema this is: of which cluster, also after a failover to a copy of it. None if the server does not tell
    /// this role.
    pub async fn identity(&self) -> Result<Option<String>> {
        let found = self.identity.get_or_try_init(|| async {
            let query = format!(
                "SELECT concat_ws('-', c.system_identifier, d.oid, '{}'::regnamespace::oid)
                 FROM pg_control_system() c, pg_database d WHERE d.datname = current_database()",
                self.schema
            );
            match self.run(&query, &[]).await {
                Ok(rows) => rows.first().map(|row| column::<String>(row, 0)).transpose(),
                Err(error) if error.kind() == ErrorKind::Invalid => Ok(None),
                Err(error) => Err(error),
            }
        });
        found.await.cloned()
    }

    fn invocation(&self, function: &str, parameters: usize) -> String {
        let places: Vec<String> = (1..=parameters).map(|place| format!("${place}")).collect();
        format!("{}.{function}({})", self.schema, places.join(", "))
    }

    async fn run(&self, query: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>> {
        let mut races = 0;
        loop {
            let connection = Answering::new(self.connection().await?);
            let answered =
                tokio::time::timeout(LONGEST, self.transaction(&connection, query, parameters)).await;
            let answer = answered.map_err(|_| {
                Error::new(ErrorKind::Unknown, format!("PostgreSQL: no answer within {LONGEST:?}"))
            })?;
            if let Err(Failure::ReadOnly(error)) = answer {
                connection.misled();
                return Err(error);
            }
            connection.answered();
            match answer {
                Err(Failure::Race(error)) if races >= RACES => return Err(error),
                Err(Failure::Race(_)) => races += 1,
                Err(Failure::Told(error) | Failure::ReadOnly(error)) => return Err(error),
                Ok(answer) => return Ok(answer),
            }
        }
    }

    async fn connection(&self) -> Result<Object> {
        self.pool.get().await.map_err(|error| match error {
            // Passwords and roles change while workers run; workers go on once that is done.
            PoolError::Backend(error) => {
                Error::new(ErrorKind::Unavailable, described(&error)).with_source(error)
            }
            PoolError::Timeout(TimeoutType::Wait) => {
                let connections = match self.pool.status().max_size {
                    1 => "its 1 connection is busy".into(),
                    several => format!("its {several} connections are busy"),
                };
                let message = format!("PostgreSQL: {connections}: none was free within {:?}", self.patience);
                Error::new(ErrorKind::Unavailable, message)
            }
            PoolError::Timeout(TimeoutType::Create) => {
                Error::new(ErrorKind::Unavailable, "PostgreSQL: a new connection was not answered in time")
            }
            error => Error::new(ErrorKind::Unavailable, format!("no connection to PostgreSQL: {error}")),
        })
    }

    async fn transaction(
        &self,
        client: &Client,
        query: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, Failure> {
        let mut begin = String::from(BEGIN);
        if let Some(clock) = &self.clock {
            begin += &format!("; SET LOCAL qo.test_time = '{}'", clock.now().as_millis());
        }
        // All three are sent, in this order, before the first is answered.
        let (begun, answer, committed) = tokio::join!(
            biased;
            client.batch_execute(&begin),
            client.query_typed(query, parameters),
            client.batch_execute("COMMIT")
        );
        // Whichever failed first, all three may have reached the server.
        if let Err(error) = begun {
            return Err(not_begun(error, answer.as_ref().err()));
        }
        let rows = answer.map_err(failure)?;
        committed.map_err(|error| match failure(error) {
            // The COMMIT may have reached the server.
            Failure::Told(told) if told.kind() == ErrorKind::Unavailable => unknown(told),
            failure => failure,
        })?;
        Ok(rows)
    }
}

/// What it means that a call's transaction could not begin. If only BEGIN failed, the call ran outside of a
/// transaction.
fn not_begun(error: tokio_postgres::Error, call: Option<&tokio_postgres::Error>) -> Failure {
    let db = error.as_db_error();
    if db.is_some_and(|db| *db.code() == SqlState::FEATURE_NOT_SUPPORTED) {
        let told = Error::new(ErrorKind::Unavailable, described(&error));
        return Failure::ReadOnly(told.with_source(error));
    }
    // A server does nothing after a fatal error, and a call that it refused as well has not happened.
    let nothing_happened = db.is_some_and(is_last) || call.is_some_and(|call| call.as_db_error().is_some());
    match failure(error) {
        Failure::Told(told) if !nothing_happened => unknown(told),
        failure => failure,
    }
}

/// Whether the server ends the connection with this error.
fn is_last(error: &DbError) -> bool {
    matches!(error.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
}

fn unknown(told: Error) -> Failure {
    Failure::Told(told.with_kind(ErrorKind::Unknown))
}

/// A connection that waits for its answer. If the call is dropped before the answer, the connection is closed: its
/// server may be gone without a word, and the next call would wait for it too. If the wait was long, the idle
/// connections are closed as well, because they lead to the same server.
struct Answering {
    connection: Option<Object>,
    since: Instant,
}

impl Answering {
    fn new(connection: Object) -> Self {
        Self { connection: Some(connection), since: Instant::now() }
    }

    /// Returns it to the pool.
    fn answered(mut self) {
        self.connection.take();
    }

    /// Closes it and the idle ones: they may all lead to a server that takes no calls.
    fn misled(mut self) {
        self.close(true);
    }

    fn close(&mut self, others: bool) {
        let Some(connection) = self.connection.take() else { return };
        if let Some(pool) = Object::pool(&connection).filter(|_| others) {
            drop(pool.retain(|_, _| false));
        }
        drop(Object::take(connection));
    }
}

impl std::ops::Deref for Answering {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.connection.as_ref().unwrap_or_else(|| unreachable!("it is there until it has answered"))
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.close(self.since.elapsed() >= SUSPICIOUS);
    }
}

/// The one text of an answer, if it has one.
fn text_of(rows: &[Row]) -> Result<Option<String>> {
    let row = rows.first().ok_or_else(|| Error::new(ErrorKind::Internal, "no answer"))?;
    let text: Option<JsonText> = column(row, 0)?;
    Ok(text.map(|text| text.0))
}

/// A column of an answer.
pub(crate) fn column<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T> {
    row.try_get(at).map_err(|error| Error::new(ErrorKind::Internal, format!("answer: {error}")))
}

enum Failure {
    /// Nothing happened, because another transaction was faster. The call may be made again at once.
    Race(Error),
    /// What the caller is told.
    Told(Error),
    /// Nothing happened, because the server is a standby or became one. The caller is told; the connection is closed.
    ReadOnly(Error),
}

/// What an error of a call that may have reached the server means to the caller, who finds it as `source`.
fn failure(error: tokio_postgres::Error) -> Failure {
    match meaning(&error) {
        Failure::Race(told) => Failure::Race(told.with_source(error)),
        Failure::Told(told) => Failure::Told(told.with_source(error)),
        Failure::ReadOnly(told) => Failure::ReadOnly(told.with_source(error)),
    }
}

fn meaning(error: &tokio_postgres::Error) -> Failure {
    let Some(db) = error.as_db_error() else {
        return Failure::Told(Error::new(ErrorKind::Unknown, described(error)));
    };
    let code = db.code();
    let kind = match code.code() {
        "QOINV" => ErrorKind::Invalid,
        "QONTF" => ErrorKind::NotFound,
        "QOCFL" => ErrorKind::Conflict,
        "QOLIM" => ErrorKind::LimitReached,
        "QOFEN" => ErrorKind::Fenced,
        "QOINT" => ErrorKind::Internal,
        "QOALO" => return Failure::Told(Error::new(ErrorKind::Internal, MUST_BE_ALONE)),
        // Ids are unique. If two jobs had one id after all, the end of one must not stop every exchange.
        "23505" if db.table() == Some("done") => {
            return Failure::Told(Error::new(ErrorKind::Internal, MUST_BE_ALONE));
        }
        _ if *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED => {
            return Failure::Race(Error::new(ErrorKind::Unavailable, db.message()));
        }
        // What a pooler reports that has lost its server.
        text if text.starts_with("08") => ErrorKind::Unknown,
        // Insufficient resources, operator intervention, a broken disk: nothing happened, and a later call may
        // succeed.
        text if ["53", "57", "58"].contains(&&text[..2]) => ErrorKind::Unavailable,
        // The transaction took too long as a whole, or waited too long for its COMMIT.
        "25P03" | "25P04" => ErrorKind::Unavailable,
        _ if *code == SqlState::READ_ONLY_SQL_TRANSACTION => {
            return Failure::ReadOnly(Error::new(ErrorKind::Unavailable, db.message()));
        }
        _ if *code == SqlState::LOCK_NOT_AVAILABLE => ErrorKind::Unavailable,
        _ if *code == SqlState::INSUFFICIENT_PRIVILEGE => {
            let said = db.message();
            // As in `is_admin_door`.
            let doors = ["api_create_token", "api_revoke_token", "api_tokens", "api_record"];
            let part = if doors.iter().any(|door| said.contains(door)) { "admin" } else { "work" };
            let message = format!(
                "{said}: the owner of the schema can allow it: SELECT SCHEMA.allow('ROLE', '{part}')"
            );
            return Failure::Told(Error::new(ErrorKind::Invalid, message));
        }
        _ if is_for_good(code) => ErrorKind::Invalid,
        _ if [SqlState::UNDEFINED_FUNCTION, SqlState::INVALID_SCHEMA_NAME, SqlState::UNDEFINED_TABLE]
            .contains(code) =>
        {
            let message = format!(
                "{}: is the schema there, and of this release? `qo migrate up` makes it so",
                db.message()
            );
            return Failure::Told(Error::new(ErrorKind::Unavailable, message));
        }
        _ => {
            let message = format!("PostgreSQL: {} ({})", db.message(), code.code());
            return Failure::Told(Error::new(ErrorKind::Internal, message));
        }
    };
    Failure::Told(told(kind, db.message()))
}

/// An error as the SQL functions write it: the function `invalid` writes PATH: "VALUE": RULE, with the value as JSON
/// writes it; other errors are one text.
fn told(kind: ErrorKind, text: &str) -> Error {
    let invalid = || {
        let (path, rest) = text.split_once(": \"")?;
        let mut escaped = false;
        let end = rest.find(|c: char| {
            let is_end = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            is_end
        })?;
        // After a value that was cut comes its length.
        let (cut, rule) = rest[end + 1..].split_once(": ")?;
        let value = format!("\"{}\"{cut}", &rest[..end]);
        Some(Error::from_parts(kind, path, Some(&value), rule))
    };
    let invalid = (kind == ErrorKind::Invalid).then(invalid).flatten();
    invalid.filter(|error| error.message() == text).unwrap_or_else(|| Error::new(kind, text))
}

/// The error of a server that could not be reached, did not let this client in, or refused a statement of a
/// transaction that has to be repeated as a whole. `Invalid` if that does not change by itself.
pub(crate) fn refused(error: tokio_postgres::Error) -> Error {
    let told = match error.code() {
        Some(code) if is_for_good(code) => {
            Error::new(ErrorKind::Invalid, described(&error)).with_cause(Cause::Refused)
        }
        _ => Error::new(ErrorKind::Unavailable, described(&error)),
    };
    told.with_source(error)
}

/// Whether a server refuses for good: until a person changes a right, a password, a URL or a database.
fn is_for_good(code: &SqlState) -> bool {
    // No such user, or a wrong password; no such database; no right; a text that the database cannot hold.
    code.code().starts_with("28")
        || [
            SqlState::INVALID_CATALOG_NAME,
            SqlState::INSUFFICIENT_PRIVILEGE,
            SqlState::UNTRANSLATABLE_CHARACTER,
            SqlState::CHARACTER_NOT_IN_REPERTOIRE,
        ]
        .contains(code)
}

fn described(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        return format!("PostgreSQL: {} ({})", db.message(), db.code().code());
    }
    let source = std::error::Error::source(error).map(|source| format!(": {source}"));
    format!("PostgreSQL: {error}{}", source.unwrap_or_default())
}

/// The text of an answer, as it is.
struct JsonText(String);

impl<'a> FromSql<'a> for JsonText {
    fn from_sql(
        ty: &Type,
        raw: &'a [u8],
    ) -> std::result::Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        // Binary `jsonb` is a version byte, then text.
        let text = if *ty == Type::JSONB { raw.get(1..).unwrap_or_default() } else { raw };
        Ok(Self(match *ty {
            Type::BOOL => (if raw == [1] { "true" } else { "false" }).into(),
            Type::VOID => "null".into(),
            // A log may hold any bytes that a client has sent, and is shown all the same.
            Type::BYTEA => String::from_utf8_lossy(raw).into_owned(),
            _ => std::str::from_utf8(text)?.into(),
        }))
    }

    fn accepts(ty: &Type) -> bool {
        [Type::JSONB, Type::BYTEA, Type::BOOL, Type::VOID].contains(ty)
    }
}
