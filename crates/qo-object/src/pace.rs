//! How often to look for what others wrote, where nobody tells: a bucket answers slowly, and every question costs.
//!
//! Soon after something happened more is likely to happen, so it is looked at often; while nothing does, seldom. A session
//! that is only renewed is nothing: a fleet that idles would keep itself awake.
//!
//! Records that are behind each other are asked for at once: first one, then two, then four; by one who begins, eight. Who
//! follows others pays a question or two too many; who begins far behind does not wait for every single answer.

use crate::record::Record;
use crate::store::Options;
use crate::writer::Writer;
use futures::{StreamExt, stream};
use qo_core::{Event, Result};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// How long after something happened more is expected.
const BUSY: Duration = Duration::from_secs(11);
/// Most records that are asked for at once: by one who follows, and by one who begins.
const AHEAD: (u64, u64) = (8, 64);
/// And most bytes, if they are as large as the largest so far.
const AHEAD_BYTES: u64 = 32 << 20;

/// How much more or less a pause may be, of itself.
const SPREAD: f64 = 0.25;

/// Workers from which on more make no difference.
const MANY: usize = 16;

/// A number from 0 to 1.
fn chance() -> f64 {
    (Uuid::new_v4().as_u128() % 1_000) as f64 / 1_000.0
}

/// When something happened last.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    worked: Option<Instant>,
}

impl Pace {
    /// A record was seen, one's own too.
    pub(crate) fn saw(&mut self, record: &Record) {
        if is_work(record) {
            self.worked = Some(Instant::now());
        }
    }

    /// How long until the next look, in the mean.
    pub(crate) fn next_look(&self, options: &Options) -> Duration {
        let is_busy = self.worked.is_some_and(|at| at.elapsed() < BUSY);
        if is_busy { options.poll_without_bell } else { options.poll.max(options.poll_without_bell) }
    }
}

/// Whether somebody may have to do something because of a record.
pub(crate) fn is_work(record: &Record) -> bool {
    let is_work = |event: &Event| {
        !matches!(
            event,
            Event::Ticked(_)
                | Event::Renewed { .. }
                | Event::Exchanged(_)
                | Event::SessionOpened { .. }
                | Event::SessionEnded(_)
                | Event::SessionForgotten(_)
                | Event::Registered(_)
                | Event::Forgotten(_)
                | Event::Archived(_)
        )
    };
    !record.offered.is_empty() || record.events.iter().any(is_work)
}

impl Writer {
    /// How long until the next look. In a bucket it is by chance a little more or less: otherwise all who saw the same record
    /// would go on looking at the same moment, and then race.
    pub(crate) fn next_pause(&self) -> Duration {
        let pause = self.pace.next_look(&self.options);
        if self.log.traffic().is_none() {
            return pause;
        }
        pause.mul_f64(1.0 - SPREAD + 2.0 * SPREAD * chance())
    }

    /// When to decide about what was offered if nobody claims it: the more there are who could, the later, so that they do not
    /// all do it.
    pub(crate) fn admit_at(&self) -> Instant {
        let workers = if self.log.traffic().is_some() { self.state.workers().len().min(MANY) } else { 0 };
        Instant::now() + self.options.poll.mul_f64(1.0 + workers as f64 * chance())
    }

    /// Reads to the end of the log, several records at once.
    pub(crate) async fn read_ahead(&mut self) -> Result<()> {
        let (mut ahead, most) = match self.is_reading_back {
            true => (AHEAD.0, AHEAD.1),
            // Who waits for his turn, or has lost it, expects a record: of two one is there, and the other says that it is
            // the end.
            false if self.is_waiting => (2, AHEAD.0),
            false => (1, AHEAD.0),
        };
        let mut largest = 1;
        loop {
            let (log, next) = (self.log.clone(), self.end.number + 1);
            let asked = Instant::now();
            let reads = (next..next + ahead).map(|number| log.read_sized(number));
            // In order; nobody waits for those behind the end.
            let mut records = stream::iter(reads).buffered(ahead as usize);
            while let Some(record) = records.next().await {
                let Some((record, bytes)) = record? else {
                    self.seen_end = asked;
                    self.seen_date = self.log.believed_now();
                    return Ok(());
                };
                largest = largest.max(bytes as u64);
                self.follow(&record, bytes)?;
            }
            ahead = (ahead * 2).min(most).min(AHEAD_BYTES / largest).max(1);
        }
    }
}
