//! What the store did, as it recorded it itself, in its own order.
//!
//! That order is the order of the commits. If one of two transactions waited for the other or saw what it wrote, the
//! first has the earlier commit timestamp: PostgreSQL takes the timestamp before it releases the locks.

use crate::server::Server;
use qo::core::{ExchangeReply, GroupRef, JobId, SessionId, Time};
use serde::Deserialize;

/// What was committed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A session was opened.
    Opened { session: SessionId, lease_until: Time },
    /// A number of a session was answered. The answer may have been lost.
    Exchanged { session: SessionId, reply: Box<ExchangeReply> },
    /// A session ended, whose lease was to end then.
    Ended { session: SessionId, lease_until: Time },
    /// A job was accepted.
    Accepted(JobId),
    /// An operator's limit.
    Limited { group: GroupRef, limit: u32 },
}

/// One row.
#[derive(Debug)]
pub struct Row {
    pub transaction: u64,
    /// When it was committed, in microseconds of the machine's clock.
    pub committed_us: u64,
    /// Store time.
    pub at: Time,
    pub change: Change,
}

/// Makes the store of a namespace record what it does.
pub async fn begin(server: &Server, schema: &str) {
    let client = server.connect().await.expect("it answers");
    client.batch_execute(&format!("SET search_path = {schema}, pg_temp")).await.expect("it is there");
    client.batch_execute(include_str!("journal.sql")).await.expect("it is made");
}

/// All that it did, row by row; those of a transaction are together.
pub async fn read(server: &Server, schema: &str) -> Vec<Row> {
    let client = server.connect().await.expect("it answers");
    let query = format!(
        "SELECT j.xid::text::bigint, (extract(epoch FROM c.committed) * 1000000)::bigint, j.at, j.what::text
         FROM {schema}.journal j
         CROSS JOIN LATERAL (SELECT pg_xact_commit_timestamp(j.xid::xid) AS committed) c
         ORDER BY c.committed, min(j.n) OVER (PARTITION BY j.xid), j.n"
    );
    let rows = client.query(&query, &[]).await.expect("track_commit_timestamp is on");
    rows.iter()
        .map(|row| Row {
            transaction: row.get::<_, i64>(0).unsigned_abs(),
            committed_us: row.get::<_, i64>(1).unsigned_abs(),
            at: Time::from_millis(row.get(2)),
            change: serde_json::from_str(row.get(3)).expect("a change"),
        })
        .collect()
}
