//! The doctor: is everything there that a reader needs, and if not, how does a damaged namespace get going again?
//!
//! What the log should hold is also known from beside it: a mark of how far it has reached, history segments,
//! and the logs of attempts, whose names are fence tokens that a record must have given. So a log without its last records
//! is not taken for a shorter one.
//!
//! A record that is torn, flipped or gone, and that no snapshot covers, stops every reader: going on without it would be
//! to make something up. [`repair`] goes on all the same, because somebody decided to, and says exactly what that cost:
//!
//! 1. it reads what can be read before the damage, and then what later records *say* about jobs, limits and pauses, which
//!    is submitted and set again;
//! 2. it closes `cluster`: a limit, a pause or a cancel may have been in what was lost, so nothing starts until an operator has
//!    [spoken](release);
//! 3. it writes the result as a snapshot in the place of the *last* record, under a fresh nonce, and one record after it: a
//!    process that still runs on what was lost finds that its log does not go on, and stops;
//! 4. it moves the records that were not used to `damaged/`. Nothing is deleted.

use crate::bucket::Bucket;
use crate::clock::StoreClock;
use crate::format::{self, Absent, Found, Hold, Identity};
use crate::log::{Created, Log, number_of, numbered};
use crate::record::Record;
use crate::slots;
use crate::snapshot::{self, Covered, Snapshot, missing};
use crate::store::{LogStore, Options, existing_log};
use object_store::path::Path;
use qo_core::{
    Answer, Clock, Command, Error, ErrorKind, Event, GroupRef, JobId, NewJob, OnLimit, Result, SnapshotRow,
    State, Store, Time, decide,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// More fence tokens than the records that were lost can have given.
const LOST_TOKENS: u64 = 1_000_000_000;

/// How long the doctor waits for files of other processes where they may show late.
const SHOWS_AFTER: Duration = Duration::from_secs(5);

/// What the doctor found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Health {
    /// The format of the namespace; none if it is new.
    pub format: Option<u64>,
    /// Which namespace it is; none if it is new.
    pub identity: Option<Identity>,
    /// The record that the log has reached at least, as its mark says; 0 if there is none.
    pub mark: u64,
    /// A repair lost records, and no operator has spoken since.
    pub hold: Option<Hold>,
    /// Records in the log.
    pub records: u64,
    /// The record up to which the newest snapshot that can be read reaches; 0 if there is none.
    pub snapshot: u64,
    /// The last record.
    pub last: u64,
    /// What is damaged or missing.
    pub damage: Vec<Damage>,
}

impl Health {
    /// Whether the namespace can be opened.
    pub fn is_usable(&self) -> bool {
        self.damage.iter().all(|damage| !damage.needed)
    }
}

/// Something that is damaged or missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// The object, and what is wrong with it.
    pub what: String,
    /// Whether a reader needs it.
    pub needed: bool,
    /// What does not work because of it although no reader needs it; none if that is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hinders: Option<&'static str>,
}

impl Damage {
    fn new(what: impl Into<String>, needed: bool) -> Self {
        Self { what: what.into(), needed, hinders: None }
    }
}

/// What an unreadable snapshot hinders while it is one of the two newest.
const SWEEP: &str = "no record that it covers is swept before two newer snapshots can be read";
/// What a damaged format object hinders.
const IDENTITY: &str = "no process can tell this namespace from another one in its place; stop all workers, then: \
                        qo doctor --repair, which makes the object anew";

/// What a repair did, and what it cost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Repair {
    /// Records whose content is not known: what was decided in them is lost.
    pub lost: Vec<String>,
    /// Records after the first lost one. They can be read, but what they decided rests on what was lost.
    pub not_used: u64,
    /// Jobs that only those records knew, or that had been offered and were not decided about, submitted again.
    pub submitted_again: Vec<JobId>,
    /// Jobs that only those records knew, and that were not submitted again, with the reason.
    pub not_submitted: Vec<(JobId, String)>,
    /// Jobs that had ended by those records; they are known from before, and will run again.
    pub runs_again: Vec<JobId>,
    /// Limits, pauses and switches of schedules that those records set, set again.
    pub set_again: Vec<String>,
    /// Where what was not used is now.
    pub moved: Vec<String>,
    /// The namespace is on hold: what was lost may have been a limit. None if no record was lost.
    pub hold: Option<Hold>,
}

