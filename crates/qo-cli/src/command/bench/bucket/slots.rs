//! Slots that are objects: what it takes to get one, to give it back, and to be refused.

use super::Site;
use crate::command::bench::Bench;
use crate::command::bench::figure::{Bar, Figure, Unit, median};
use qo::bucket::Requests;
use qo::{Acquire, ConcurrencyManager, Error, ErrorKind, HeldSlot, Result, SlotObjects};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// The limit of the group that is full.
const LIMIT: u32 = 10;
const LEASE: Duration = Duration::from_secs(600);
/// How often in a round.
const TIMES: usize = 10;

/// How many requests each takes, and how long.
pub async fn slots(bench: &Bench<'_, Site>) -> Result<Vec<Figure>> {
    let slots = qo::slot_objects(&bench.ground.fresh())?;
    // The first slot of a namespace costs extra requests, once.
    pass(&slots).await?;
    for _ in 0..LIMIT {
        take(&slots, "full", LIMIT).await?;
    }
    let (mut passes, mut refusals) = (Measured::default(), Measured::default());
    for round in 0..bench.rounds() {
        bench.at("slots", round, "slots that are objects");
        for _ in 0..if bench.quick { 1 } else { TIMES } {
            passes.add(&slots, pass(&slots)).await?;
            let refused = async {
                match slots.try_acquire(&acquire("full", LIMIT)).await? {
                    None => Ok(()),
                    Some(_) => Err(Error::new(ErrorKind::Internal, "a full group gave a slot away")),
                }
            };
            refusals.add(&slots, refused).await?;
        }
        passes.end_round();
        refusals.end_round();
    }
    let mut figures = passes.figures("a free slot, acquired and released", 4.0);
    figures.extend(refusals.figures(&format!("refusal by a full group of {LIMIT}"), 11.0));
    Ok(figures)
}

/// Takes a free slot, and gives it back.
async fn pass(slots: &SlotObjects) -> Result<()> {
    let slot = take(slots, "free", 1).await?;
    slots.release(&slot).await
}

async fn take(slots: &SlotObjects, group: &str, limit: u32) -> Result<HeldSlot> {
    let slot = slots.try_acquire(&acquire(group, limit)).await?;
    slot.ok_or_else(|| Error::new(ErrorKind::Internal, format!("{group} has no slot left")))
}

fn acquire(group: &str, limit: u32) -> Acquire<'_> {
    Acquire { group, limit, task_id: Uuid::new_v4(), worker_id: "bench", lease_duration: LEASE }
}

/// Requests and times.
#[derive(Debug, Default)]
struct Measured {
    requests: Vec<f64>,
    times_ms: Vec<f64>,
    /// Medians of the rounds.
    rounds: Vec<(f64, f64)>,
}

impl Measured {
    async fn add(&mut self, slots: &SlotObjects, call: impl Future<Output = Result<()>>) -> Result<()> {
        let asked = || slots.traffic().map_or_else(Requests::default, |traffic| traffic.requests());
        let (began, before) = (Instant::now(), asked());
        call.await?;
        self.times_ms.push(began.elapsed().as_secs_f64() * 1e3);
        self.requests.push(asked().since(&before).total() as f64);
        Ok(())
    }

    fn end_round(&mut self) {
        self.rounds.push((median(&self.requests), median(&self.times_ms)));
        self.requests.clear();
        self.times_ms.clear();
    }

    fn figures(&self, what: &str, most: f64) -> Vec<Figure> {
        let requests = self.rounds.iter().map(|(requests, _)| *requests).collect();
        let times_ms = self.rounds.iter().map(|(_, ms)| *ms).collect();
        vec![
            Figure::new(format!("{what}: requests"), Unit::Requests, requests).bar(Bar::AtMost(most)),
            Figure::new(format!("{what}: time"), Unit::Ms, times_ms),
        ]
    }
}
