//! One call, one short transaction: BEGIN, the function and COMMIT are sent together and answered together, so no lock
//! is held across a round trip and no server setting or pooler changes what the call means.

use crate::Url;
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime};
use qo_core::{Clock, Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{Client, NoTls, Row, Transaction};

/// Connections to one namespace.
pub(crate) struct Calls {
    pool: Pool,
    schema: String,
    clock: Option<Arc<dyn Clock>>,
}

/// A parameter and its type: nothing is prepared, so a pooler may send every call to another connection.
pub(crate) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// How often a call that lost a race, and so did nothing, is made again.
const RACES: u32 = 10;

/// How long a call may take. The longest are sweeps of a large backlog; whoever can wait no longer drops the call.
const LONGEST: Duration = Duration::from_secs(60);

impl Calls {
    pub fn new(
        url: &Url,
        connections: usize,
        patience: Duration,
        clock: Option<Arc<dyn Clock>>,
    ) -> Result<Self> {
        let mut config = url.config.clone();
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(patience);
        }
        let manager =
            Manager::from_config(config, NoTls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
        let pool = Pool::builder(manager).max_size(connections).wait_timeout(Some(patience));
        let pool = pool.create_timeout(Some(patience)).runtime(Runtime::Tokio1).build();
        let pool = pool.map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
        Ok(Self { pool, schema: url.schema.clone(), clock })
    }

    /// Calls a function of the schema; its answer, if it has one, is JSON.
    pub async fn call(&self, function: &str, parameters: &[Parameter<'_>]) -> Result<Option<String>> {
        let query = format!("SELECT {}", self.invocation(function, parameters.len()));
        text_of(&self.run(&query, parameters).await?)
    }

    /// Calls a function in somebody else's transaction.
    pub async fn call_in(
        &self,
        transaction: &Transaction<'_>,
        function: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Option<String>> {
        let query = format!("SELECT {}", self.invocation(function, parameters.len()));
        let rows = transaction.query_typed(&query, parameters).await.map_err(|error| {
            match failure(&error, true) {
                Failure::Race(error) | Failure::Told(error) => error,
            }
        })?;
        text_of(&rows)
    }

    /// Calls a function of the schema whose answer is rows.
    pub async fn rows(&self, function: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>> {
        self.run(&format!("SELECT * FROM {}", self.invocation(function, parameters.len())), parameters).await
    }

    fn invocation(&self, function: &str, parameters: usize) -> String {
        let places: Vec<String> = (1..=parameters).map(|place| format!("${place}")).collect();
        format!("{}.{function}({})", self.schema, places.join(", "))
    }

    async fn run(&self, query: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>> {
        let mut races = 0;
        loop {
            let connection = Answering(Some(self.connection().await?));
            let answered =
                tokio::time::timeout(LONGEST, self.transaction(&connection, query, parameters, races > 0))
                    .await;
            let answer = answered.map_err(|_| {
                Error::new(ErrorKind::Unknown, format!("PostgreSQL: no answer within {LONGEST:?}"))
            })?;
            connection.answered();
            match answer {
                Err(Failure::Race(error)) if races >= RACES => return Err(error),
                Err(Failure::Race(_)) => races += 1,
                Err(Failure::Told(error)) => return Err(error),
                Ok(answer) => return Ok(answer),
            }
        }
    }

    async fn connection(&self) -> Result<Object> {
        self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => unavailable(&error),
            error => Error::new(ErrorKind::Unavailable, format!("no connection to PostgreSQL: {error}")),
        })
    }

    async fn transaction(
        &self,
        client: &Client,
        query: &str,
        parameters: &[Parameter<'_>],
        patient: bool,
    ) -> Result<Vec<Row>, Failure> {
        let mut begin = String::from(
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL synchronous_commit = on",
        );
        if patient {
            begin += "; SET LOCAL qo.patient = on";
        }
        if let Some(clock) = &self.clock {
            begin += &format!("; SET LOCAL qo.test_time = '{}'", clock.now().as_millis());
        }
        // The three are sent in this order before the first of them is answered.
        let (begun, answer, committed) = tokio::join!(
            biased;
            client.batch_execute(&begin),
            client.query_typed(query, parameters),
            client.batch_execute("COMMIT")
        );
        // All three may have reached the server, whichever of them failed first; if the first did and the second did not, the
        // call was made outside of a transaction.
        if let Err(error) = begun {
            return Err(match (failure(&error, true), answer) {
                (Failure::Told(told), Ok(_)) => Failure::Told(Error::new(ErrorKind::Unknown, told.message())),
                (failure, _) => failure,
            });
        }
        let rows = answer.map_err(|error| failure(&error, true))?;
        committed.map_err(|error| match failure(&error, true) {
            // Whatever became of it, it was on its way.
            Failure::Told(told) if told.kind() == ErrorKind::Unavailable => {
                Failure::Told(Error::new(ErrorKind::Unknown, told.message()))
            }
            failure => failure,
        })?;
        Ok(rows)
    }
}

/// A connection that is being asked. One whose answer nobody waits for any more is closed and not used again: the server at
/// its other end may be gone without a word, and whoever came next would wait for it, too.
struct Answering(Option<Object>);

impl Answering {
    /// It goes back to the others.
    fn answered(mut self) {
        self.0.take();
    }
}

impl std::ops::Deref for Answering {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.0.as_ref().unwrap_or_else(|| unreachable!("it is there until it has answered"))
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        drop(self.0.take().map(Object::take));
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
    /// Nothing happened, because somebody else was faster; the call may be made again at once.
    Race(Error),
    /// What the caller is told.
    Told(Error),
}

/// What an error means to the caller. `sent` is whether the call itself may have reached the server.
fn failure(error: &tokio_postgres::Error, sent: bool) -> Failure {
    let Some(db) = error.as_db_error() else {
        let kind = if sent { ErrorKind::Unknown } else { ErrorKind::Unavailable };
        return Failure::Told(Error::new(kind, described(error)));
    };
    let code = db.code();
    let kind = match code.code() {
        "QOINV" => ErrorKind::Invalid,
        "QONTF" => ErrorKind::NotFound,
        "QOCFL" => ErrorKind::Conflict,
        "QOLIM" => ErrorKind::LimitReached,
        "QOFEN" => ErrorKind::Fenced,
        "QOINT" => ErrorKind::Internal,
        "QOALO" => return Failure::Told(Error::new(ErrorKind::Internal, code.code())),
        _ if *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED => {
            return Failure::Race(Error::new(ErrorKind::Unavailable, db.message()));
        }
        // A pooler that lost its server says so like this.
        text if text.starts_with("08") && sent => ErrorKind::Unknown,
        // Insufficient resources, operator intervention: nothing happened; another time it may work.
        text if ["53", "57", "08"].contains(&&text[..2]) => ErrorKind::Unavailable,
        _ if [
            SqlState::READ_ONLY_SQL_TRANSACTION,
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::INSUFFICIENT_PRIVILEGE,
        ]
        .contains(code) =>
        {
            ErrorKind::Unavailable
        }
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
    Failure::Told(Error::new(kind, db.message()))
}

pub(crate) fn unavailable(error: &tokio_postgres::Error) -> Error {
    Error::new(ErrorKind::Unavailable, described(error))
}

fn described(error: &tokio_postgres::Error) -> String {
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
        // Binary `jsonb` is its version, then text.
        let text = if *ty == Type::JSONB { raw.get(1..).unwrap_or_default() } else { raw };
        Ok(Self(match *ty {
            Type::BOOL => (if raw == [1] { "true" } else { "false" }).into(),
            Type::VOID => "null".into(),
            _ => std::str::from_utf8(text)?.into(),
        }))
    }

    fn accepts(ty: &Type) -> bool {
        [Type::JSONB, Type::BYTEA, Type::BOOL, Type::VOID].contains(ty)
    }
}
