//! Making and upgrading the schema of a namespace.
//!
//! A migration is a numbered step that changes tables. An upgrade is one transaction:
//!
//! 1. Take the advisory lock of migrations. Of several deploys at once one goes first, and the others find nothing
//!    left to do.
//! 2. Take the namespace lock, and lock the tables that change, each within [`LOCK_TIMEOUT`].
//! 3. Run the steps that are missing, replace all functions, and run what steps do once the functions are there.
//! 4. Write the version of the schema, and the oldest release that may use it.
//!
//! Invariants:
//!
//! 1. An upgrade happens as a whole or not at all: no release finds a schema between two versions.
//! 2. A call waits for an upgrade that waits for a lock for [`LOCK_TIMEOUT`] at most. An upgrade that does not get
//!    its locks starts over after a pause, and the calls behind it go on meanwhile.

use crate::{Url, call::refused, values::filled};
use qo_core::{Error, ErrorKind, Result};
use std::fmt;
use std::time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{Client, Connection, NoTls, Socket};

/// What a step means to concurrent calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockLevel {
    /// It makes tables that no call uses yet.
    NoCall,
    /// It changes tables that calls use: they wait until it commits. It reads the live jobs once.
    Briefly,
}

impl fmt::Display for LockLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCall => "no call has to wait",
            Self::Briefly => "calls wait meanwhile, as a rule for less than a second",
        })
    }
}

struct Step {
    version: i32,
    name: &'static str,
    lock: LockLevel,
    sql: &'static str,
    /// SQL that runs once the functions of this release are there.
    after: &'static str,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.version, self.name, self.lock)
    }
}

const STEPS: &[Step] = &[
    Step {
        version: 1,
        name: "tables",
        lock: LockLevel::NoCall,
        sql: include_str!("migrations/0001_tables.sql"),
        after: "",
    },
    Step {
        version: 2,
        name: "apps: each service keeps its own configuration",
        lock: LockLevel::Briefly,
        sql: include_str!("migrations/0002_apps.sql"),
        after: "",
    },
    Step {
        version: 3,
        name: "rules of jobs",
        lock: LockLevel::Briefly,
        sql: include_str!("migrations/0003_rules_of_jobs.sql"),
        after: include_str!("migrations/0003_validate.sql"),
    },
    Step {
        version: 4,
        name: "one word per thing",
        lock: LockLevel::Briefly,
        sql: include_str!("migrations/0004_one_word_per_thing.sql"),
        after: "",
    },
    Step {
        version: 5,
        name: "submits that clear a limit",
        lock: LockLevel::Briefly,
        sql: include_str!("migrations/0005_clear_limit.sql"),
        after: "",
    },
    Step {
        version: 6,
        name: "traces of jobs",
        lock: LockLevel::Briefly,
        sql: include_str!("migrations/0006_totals_and_traces.sql"),
        after: "",
    },
    Step {
        version: 7,
        name: "tokens and the audit log",
        lock: LockLevel::Briefly,
        sql: include_str!("migrations/0007_tokens_and_audit.sql"),
        after: "",
    },
    Step {
        version: 8,
        name: "totals of groups, and waits of jobs",
        lock: LockLevel::Briefly,
        sql: include_str!("migrations/0008_totals_and_waits.sql"),
        after: "",
    },
];

/// The text of a SQL file, and the file's name.
macro_rules! sql {
    ($file:literal) => {
        ($file, include_str!($file))
    };
}

/// The functions, in the order in which they are made.
const FUNCTIONS: &[(&str, &str)] = &[
    sql!("functions/10_time_and_lock.sql"),
    sql!("functions/15_checks.sql"),
    sql!("functions/20_groups.sql"),
    sql!("functions/30_jobs.sql"),
    sql!("functions/40_workflows.sql"),
    sql!("functions/45_front.sql"),
    sql!("functions/50_claim.sql"),
    sql!("functions/51_needs.sql"),
    sql!("functions/52_line.sql"),
    sql!("functions/53_slots.sql"),
    sql!("functions/54_shared_claim.sql"),
    sql!("functions/55_totals.sql"),
    sql!("functions/60_over.sql"),
    sql!("functions/70_submit.sql"),
    sql!("functions/75_sql_submit.sql"),
    sql!("functions/80_session.sql"),
    sql!("functions/81_operate.sql"),
    sql!("functions/82_shared_exchange.sql"),
    sql!("functions/83_tokens.sql"),
    sql!("functions/89_foreseen.sql"),
    sql!("functions/90_views.sql"),
    sql!("functions/99_doors.sql"),
];

