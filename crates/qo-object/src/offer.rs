//! Light clients: submitting without holding the state.
//!
//! Whoever only submits need not read what is stored, however much that is: it appends a record that *offers* jobs. The next
//! writer that holds the state begins its record with what becomes of them. An offer is acknowledged when its record is
//! there, so from then on it will not be refused; what may be refused (`reject`, `skip`), or depends on what is stored
//! (workflows, idempotency keys, limits), is not offered.

use crate::format;
use crate::log::Log;
use crate::put::{Put, put};
use crate::record::Record;
use crate::snapshot::{Snapshot, is_swept_beyond};
use crate::store::Options;
use qo_core::{Command, Error, ErrorKind, NewJob, Result, Submitted, caps};
use tokio::time::Instant;
use uuid::Uuid;

/// Records after the newest snapshot from which on a light client does not only add to the pile: it opens the state, which
/// writes a snapshot.
const PILE: u64 = 2_000;
/// Races for the next record that an offer may lose.
const RACES: u32 = 1_000;

/// Somebody who offers jobs.
pub(crate) struct Offerer {
    log: Log,
    options: Options,
    id: Uuid,
    checked: bool,
}

/// What became of an offer.
pub(crate) enum Offered {
    /// It is in the log.
    Yes(Vec<Result<Submitted>>),
    /// It needs the state.
    NeedsState,
}

impl Offerer {
    pub(crate) fn new(log: Log, options: Options) -> Self {
        Self { log, options, id: Uuid::new_v4(), checked: false }
    }

    /// Offers the jobs of a submit, if that is what it is and all of them can be.
    pub(crate) async fn offer(&mut self, command: &Command) -> Result<Offered> {
        let Command::Submit(jobs) = command else { return Ok(Offered::NeedsState) };
        let bytes: usize = jobs.iter().map(|job| job.payload.as_str().len()).sum();
        let fits = !jobs.is_empty() && jobs.len() <= caps::SUBMIT_JOBS && bytes <= caps::SUBMIT_BYTES;
        // A cost above a limit is to be refused, and only the state knows the limits.
        let takes_one_slot = |job: &NewJob| job.cost == 1 && job.limits.values().all(|need| *need == 1);
        if !fits || !jobs.iter().all(|job| job.can_be_offered() && takes_one_slot(job)) {
            // What is wrong with it is said by the rule book.
            return Ok(Offered::NeedsState);
        }
        if !self.checked {
            format::check(&self.log).await?;
            self.checked = true;
        }
        let covered = Snapshot::newest_number(&self.log).await?;
        if self.log.last_after(covered).await? - covered >= PILE {
            return Ok(Offered::NeedsState);
        }
        if !self.append(jobs).await? {
            return Ok(Offered::NeedsState);
        }
        Ok(Offered::Yes(jobs.iter().map(|job| Ok(Submitted::Accepted(job.id))).collect()))
    }

    /// Appends a record with an offer. False if that needs the state, because the last record is not there to be followed.
    async fn append(&self, jobs: &[NewJob]) -> Result<bool> {
        for _ in 0..RACES {
            let seen = Instant::now();
            let covered = Snapshot::newest_number(&self.log).await?;
            let last = self.log.last_after(covered).await?;
            self.log.check_nothing_behind(last).await?;
            let after = match self.log.read(last).await? {
                Some(record) => record.nonce,
                None if last == 0 => Uuid::nil(),
                // Only the snapshot knows it: a power failure took a record that nobody had acknowledged.
                None if Snapshot::newest_number(&self.log).await? == covered => return Ok(false),
                // A newer snapshot has come, and this was swept: look again.
                None => continue,
            };
            let record = Record {
                number: last + 1,
                writer: self.id,
                nonce: Uuid::new_v4(),
                after,
                at: None,
                events: Vec::new(),
                admitted: 0,
                snapshot: false,
                offered: jobs.to_vec(),
            };
            match put(&self.log, &record, &self.options).await? {
                Put::Ours(_) => {
                    if !self.is_trusted(last, seen).await {
                        let what = format!("{}: written too late to be trusted", Log::path(record.number));
                        return Err(Error::new(ErrorKind::Unknown, what));
                    }
                    self.log.directory().inspect(|directory| directory.ring());
                    return Ok(true);
                }
                Put::Theirs(..) => {}
            }
        }
        let what = format!("log: others were first {RACES} times in a row");
        Err(Error::new(ErrorKind::Unavailable, what))
    }

    /// Whether a record that was just written after `last` is one that will be read.
    async fn is_trusted(&self, last: u64, seen: Instant) -> bool {
        let in_time = seen.elapsed() < self.options.sweep_age / 2;
        in_time
            && (self.log.directory().is_none()
                || is_swept_beyond(&self.log, last).await.is_ok_and(|swept| !swept))
    }
}