/// Looks at every object of the namespace in a directory. It changes nothing, and makes nothing: `NotFound` if there is no
/// such directory.
pub async fn examine(directory: impl AsRef<std::path::Path>) -> Result<Health> {
    Ok(Examination::of(&existing_log(directory.as_ref())?).await?.health)
}

/// Gets a damaged namespace in a directory going again. `Conflict` if there is nothing to repair. Stop all workers first:
/// those that run stop by themselves, with an error.
pub async fn repair(directory: impl AsRef<std::path::Path>) -> Result<Repair> {
    repair_log(&existing_log(directory.as_ref())?).await
}

/// The format level of a directory's namespace, and the one that this release works with.
pub async fn format_levels(directory: impl AsRef<std::path::Path>) -> Result<(Option<u64>, u64)> {
    let level = format::level(&existing_log(directory.as_ref())?).await?;
    Ok((level, crate::record::LEVEL.into()))
}

/// Looks at every object of the namespace in a bucket, and tries out whether its server can be relied upon, for a log and,
/// where there are some or were tried out, for slots. It changes nothing: what the trial writes it deletes.
pub async fn examine_bucket(bucket: &Bucket) -> Result<Health> {
    let log = bucket_log(bucket).await?;
    match slots::are_used(log.medium().object_store()).await? {
        true => slots::try_out(bucket, log.medium().object_store()).await?,
        false => bucket.probe(log.medium().object_store()).await?,
    }
    Ok(Examination::of(&log).await?.health)
}

/// Tries out whether the credentials may write to a bucket, and delete what they wrote. It leaves nothing behind, unless they
/// may write and not delete. `Invalid` if they may not write.
pub async fn may_write_to_bucket(bucket: &Bucket) -> Result<MayWrite> {
    let log = bucket_log(bucket).await?;
    let path = Path::from(format!("probe/{}", Uuid::new_v4()));
    match log.create(&path, Vec::new()).await {
        Created::Done => {}
        Created::Exists => return Ok(MayWrite::NotKnown(format!("{path}: it exists, although it is new"))),
        Created::Refused(error) => return Err(error),
        Created::Unknown(why) => return Ok(MayWrite::NotKnown(why)),
    }
    Ok(match log.medium().delete(&path).await {
        Ok(()) => MayWrite::AndDelete,
        Err(error) => MayWrite::NotDelete(error.message().to_owned()),
    })
}

/// What credentials may do besides reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MayWrite {
    /// Write and delete.
    AndDelete,
    /// Write; to delete was refused, or failed, for this reason.
    NotDelete(String),
    /// It cannot be told, for this reason.
    NotKnown(String),
}

/// Gets a damaged namespace in a bucket going again; see [`repair`].
pub async fn repair_bucket(bucket: &Bucket) -> Result<Repair> {
    repair_log(&bucket_log(bucket).await?).await
}

/// The format level of a bucket's namespace, and the one that this release works with.
pub async fn format_levels_of_bucket(bucket: &Bucket) -> Result<(Option<u64>, u64)> {
    let level = format::level(&bucket_log(bucket).await?).await?;
    Ok((level, crate::record::LEVEL.into()))
}

/// What is known of the namespace in a directory without reading its log. `NotFound` if there is no such directory, none if
/// there is no namespace in it.
pub async fn namespace(directory: impl AsRef<std::path::Path>) -> Result<Option<Namespace>> {
    Namespace::of(&existing_log(directory.as_ref())?).await
}

/// What is known of the namespace in a bucket without reading its log; none if there is none.
pub async fn namespace_of_bucket(bucket: &Bucket) -> Result<Option<Namespace>> {
    Namespace::of(&bucket_log(bucket).await?).await
}

/// An operator has spoken: ends the hold of a namespace in a directory, and puts back the operator's limit of `cluster`.
/// Returns what had been lost; none if the namespace is not on hold.
pub async fn release(directory: impl AsRef<std::path::Path>) -> Result<Option<Hold>> {
    let options = Options { absent: Absent::NotFound, ..Options::default() };
    let store = LogStore::open_directory(directory.as_ref(), options).await?;
    let log = existing_log(directory.as_ref())?;
    let hold = reopen(&log, &store).await?;
    format::end_holds(&log).await.map(|()| hold)
}

/// Ends the hold of a namespace in a bucket; see [`release`].
pub async fn release_bucket(bucket: &Bucket) -> Result<Option<Hold>> {
    let options = Options { absent: Absent::NotFound, ..Options::bucket() };
    let store = LogStore::open_bucket(bucket, options).await?;
    let log = bucket_log(bucket).await?;
    let hold = reopen(&log, &store).await?;
    store.finish().await;
    format::end_holds(&log).await.map(|()| hold)
}

