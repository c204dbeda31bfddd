//! What limits cost inside the server's function: its time for an exchange, with limits and without.
//!
//! There is one claimer, so no session waits for another. The server times the function (`track_functions`), which
//! leaves out the network, the commit and this program.

use super::race::Took;
use super::server::{Server, failed};
use super::world::{Kind, Load, World};
use super::{BATCH, Fleet, SMALL_BATCH};
use crate::command::bench::Bench;
use crate::command::bench::figure::{Bar, Figure, Unit};
use qo::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};

/// The function that exchanges.
const FUNCTION: &str = "api_exchange_shared";
/// Exchanges a round: so many that the first ones do not matter.
const EXCHANGES: u64 = 400;
/// How long the server may take to report its statistics.
const PATIENCE: Duration = Duration::from_secs(20);

/// The time of an exchange with limits, less that of one without.
pub async fn bookkeeping(bench: &Bench<'_, Fleet>) -> Result<Vec<Figure>> {
    let server = bench.ground.server.timing();
    let measured = [
        ("every task limited", Kind::Enabled, SMALL_BATCH),
        ("cluster, queue, task and key", Kind::Nested, SMALL_BATCH),
        ("every task limited", Kind::Enabled, BATCH),
    ];
    let mut all: Vec<Vec<f64>> = measured.iter().map(|_| Vec::new()).collect();
    for round in 0..bench.rounds() {
        for ((what, kind, batch), costs) in measured.iter().zip(&mut all) {
            bench.at("bookkeeping", round, what);
            let legs = bench.legs(round);
            let mut cost = 0.0;
            for is_without in &legs {
                let kind = if *is_without { Kind::Baseline } else { *kind };
                let ms = function_ms(bench, &server, kind, *batch).await?;
                cost += if *is_without { -ms } else { ms };
            }
            costs.push(cost / (legs.len() / 2) as f64);
        }
    }
    let figures = measured.iter().zip(all).enumerate().map(|(index, ((what, _, batch), costs))| {
        let figure = Figure::new(format!("{what}, batches of {batch}, cost of an exchange"), Unit::Ms, costs);
        if index == 0 { figure.bar(Bar::AtMost(1.0)) } else { figure }
    });
    Ok(figures.collect())
}

/// How long the function takes in the mean.
async fn function_ms(bench: &Bench<'_, Fleet>, server: &Server, kind: Kind, batch: u32) -> Result<f64> {
    let load = Load { workers: 1, batch, is_kept: false, quick: bench.quick };
    let mut world = World::make(server, kind, load).await?;
    let exchanges = if bench.quick { 3 } else { EXCHANGES };
    let took: Took = world.leg(server, exchanges * u64::from(batch)).await?;
    // A backend reports its counts when its connection ends.
    world.disconnect();
    let ms = mean_ms(server, world.schema(), took.exchanges_ms.len() as f64).await?;
    world.end(server).await?;
    Ok(ms)
}

async fn mean_ms(server: &Server, schema: &str, at_least: f64) -> Result<f64> {
    let client = server.connect().await?;
    let counted = "SELECT calls::float8, total_time FROM pg_stat_user_functions WHERE schemaname = $1 AND funcname = $2";
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let row = client.query_opt(counted, &[&schema, &FUNCTION]).await.map_err(|error| failed(&error))?;
        match row.map(|row| (row.get::<_, f64>(0), row.get::<_, f64>(1))) {
            Some((calls, total_ms)) if calls >= at_least => return Ok(total_ms / calls),
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    let what =
        "the server does not tell how long its functions take: that needs the right to set track_functions";
    Err(Error::new(ErrorKind::Unavailable, what))
}