/// The version of the schema that this release works with. Raise it when a function changes, too.
pub const VERSION: i32 = 8;

/// The oldest release, by version of the schema, that may use a schema of this version. Version 1 pushes
/// configurations in a form that `api_configure` no longer takes.
const OLDEST_CLIENT: i32 = 2;

/// How long an upgrade waits for each lock, and calls wait behind it.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// How often an upgrade that does not get its locks starts over, and the longest pause before it does.
const TRIES: u32 = 30;
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Of an existing schema: the namespace lock, then the tables that steps change. `job` comes first because every
/// submit uses it first, so an upgrade and a call do not deadlock.
const LOCKS: &str = "SELECT pg_advisory_xact_lock((29551::bigint << 32) | 'clock'::regclass::oid::bigint);
    LOCK TABLE job, line, done, limits, code_limit, submit_limit, schedule, session IN ACCESS EXCLUSIVE MODE;";

/// Makes the schema, or upgrades it to this release, and returns the steps. A second call does nothing. `Unavailable`
/// if an open transaction holds the tables all the while; nothing has changed then.
pub async fn up(url: &Url) -> Result<Vec<String>> {
    up_telling(url, |said| tracing::warn!("{said}")).await
}

/// The same, and says why it waits.
pub async fn up_telling(url: &Url, mut tell: impl FnMut(&str) + Send) -> Result<Vec<String>> {
    let mut client = connect(url).await?;
    let mut tries = 0;
    loop {
        let held = match raise(&mut client, &url.schema).await {
            Ok(steps) => return Ok(steps.iter().map(ToString::to_string).collect()),
            Err(Trouble::Refused(error)) => return Err(error),
            Err(Trouble::Held(said)) => said,
        };
        tries += 1;
        let message = format!(
            "schema {}: an open transaction, or a dump, holds its tables ({held}); nothing has changed",
            url.schema
        );
        if tries == TRIES {
            let message =
                format!("{message}; see pg_stat_activity for transactions that have been open for long");
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        tell(&format!("{message}; it tries again in a moment"));
        tokio::time::sleep(LONGEST_PAUSE.min(Duration::from_millis(500) * tries)).await;
    }
}

/// Why an attempt to upgrade changed nothing.
enum Trouble {
    /// A lock was not free in time.
    Held(String),
    /// The caller is told.
    Refused(Error),
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        let waited = [SqlState::LOCK_NOT_AVAILABLE, SqlState::T_R_DEADLOCK_DETECTED];
        match error.as_db_error().filter(|db| waited.contains(db.code())) {
            Some(db) => Self::Held(db.message().into()),
            None => Self::Refused(refused(error)),
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// Runs the missing steps in one transaction and returns them. Its locks end with the transaction, so it works
/// through a pooler.
async fn raise(client: &mut Client, schema: &str) -> Result<Vec<&'static Step>, Trouble> {
    let transaction = client.transaction().await?;
    transaction.batch_execute("SELECT pg_advisory_xact_lock(29551, hashtext('qo migrate'))").await?;
    let known = format!("SELECT to_regclass('{schema}.version') IS NOT NULL");
    let known = transaction.query_typed(&known, &[]).await?;
    let mut version: Option<i32> = None;
    if known.first().is_some_and(|row| row.get(0)) {
        let rows = transaction.query_typed(&format!("SELECT version FROM {schema}.version"), &[]).await?;
        version = rows.first().map(|row| row.get(0));
    }
    if let Some(version) = version.filter(|version| *version > VERSION) {
        let rule = format!("schema {schema} is newer than this release: {version} > {VERSION}");
        return Err(Error::new(ErrorKind::Conflict, rule).into());
    }
    let to_do = |step: &&Step| version.is_none_or(|version| step.version > version);
    let steps: Vec<&'static Step> = STEPS.iter().filter(to_do).collect();
    if steps.is_empty() {
        return Ok(steps);
    }
    check_encoding(&transaction).await?;
    // `CREATE SCHEMA IF NOT EXISTS` fails for a role that owns the schema and may create no other.
    let known = format!("SELECT to_regnamespace('{schema}') IS NOT NULL");
    let known = transaction.query_typed(&known, &[]).await?;
    let is_there = known.first().is_some_and(|row| row.get(0));
    let make = if is_there { String::new() } else { format!("CREATE SCHEMA {schema};") };
    let begin = format!(
        "{make}
         SET LOCAL search_path = {schema};
         SET LOCAL check_function_bodies = off;
         SET LOCAL lock_timeout = '{}ms';
         {};
         {}
         CREATE TABLE IF NOT EXISTS version (version integer NOT NULL, oldest_client integer NOT NULL);",
        LOCK_TIMEOUT.as_millis(),
        if version.is_some() { LOCKS } else { "" },
        include_str!("migrations/before.sql"),
    );
    let end = format!("DELETE FROM version; INSERT INTO version VALUES ({VERSION}, {OLDEST_CLIENT});");
    let changes = steps.iter().map(|step| filled(step.sql));
    let functions = FUNCTIONS.iter().map(|(_, sql)| filled(sql));
    let after = steps.iter().map(|step| filled(step.after));
    for sql in [begin].into_iter().chain(changes).chain(functions).chain(after).chain([end]) {
        transaction.batch_execute(&sql).await.map_err(|error| match Trouble::from(error) {
            Trouble::Refused(error) => {
                Error::new(error.kind(), format!("raising schema {schema}: {}", error.message())).into()
            }
            held @ Trouble::Held(_) => held,
        })?;
    }
    transaction.commit().await?;
    Ok(steps)
}

/// `Invalid` if the database cannot hold every UTF-8 text.
async fn check_encoding(transaction: &tokio_postgres::Transaction<'_>) -> Result<()> {
    let asked = "SELECT getdatabaseencoding()::text, current_database()::text";
    let rows = transaction.query_typed(asked, &[]).await.map_err(refused)?;
    let Some(row) = rows.first() else { return Err(Error::new(ErrorKind::Internal, "no answer")) };
    let (encoding, database): (&str, &str) = (row.get(0), row.get(1));
    if encoding == "UTF8" {
        return Ok(());
    }
    let rule = format_args!("must be UTF8: create database {database} again, with ENCODING 'UTF8'");
    Err(Error::invalid("encoding", encoding, rule))
}

/// The version of the schema and the oldest release that may use it; `None` if there is no schema.
pub async fn status(url: &Url) -> Result<Option<(i32, i32)>> {
    version_of(&connect(url).await?, &url.schema).await
}

/// The SQL of one step, for tests that make a schema of an earlier version.
#[doc(hidden)]
pub fn step_sql(version: i32) -> String {
    STEPS.iter().find(|step| step.version == version).map(|step| filled(step.sql)).unwrap_or_default()
}

/// The steps that a schema of this version lacks, as [`up`] returns them; `None` stands for no schema.
pub fn pending(version: Option<i32>) -> Vec<String> {
    let pending = STEPS.iter().filter(|step| version.is_none_or(|version| step.version > version));
    pending.map(ToString::to_string).collect()
}

async fn version_of(client: &Client, schema: &str) -> Result<Option<(i32, i32)>> {
    // Through a door: a worker's role may read no table.
    let found = client.query_typed(&format!("SELECT * FROM {schema}.api_version()"), &[]).await;
    match found {
        Ok(rows) => Ok(rows.first().map(|row| (row.get(0), row.get(1)))),
        Err(error) if error.code().is_some_and(|code| MISSING.contains(code)) => Ok(None),
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            let said = error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().into());
            let message = format!("{said}: the owner can allow it: SELECT {schema}.allow('ROLE', 'work')");
            Err(Error::new(ErrorKind::Invalid, message))
        }
        Err(error) => Err(refused(error)),
    }
}

/// The errors of a server that has no such schema.
const MISSING: [SqlState; 2] = [SqlState::UNDEFINED_FUNCTION, SqlState::INVALID_SCHEMA_NAME];

/// How long connecting to a server that does not answer may take, if the URL does not say.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection of its own.
pub(crate) async fn connect(url: &Url) -> Result<Client> {
    let (client, connection) = open(url).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection has ended");
        }
    });
    Ok(client)
}

/// A connection that its caller polls, opened within a bounded time.
pub(crate) async fn open(url: &Url) -> Result<(Client, Connection<Socket, NoTlsStream>)> {
    let (config, patience) = url.within(PATIENCE);
    let connected = tokio::time::timeout(patience, config.connect(NoTls)).await.map_err(|_| {
        Error::new(ErrorKind::Unavailable, format!("PostgreSQL: no answer within {patience:?}"))
    })?;
    connected.map_err(refused)
}

/// All SQL of the schema, by file or step.
#[cfg(test)]
pub(crate) fn all_sql() -> Vec<(&'static str, &'static str)> {
    let steps = STEPS.iter().flat_map(|step| [(step.name, step.sql), (step.name, step.after)]);
    FUNCTIONS.iter().copied().chain(steps).collect()
}