/// Opens `cluster` again, as far as it was open before the hold. None if it is not closed: a hold that is there all the same was
/// left behind, and must not undo what an operator has set since.
async fn reopen(log: &Log, store: &LogStore) -> Result<Option<Hold>> {
    let Found { holds, .. } = format::find(log).await?;
    let Some(hold) = format::held(log, &holds).await? else { return Ok(None) };
    let cluster = store.group(GroupRef::Cluster).await;
    if !cluster.is_ok_and(|group| group.status.sources.operator == Some(0)) {
        return Ok(None);
    }
    match hold.cluster {
        Some(limit) => store.set_limit(GroupRef::Cluster, limit).await?,
        None => store.unset_limit(GroupRef::Cluster).await?,
    }
    Ok(Some(hold))
}

/// What is known of a namespace without reading its log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Namespace {
    /// Which one it is; none if its format object is missing or damaged.
    pub identity: Option<Identity>,
    /// What is wrong with its format object, if that is damaged.
    pub damage: Option<Damage>,
    /// A repair lost records. The namespace is on hold if the limit of `cluster` is 0.
    pub hold: Option<Hold>,
}

impl Namespace {
    async fn of(log: &Log) -> Result<Option<Self>> {
        let Found { level, identity, damage, mark, holds, .. } = format::find(log).await?;
        let is_there = level.is_some()
            || mark > 0
            || !log.numbers("log").await?.is_empty()
            || !log.numbers("snapshot").await?.is_empty();
        let hold = format::held(log, &holds).await?;
        let damage = damage.map(of_format);
        Ok(is_there.then_some(Self { identity, damage, hold }))
    }
}

fn of_format(what: String) -> Damage {
    Damage { hinders: Some(IDENTITY), ..Damage::new(what, false) }
}

async fn bucket_log(bucket: &Bucket) -> Result<Log> {
    let traffic = Arc::default();
    let log = Log::in_bucket(bucket.objects(&traffic)?, traffic).at(bucket);
    bucket.check(log.medium().object_store()).await?;
    Ok(log)
}

/// Every object, read.
struct Examination {
    health: Health,
    /// The newest state that can be read, and then as far as the records follow.
    state: State,
    end: Covered,
    /// Jobs that light clients offered by then, and that nobody has decided about.
    offers: Vec<NewJob>,
    /// Records behind that which can be read.
    rest: BTreeMap<u64, Record>,
}

impl Examination {
    /// Looks, and looks again if something is missing that may only show late.
    async fn of(log: &Log) -> Result<Self> {
        let this = Self::at_once(log).await?;
        let shows_late = log.medium().marked_late().is_some();
        if this.health.is_usable() || !shows_late {
            return Ok(this);
        }
        tokio::time::sleep(SHOWS_AFTER).await;
        Self::at_once(log).await
    }

    async fn at_once(log: &Log) -> Result<Self> {
        // Before the records: what speaks of a record is written after it.
        let Found { level, identity, damage, mark, holds, .. } = format::find(log).await?;
        let hold = format::held(log, &holds).await.unwrap_or_default();
        let archived = last_archived(log).await?;
        let mut damage: Vec<_> = damage.map(of_format).into_iter().collect();
        // Before the records: a snapshot is written after what it covers.
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
            // What is left of a hold that an operator has ended.
            this.health.hold = None;
        }
        Ok(this)
    }

    /// The log of an attempt is called by the token of its claim. If the log knows no such token, the claim is missing. Only
    /// such names are listed: there may be two weeks of others.
    async fn miss_claims(&mut self, log: &Log) -> Result<()> {
        let next = self.state.snapshot().find_map(|row| match row {
            SnapshotRow::Clock { next_token, .. } => Some(next_token),
            _ => None,
        });
        let Some(next) = next.filter(|_| self.health.is_usable()) else { return Ok(()) };
        let unknown = log.last_listed_after("attempt", next.saturating_sub(1)).await?;
        // Claimed since this look began: the records are read on.
        if let Some(token) = unknown
            && !self.is_claimed_since(log, token).await?
        {
            let what = format!(
                "records after {} are missing: {} is of a claim that no record tells",
                Log::path(self.health.last),
                numbered("attempt", token)
            );
            self.health.damage.push(Damage::new(what, true));
            // A repair writes where none of them was.
            self.health.last += 1;
        }
        Ok(())
    }

    /// Whether a record that was written since this look began tells of a claim with this token, or a later one.
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

    /// One record that is there, or was a moment ago.
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
                    // What is wrong is before it.
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

    /// Records that are needed and not there, if any: there may be very many.
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

