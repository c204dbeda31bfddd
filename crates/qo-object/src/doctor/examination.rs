//! Reading every object of a namespace.

use super::{Damage, Health, SWEEP, of_format};
use crate::format::{self, Found};
use crate::log::{Log, number_of, numbered};
use crate::record::Record;
use crate::snapshot::{self, Covered, Snapshot, missing};
use object_store::path::Path;
use qo_core::{ErrorKind, Event, NewJob, Result, SnapshotRow, State};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the doctor waits for files of other processes, where they may show late.
const SHOWS_AFTER: Duration = Duration::from_secs(5);

/// Every object, read.
pub(super) struct Examination {
    pub(super) health: Health,
    /// The newest readable snapshot, and the records as far as they follow it.
    pub(super) state: State,
    pub(super) end: Covered,
    /// Offers up to there that no record admitted.
    pub(super) offers: Vec<NewJob>,
    /// Readable records behind that.
    pub(super) rest: BTreeMap<u64, Record>,
}

impl Examination {
    /// Reads everything, and reads it again if something is missing that may only show late.
    pub(super) async fn of(log: &Log) -> Result<Self> {
        let this = Self::at_once(log).await?;
        let shows_late = log.medium().marked_late().is_some();
        if this.health.is_usable() || !shows_late {
            return Ok(this);
        }
        tokio::time::sleep(SHOWS_AFTER).await;
        Self::at_once(log).await
    }

    async fn at_once(log: &Log) -> Result<Self> {
        // Read these before the records: what names a record is written after it.
        let Found { level, identity, damage, mark, holds, .. } = format::find(log).await?;
        let hold = format::held(log, &holds).await.unwrap_or_default();
        let archived = last_archived(log).await?;
        let mut damage: Vec<_> = damage.map(of_format).into_iter().collect();
        // Read them before the records: a snapshot is written after what it covers.
        let snapshots = log.numbers("snapshot").await?;
        for (newer, number) in snapshots.iter().rev().enumerate() {
            if let Err(error) = Snapshot::read(log, &snapshot::path(*number)).await {
                let hinders = (newer < 2).then_some(SWEEP);
                damage.push(Damage { hinders, ..Damage::new(error.message(), false) });
            }
        }
        let Snapshot { covered, state, .. } = Snapshot::newest(log).await?;
        let records = log.numbers("log").await?;
        let newest = snapshots.last().copied().unwrap_or(0);
        let last =
            records.last().copied().unwrap_or(0).max(covered.number).max(newest).max(mark).max(archived);
        if level.is_none() && last > 0 {
            let what = format!("{}: is missing", format::path());
            damage.push(Damage::new(what, true));
        }
        let health = Health {
            format: level,
            identity,
            mark,
            hold,
            records: records.len() as u64,
            snapshot: covered.number,
            last,
            damage,
        };
        let mut this = Self { health, state, end: covered, offers: Vec::new(), rest: BTreeMap::new() };
        // The next record that a reader needs.
        let mut next = covered.number + 1;
        for number in records {
            this.miss(next, number.saturating_sub(1));
            this.take(number, log.read(number).await)?;
            next = next.max(number + 1);
        }
        this.miss(next, last);
        this.miss_claims(log).await?;
        if !format::is_closed(&this.state) {
            // The rest of a hold that an operator has released.
            this.health.hold = None;
        }
        Ok(this)
    }

    /// The name of an attempt's log is the token of its claim. If no record granted that token, the claim is missing.
    /// Only such names are listed: there may be two weeks of others.
    async fn miss_claims(&mut self, log: &Log) -> Result<()> {
        let next = self.state.snapshot().find_map(|row| match row {
            SnapshotRow::Clock { next_token, .. } => Some(next_token),
            _ => None,
        });
        let Some(next) = next.filter(|_| self.health.is_usable()) else { return Ok(()) };
        let unknown = log.last_listed_after("attempt", next.saturating_sub(1)).await?;
        // The claim may have been made since this look began: read on.
        if let Some(token) = unknown
            && !self.is_claimed_since(log, token).await?
        {
            let what = format!(
                "records after {} are missing: {} is of a claim that no record tells",
                Log::path(self.health.last),
                numbered("attempt", token)
            );
            self.health.damage.push(Damage::new(what, true));
            // A repair writes behind all of them.
            self.health.last += 1;
        }
        Ok(())
    }

    /// Whether a record that was written since this look began has a claim with this token, or a later one.
    async fn is_claimed_since(&self, log: &Log, token: u64) -> Result<bool> {
        let mut number = self.health.last + 1;
        while let Some(record) = log.read(number).await? {
            let tokens = record.events.iter().filter_map(|event| match event {
                Event::Started { token, .. }
                | Event::Claimed { token, .. }
                | Event::SlotsTaken { token, .. } => Some(token.0),
                _ => None,
            });
            if tokens.max().is_some_and(|newest| newest >= token) {
                return Ok(true);
            }
            number += 1;
        }
        Ok(false)
    }

    /// Takes a record that was listed.
    fn take(&mut self, number: u64, read: Result<Option<Record>>) -> Result<()> {
        let needed = number > self.health.snapshot;
        let what = match read {
            Ok(Some(record)) if number == self.end.number + 1 && record.after == self.end.nonce => {
                record.events.iter().for_each(|event| self.state.evolve(event));
                self.offers.drain(..record.admitted.min(self.offers.len()));
                self.offers.extend(record.offered);
                self.end = Covered { number, nonce: record.nonce };
                return Ok(());
            }
            // A snapshot covers it, whether it is there or not.
            Ok(_) if !needed => return Ok(()),
            Ok(Some(record)) => {
                self.rest.insert(number, record);
                if number > self.end.number + 1 {
                    // The damage is before it.
                    return Ok(());
                }
                format!("{}: does not follow the record before it", Log::path(number))
            }
            Ok(None) => missing(number).message().to_owned(),
            Err(error) if error.kind() == ErrorKind::Data => error.message().to_owned(),
            Err(error) => return Err(error),
        };
        self.health.damage.push(Damage::new(what, needed));
        Ok(())
    }

    /// Reports records that are needed and missing, if any, as one range: there may be very many.
    fn miss(&mut self, first: u64, last: u64) {
        let what = match last.checked_sub(first) {
            None => return,
            Some(0) => missing(first).message().to_owned(),
            Some(_) => format!("{} to {}: are missing", Log::path(first), Log::path(last)),
        };
        self.health.damage.push(Damage::new(what, true));
    }
}

/// The last record after which a history segment was written; 0 if there is none.
async fn last_archived(log: &Log) -> Result<u64> {
    let after = |path: &Path| number_of(&Path::from(path.as_ref().split_once('-')?.0));
    Ok(log.medium().list("history").await?.iter().filter_map(after).max().unwrap_or(0))
}
