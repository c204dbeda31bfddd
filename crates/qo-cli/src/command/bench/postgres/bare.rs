//! The exchange against the least that any queue on PostgreSQL does: claim rows that other sessions have not locked,
//! delete them.
//!
//! The table has only a number, a flag for claimed rows and a payload. A claim is one statement, and so is the delete
//! of the claimed rows. Each commits by itself, as in a program that works between the two. A second figure puts the
//! delete and the next claim into one transaction and one round trip, as an exchange does; hand-written code rarely
//! does that. Statements are prepared.

use super::Fleet;
use super::race::Took;
use super::ratio::{first_load, jobs};
use super::server::{Server, failed, run};
use super::world::{Kind, Load, World};
use crate::command::bench::Bench;
use crate::command::bench::figure::{Bar, Figure, Unit, percentile};
use qo::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

/// How the statements are sent.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// Each by itself.
    OneByOne,
    /// The delete and the next claim in one transaction, sent at once.
    Together,
}

/// The rate of exchanges without limits, as a percentage of that of the bare statements.
pub async fn bare(bench: &Bench<'_, Fleet>) -> Result<Vec<Figure>> {
    let server = &bench.ground.server;
    let load = first_load(bench, Kind::Baseline);
    let jobs = jobs(bench, &load);
    let [mut ratios, mut ratios_together, mut rates, mut rates_together, mut p50] = [const { Vec::new() }; 5];
    for round in 0..bench.rounds() {
        bench.at("bare", round, "taking turns with bare SQL");
        let mut world = World::make(server, Kind::Baseline, load).await?;
        let table = Table::make(server, load).await?;
        let [mut exchanged, mut one_by_one, mut together] = [const { Took::new() }; 3];
        for is_bare in bench.legs(round) {
            if is_bare {
                one_by_one.add(table.leg(server, jobs, Way::OneByOne).await?);
                together.add(table.leg(server, jobs, Way::Together).await?);
            } else {
                exchanged.add(world.leg(server, jobs).await?);
            }
        }
        world.end(server).await?;
        server.drop(&table.schema).await?;
        ratios.push(exchanged.rate() / one_by_one.rate() * 100.0);
        ratios_together.push(exchanged.rate() / together.rate() * 100.0);
        rates.push(one_by_one.rate());
        rates_together.push(together.rate());
        p50.push(percentile(&one_by_one.exchanges_ms, 50.0));
    }
    let how = format!("{} workers, batches of {}", load.workers, load.batch);
    let figure = |what: &str, unit, values| Figure::new(format!("{how}, {what}"), unit, values);
    Ok(vec![
        figure("exchanges to bare SQL", Unit::Percent, ratios).bar(Bar::AtLeast(50.0)),
        figure("bare SQL", Unit::JobsPerSecond, rates),
        figure("bare SQL, a claim and its delete, p50", Unit::Ms, p50),
        figure("exchanges to bare SQL in one transaction", Unit::Percent, ratios_together),
        figure("bare SQL in one transaction", Unit::JobsPerSecond, rates_together),
    ])
}

/// A minimal table of jobs.
struct Table {
    schema: String,
    load: Load,
}

impl Table {
    async fn make(server: &Server, load: Load) -> Result<Self> {
        let schema = server.name();
        let sql = format!(
            "CREATE SCHEMA {schema};
             CREATE TABLE {schema}.job (
                 id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                 is_claimed boolean NOT NULL DEFAULT false,
                 payload text NOT NULL
             );
             CREATE INDEX job_pending ON {schema}.job (id) WHERE NOT is_claimed"
        );
        run(&server.connect().await?, &sql).await?;
        Ok(Self { schema, load })
    }

    /// Claims and deletes this many jobs; inserting them is not timed.
    async fn leg(&self, server: &Server, jobs: u64, way: Way) -> Result<Took> {
        let schema = &self.schema;
        let insert =
            format!("INSERT INTO {schema}.job (payload) SELECT 'null' FROM generate_series(1, {jobs})");
        run(&server.connect().await?, &insert).await?;
        server.settle(schema).await?;
        let ready = Arc::new(Barrier::new(self.load.workers as usize + 1));
        let mut claimers = JoinSet::new();
        for _ in 0..self.load.workers {
            let claimer = Claimer::new(server.connect().await?, schema, self.load.batch).await?;
            let ready = Arc::clone(&ready);
            claimers.spawn(async move {
                ready.wait().await;
                claimer.run(way).await
            });
        }
        ready.wait().await;
        let began = Instant::now();
        let mut took = Took::default();
        while let Some(run) = claimers.join_next().await {
            let gone = |error| Error::new(ErrorKind::Internal, format!("a claimer is gone: {error}"));
            let exchanges_ms = run.map_err(gone)??;
            took.exchanges_ms.extend(exchanges_ms);
        }
        (took.jobs, took.seconds) = (jobs, began.elapsed().as_secs_f64());
        Ok(took)
    }
}

/// The one parameter that each statement has.
type Parameters<'a> = [&'a (dyn ToSql + Sync); 1];

struct Claimer {
    client: Client,
    claim: Statement,
    delete: Statement,
    batch: i64,
}

impl Claimer {
    async fn new(client: Client, schema: &str, batch: u32) -> Result<Self> {
        let claim = format!(
            "UPDATE {schema}.job SET is_claimed = true WHERE id = ANY (ARRAY(
                 SELECT id FROM {schema}.job WHERE NOT is_claimed ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED))
             RETURNING id, payload"
        );
        let delete = format!("DELETE FROM {schema}.job WHERE id = ANY ($1)");
        let claim = client.prepare(&claim).await.map_err(|error| failed(&error))?;
        let delete = client.prepare(&delete).await.map_err(|error| failed(&error))?;
        Ok(Self { client, claim, delete, batch: i64::from(batch) })
    }

    /// Claims until nothing is left, and returns how long each batch took.
    async fn run(self, way: Way) -> Result<Vec<f64>> {
        let mut times = Vec::new();
        let mut claimed: Vec<i64> = Vec::new();
        loop {
            let began = Instant::now();
            claimed = match way {
                Way::OneByOne => self.one_by_one().await?,
                Way::Together => self.together(&claimed).await?,
            };
            times.push(began.elapsed().as_secs_f64() * 1e3);
            if claimed.is_empty() {
                return Ok(times);
            }
        }
    }

    /// Claims, and deletes what it has claimed.
    async fn one_by_one(&self) -> Result<Vec<i64>> {
        let rows = self.client.query(&self.claim, &[&self.batch]).await.map_err(|error| failed(&error))?;
        let claimed: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        self.client.execute(&self.delete, &[&claimed]).await.map_err(|error| failed(&error))?;
        Ok(claimed)
    }

    /// Deletes the rows of the claim before, and claims. All four statements are sent before the first is answered.
    async fn together(&self, before: &Vec<i64>) -> Result<Vec<i64>> {
        let (of_delete, of_claim): (Parameters<'_>, Parameters<'_>) = ([before], [&self.batch]);
        let (begun, deleted, rows, committed) = tokio::join!(
            biased;
            self.client.batch_execute("BEGIN"),
            self.client.execute(&self.delete, &of_delete),
            self.client.query(&self.claim, &of_claim),
            self.client.batch_execute("COMMIT")
        );
        begun.and(deleted.map(|_| ())).and(committed).map_err(|error| failed(&error))?;
        Ok(rows.map_err(|error| failed(&error))?.iter().map(|row| row.get(0)).collect())
    }
}