async fn repair_log(log: &Log) -> Result<Repair> {
    let Examination { mut health, mut state, end, offers, rest } = Examination::of(log).await?;
    let mut remade = Vec::new();
    let is_format = |damage: &Damage| damage.what.starts_with(format::path().as_ref());
    if let Some(damage) = health.damage.iter().find(|damage| is_format(damage)) {
        remade.push(format!("{}: made anew, with another identity", damage.what));
        let mut repair = Repair::default();
        set_aside(log, &format::path(), &mut repair).await?;
        format::make(log).await?;
        health.damage.retain(|damage| !is_format(damage));
        if health.is_usable() {
            // No record was lost.
            return Ok(Repair { lost: remade, ..repair });
        }
    }
    if health.is_usable() {
        return Err(Error::new(
            ErrorKind::Conflict,
            "store: nothing to repair: everything that is needed is there",
        ));
    }
    let now = StoreClock::ask(log.medium()).await?.now().max(state.now());
    let needed = health.damage.iter().filter(|damage| damage.needed);
    let mut repair = Repair {
        lost: remade.into_iter().chain(needed.map(|damage| damage.what.clone())).collect(),
        not_used: rest.len() as u64,
        ..Repair::default()
    };
    salvage(&mut state, now, offers, rest.values(), &mut repair);
    let hold = close(&mut state, now, health.hold.as_ref(), &repair.lost)?;
    let state = with_fresh_tokens(&state)?;
    // First: what is closed without it would look like a limit of an operator.
    format::hold(log, health.last, &hold).await?;
    repair.hold = Some(hold);

    // In the place of the last record, under a nonce that nobody knows. Snapshots that cannot be read are in the way.
    let covered = Covered { number: health.last, nonce: Uuid::new_v4() };
    for number in log.numbers("snapshot").await?.into_iter().filter(|number| *number > health.snapshot) {
        set_aside(log, &snapshot::path(number), &mut repair).await?;
    }
    let written = log.create(&snapshot::path(covered.number), snapshot::encode(covered, &state)?).await;
    if let Created::Refused(error) = written {
        return Err(error);
    }
    if written != Created::Done {
        let what = format!("{}: could not be written: try again", snapshot::path(covered.number));
        return Err(Error::new(ErrorKind::Unknown, what));
    }
    let record = Record {
        number: covered.number + 1,
        writer: Uuid::new_v4(),
        nonce: Uuid::new_v4(),
        after: covered.nonce,
        at: Some(now),
        events: vec![Event::Ticked(now)],
        admitted: 0,
        offered: Vec::new(),
        snapshot: false,
    };
    if log.create(&Log::path(record.number), record.encode()?).await != Created::Done {
        let what =
            format!("{}: somebody is writing: stop all workers and repair again", Log::path(record.number));
        return Err(Error::new(ErrorKind::Conflict, what));
    }
    format::mark(log, record.number).await;
    let not_used = log.numbers("log").await?.into_iter();
    for number in not_used.filter(|number| (end.number + 1..=covered.number).contains(number)) {
        set_aside(log, &Log::path(number), &mut repair).await?;
    }
    Ok(repair)
}

/// Closes `cluster`, and remembers what an operator had set there. What was lost may have been a limit, a pause or a cancel
/// of any group, so nothing may start.
fn close(state: &mut State, now: Time, before: Option<&Hold>, lost: &[String]) -> Result<Hold> {
    const MOST: usize = 20;
    let cluster = state.group(&GroupRef::Cluster).ok().and_then(|group| group.status.sources.operator);
    // A namespace that is on hold already remembers what was set before that.
    let cluster = match before {
        Some(before) if cluster == Some(0) => before.cluster,
        _ => cluster,
    };
    decide(state, now, &Command::SetLimit(GroupRef::Cluster, 0))?;
    Ok(Hold { at: now, lost: lost.iter().take(MOST).cloned().collect(), cluster })
}

/// A state that gives no fence token which a lost record may have given: whoever holds one of those must not own what
/// another has claimed since (G2).
fn with_fresh_tokens(state: &State) -> Result<State> {
    let rows = state.snapshot().map(|row| match row {
        SnapshotRow::Clock { now, next_number, next_token, retention } => {
            let next_token = next_token.saturating_add(LOST_TOKENS);
            SnapshotRow::Clock { now, next_number, next_token, retention }
        }
        row => row,
    });
    State::restore(rows)
}

/// Moves an object to `damaged/`, if it is there.
async fn set_aside(log: &Log, path: &Path, repair: &mut Repair) -> Result<()> {
    let Some(bytes) = log.medium().get(path).await? else { return Ok(()) };
    let aside = Path::from(format!("damaged/{path}-{}", Uuid::new_v4().simple()));
    match log.create(&aside, bytes).await {
        Created::Done => {}
        Created::Exists | Created::Refused(_) | Created::Unknown(_) => {
            return Err(Error::new(ErrorKind::Unavailable, format!("{aside}: could not be written")));
        }
    }
    log.medium().delete(path).await?;
    repair.moved.push(aside.to_string());
    Ok(())
}

/// Takes over what records say that does not rest on what was lost.
fn salvage<'a>(
    state: &mut State,
    now: Time,
    offers: Vec<NewJob>,
    records: impl Iterator<Item = &'a Record>,
    repair: &mut Repair,
) {
    let mut order: Vec<JobId> = offers.iter().map(|job| job.id).collect();
    let mut jobs: BTreeMap<JobId, Arc<NewJob>> =
        offers.into_iter().map(|job| (job.id, Arc::new(job))).collect();
    let mut ended = BTreeSet::new();
    for record in records {
        let offered = record.offered.iter().map(|job| Arc::new(job.clone()));
        let accepted = record.events.iter().filter_map(|event| match event {
            // What went without saying then may not be so now: the task may have another group since.
            Event::Accepted(job) => Some(Arc::new(NewJob {
                group: Some(job.group.clone().unwrap_or_else(|| job.task.clone())),
                run_at: job.run_at.or(record.at),
                ..(**job).clone()
            })),
            _ => None,
        });
        for job in offered.chain(accepted) {
            order.push(job.id);
            jobs.insert(job.id, job);
        }
        for event in &record.events {
            ended.extend(ended_by(event));
            if let Event::Reopened { job, .. } = event {
                ended.remove(job);
            }
            if let Some((said, command)) = set_by(event)
                && decide(state, now, &command).is_ok()
            {
                repair.set_again.push(said);
            }
        }
    }
    for id in order {
        let Some(job) = jobs.remove(&id) else { continue };
        if state.job(id).is_ok() {
            continue;
        }
        if ended.contains(&id) {
            repair.not_submitted.push((id, "it had ended, and nobody knows it any more".into()));
            continue;
        }
        // It was accepted once: no limit may refuse it now.
        let job = NewJob { on_limit: OnLimit::Wait, ..NewJob::clone(&job) };
        match decide(state, now, &Command::Submit(vec![job])).map(|decision| decision.answer) {
            Ok(Answer::Submitted(submitted)) if submitted.iter().all(Result::is_ok) => {
                repair.submitted_again.push(id);
            }
            Ok(answer) => repair.not_submitted.push((id, format!("{answer:?}"))),
            Err(error) => repair.not_submitted.push((id, error.to_string())),
        }
    }
    let live = |id: &JobId| state.job(*id).is_ok_and(|job| !job.view.state.is_terminal());
    repair.runs_again = ended.into_iter().filter(live).collect();
}

fn ended_by(event: &Event) -> Option<JobId> {
    match event {
        Event::AttemptEnded(ended) if ended.then.is_terminal() => Some(ended.job),
        Event::Dropped { job, .. } | Event::Forgotten(job) => Some(*job),
        _ => None,
    }
}

/// What an operator had set, in words and as a command.
fn set_by(event: &Event) -> Option<(String, Command)> {
    Some(match event {
        Event::LimitSet { group, limit: Some(limit) } => {
            (format!("limit of {group}: {limit}"), Command::SetLimit(group.clone(), *limit))
        }
        Event::LimitSet { group, limit: None } => {
            (format!("limit of {group}: none"), Command::UnsetLimit(group.clone()))
        }
        Event::QueuePaused { queue, paused } => {
            let said = if *paused { "paused" } else { "resumed" };
            (format!("queue {queue}: {said}"), Command::PauseQueue(queue.clone(), *paused))
        }
        Event::ScheduleEnabled { schedule, enabled } => {
            let said = if *enabled { "enabled" } else { "disabled" };
            (format!("schedule {schedule}: {said}"), Command::EnableSchedule(schedule.clone(), *enabled))
        }
        _ => return None,
    })
}
