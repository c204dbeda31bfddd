//! The log: numbered objects, each created once and never changed.

use crate::directory::{self, Directory, NEEDS_RIGHTS};
use crate::format::{self, Identity};
use crate::record::Record;
use crate::snapshot::missing;
use crate::traffic::{Dated, Traffic};
use futures::{StreamExt, TryStreamExt};
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, path::Path};
use qo_core::{Error, ErrorKind, Result, Time};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;
use uuid::Uuid;

/// Objects that are deleted with one request, at most.
const DELETED_AT_ONCE: usize = 1_000;

/// Answers that must agree, most of them, before a process believes that it has slept.
const CONFIRMATIONS: usize = 5;

/// How long a file that another process has made may be invisible on a file system of another machine.
const SHOWS_AFTER_MS: u64 = 60_000;

/// The last number that an object can have. What is called by a larger one is not qo's.
const LAST: u64 = u64::MAX >> 1;

/// The objects of one namespace.
#[derive(Debug, Clone)]
pub struct Log {
    objects: Arc<dyn ObjectStore>,
    /// The same objects, without waiting for the disk: for what may be lost when the machine crashes.
    unsynced: Arc<dyn ObjectStore>,
    directory: Option<Arc<Directory>>,
    /// What goes to a bucket and comes back.
    traffic: Option<Arc<Traffic>>,
    /// The bucket and the prefix, for people.
    place: Option<Arc<str>>,
    /// Which namespace was opened.
    identity: Arc<OnceLock<Identity>>,
}

/// What became of an attempt to create an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    /// It is there, and it is ours.
    Done,
    /// There was one already. It may be ours all the same, if an earlier attempt succeeded and its answer was lost:
    /// the nonce tells.
    Exists,
    /// It is not there, and will not be: the store refuses to write it.
    Refused(Error),
    /// Nobody knows.
    Unknown(String),
}

impl Log {
    /// The log in an object store.
    pub fn new(objects: Arc<dyn ObjectStore>) -> Self {
        Self {
            unsynced: Arc::clone(&objects),
            objects,
            directory: None,
            traffic: None,
            place: None,
            identity: Arc::default(),
        }
    }

    /// The log in a bucket.
    pub(crate) fn in_bucket(objects: Arc<dyn ObjectStore>, traffic: Arc<Traffic>) -> Self {
        Self { traffic: Some(traffic), ..Self::new(objects) }
    }

    /// The same log, which says where it is when something is wrong.
    pub(crate) fn at(self, place: impl std::fmt::Display) -> Self {
        Self { place: Some(place.to_string().into()), ..self }
    }

    /// The log in a directory.
    pub(crate) fn in_directory(
        objects: Arc<dyn ObjectStore>,
        unsynced: Arc<dyn ObjectStore>,
        directory: Directory,
    ) -> Self {
        Self { unsynced, directory: Some(Arc::new(directory)), ..Self::new(objects) }
    }

    pub(crate) fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.objects
    }

    pub(crate) fn traffic(&self) -> Option<&Arc<Traffic>> {
        self.traffic.as_ref()
    }

    pub(crate) fn directory(&self) -> Option<&Directory> {
        self.directory.as_deref()
    }

    /// The same log, of which another handle knows which namespace it is.
    pub(crate) fn knowing(self, other: &Self) -> Self {
        Self { identity: Arc::clone(&other.identity), ..self }
    }

    /// Which namespace was opened, as soon as that is known.
    pub(crate) fn identity(&self) -> Option<Identity> {
        self.identity.get().copied()
    }

    /// Compares what was found with what was opened; the first one that is found is the one that was opened. `Data` if it is
    /// another namespace.
    pub(crate) fn recognise(&self, found: Identity) -> Result<()> {
        let opened = *self.identity.get_or_init(|| found);
        let is_same = match (opened.id, found.id) {
            (Some(opened), Some(found)) => opened == found,
            (None, None) => opened.made_at == found.made_at,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !is_same {
            return Err(format::another(opened, found));
        }
        self.directory().map_or(Ok(()), |directory| directory.moved_into(opened))
    }

    /// How far the log of a directory has reached, as its mark says; 0 elsewhere.
    pub(crate) fn directory_mark(&self) -> u64 {
        self.directory().map_or(0, Directory::marked)
    }

    /// A record is missing. On a file system of another machine it may only show late: as long as the mark is fresh the error is
    /// `Unavailable`, which the caller tries again, and not `Data`.
    pub(crate) async fn late_or(&self, error: Error) -> Error {
        let marked =
            self.directory().filter(|_| error.kind() == ErrorKind::Data).and_then(Directory::marked_late);
        let Some(marked) = marked.map(time_of) else { return error };
        match self.store_time().await {
            Ok(now) if now.ms_since(marked) < SHOWS_AFTER_MS => {
                let why = "it may only show late, because the file system is on another machine: try again";
                Error::new(ErrorKind::Unavailable, format!("{}; {why}", error.message()))
            }
            Ok(_) | Err(_) => error,
        }
    }

    /// Whether a directory is still the one that was opened.
    pub(crate) fn still_there(&self) -> Result<()> {
        self.directory().map_or(Ok(()), Directory::still_there)
    }

    /// The object of a record.
    pub fn path(number: u64) -> Path {
        numbered("log", number)
    }

    /// Reads a record, if it is there. `Data` if it is damaged, `Unavailable` if the objects cannot be reached.
    pub async fn read(&self, number: u64) -> Result<Option<Record>> {
        Ok(self.read_sized(number).await?.map(|(record, _)| record))
    }

    /// Reads a record and says how many bytes it has.
    pub(crate) async fn read_sized(&self, number: u64) -> Result<Option<(Record, usize)>> {
        let path = Self::path(number);
        let bytes = match &self.directory {
            Some(directory) => directory.read(path.as_ref())?,
            None => self.get(&path).await?,
        };
        let Some(bytes) = bytes else { return Ok(None) };
        let (record, bytes) = match (Record::decode(path.as_ref(), &bytes), &self.directory) {
            (Ok(record), _) => (record, bytes),
            (Err(error), Some(_)) => return Err(error),
            // What was damaged on its way is whole the next time.
            (Err(_), None) => {
                let Some(bytes) = self.get(&path).await? else { return Ok(None) };
                (Record::decode(path.as_ref(), &bytes)?, bytes)
            }
        };
        if record.number != number {
            let what = format!("{path}: is damaged: it says that it is record {}", record.number);
            return Err(Error::new(ErrorKind::Data, what));
        }
        Ok(Some((record, bytes.len())))
    }

    /// The last record, if the log has any after `covered`. The log has no gaps and grows at its end only, so a few
    /// looks find it, however long it is.
    pub(crate) async fn last_after(&self, covered: u64) -> Result<u64> {
        if self.directory.is_none() {
            return self.last_far_after(covered).await;
        }
        let (mut there, mut step) = (covered, 1);
        while self.exists(&Self::path(there + step)).await? {
            there += step;
            step *= 2;
        }
        // `there` is there (or covered), `there + step` is not.
        while step > 1 {
            step /= 2;
            if self.exists(&Self::path(there + step)).await? {
                there += step;
            }
        }
        Ok(there)
    }

    /// The same where every look takes a while: several are made at once. Twelve find a step that is too large, seven leave an
    /// eighth of it.
    async fn last_far_after(&self, covered: u64) -> Result<u64> {
        const STEPS: u32 = 12;
        const PARTS: u64 = 8;
        let (mut there, mut step) = (covered, 1);
        loop {
            let steps: Vec<u64> = (0..STEPS).map(|power| step << power).collect();
            let found = self.how_many_exist(steps.iter().map(|step| covered + step)).await?;
            there = found.checked_sub(1).map_or(there, |last| covered + steps[last]);
            step = steps.get(found).copied().unwrap_or(step << STEPS);
            if found < steps.len() {
                break;
            }
        }
        // `there` is there (or covered), `absent` is not.
        let mut absent = covered + step;
        while absent - there > 1 {
            let width = (absent - there).div_ceil(PARTS);
            let numbers: Vec<u64> =
                (1..PARTS).map(|part| there + part * width).take_while(|number| *number < absent).collect();
            let found = self.how_many_exist(numbers.iter().copied()).await?;
            absent = numbers.get(found).copied().unwrap_or(absent);
            there = found.checked_sub(1).map_or(there, |last| numbers[last]);
        }
        Ok(there)
    }

    /// How many of these records are there, up to the first that is not.
    async fn how_many_exist(&self, numbers: impl Iterator<Item = u64>) -> Result<usize> {
        let paths: Vec<Path> = numbers.map(Self::path).collect();
        let looks = futures::future::try_join_all(paths.iter().map(|path| self.exists(path))).await?;
        Ok(looks.iter().take_while(|exists| **exists).count())
    }

    /// Checks that a directory holds every record after `covered` up to `last`, and none behind it. What seems to be the last
    /// record may be the one before or behind a gap, and to write there would be to acknowledge what no reader gets to. In a
    /// directory that can be seen at once. `Data` if a record is missing.
    pub(crate) async fn check_whole(&self, covered: u64, last: u64) -> Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let numbered = |name: String| number_of(&Path::from(format!("log/{name}")));
        let there: BTreeSet<u64> = directory.names("log").await?.into_iter().filter_map(numbered).collect();
        let within = (covered + 1..=last).filter(|number| !there.contains(number));
        // Another process may have written while this one looked: then the next one is there by now.
        let behind = there.last().filter(|there| **there > last + 1).map(|_| last + 1);
        for number in within.chain(behind) {
            // A listing may be late.
            if !self.exists(&Self::path(number)).await? {
                return Err(missing(number));
            }
        }
        Ok(())
    }

    pub(crate) async fn exists(&self, path: &Path) -> Result<bool> {
        if let Some(directory) = &self.directory {
            return directory.has(path.as_ref());
        }
        match self.objects.head(path).await {
            Ok(_) => Ok(true),
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(unavailable(path, &error)),
        }
    }

    /// Creates a record unless there is one. In a directory this waits for the disk where it is called: it is for the thread
    /// of a log alone.
    pub(crate) async fn create_record(&self, number: u64, bytes: Vec<u8>) -> Created {
        let path = Self::path(number);
        match &self.directory {
            None => self.create(&path, bytes).await,
            Some(directory) => match directory.still_there() {
                Ok(()) => {
                    let created = directory.create_record(path.as_ref(), &bytes);
                    if created == Created::Done {
                        directory.mark(number);
                    }
                    created
                }
                Err(error) => Created::Unknown(error.message().to_owned()),
            },
        }
    }

    /// Creates an object unless there is one.
    pub async fn create(&self, path: &Path, bytes: Vec<u8>) -> Created {
        if let Err(error) = self.still_there() {
            return Created::Unknown(error.message().to_owned());
        }
        let once = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.objects.put_opts(path, bytes.into(), once).await {
            Ok(_) => Created::Done,
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                Created::Exists
            }
            Err(error) if is_denied(&error) => Created::Refused(unavailable(path, &error)),
            Err(error) if is_refused(&error) => {
                Created::Refused(refused(self.place.as_deref().unwrap_or("store"), &error))
            }
            Err(error) => Created::Unknown(said(&error)),
        }
    }

    /// Writes an object, whether there is one or not. Nothing may rest on it.
    pub(crate) async fn replace(&self, path: &Path, bytes: Vec<u8>) {
        if let Err(error) = self.objects.put(path, bytes.into()).await {
            tracing::debug!("{path}: {}", said(&error));
        }
    }

    /// Writes an object, whether there is one or not. A crash of the machine may undo that.
    pub(crate) async fn write(&self, path: &Path, bytes: Vec<u8>) -> Result<()> {
        self.still_there()?;
        self.unsynced.put(path, bytes.into()).await.map_err(|error| unavailable(path, &error))?;
        Ok(())
    }

    /// The bytes of an object, if it is there.
    pub async fn get(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        Ok(self.get_stamped(path).await?.map(|(bytes, _)| bytes))
    }

    /// The bytes of an object, if it is there, and when the store says that it was written.
    pub(crate) async fn get_stamped(&self, path: &Path) -> Result<Option<(Vec<u8>, Time)>> {
        let found = match self.objects.get(path).await {
            Ok(found) => found,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(unavailable(path, &error)),
        };
        let stamp = stamp(&found.meta);
        match found.bytes().await {
            Ok(bytes) => Ok(Some((bytes.to_vec(), stamp))),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(unavailable(path, &error)),
        }
    }

    /// The names in a folder, in order.
    pub async fn list(&self, folder: &str) -> Result<Vec<Path>> {
        Ok(self.list_aged(folder).await?.into_iter().map(|(path, _)| path).collect())
    }

    /// The names in a folder, in order, each with the time at which the store says that it was written.
    pub(crate) async fn list_aged(&self, folder: &str) -> Result<Vec<(Path, Time)>> {
        if let Some(directory) = &self.directory {
            let files = directory.files(folder).await?.into_iter();
            let objects = files.filter(|(name, _)| !is_staged(name)).filter_map(|(name, written)| {
                Some((Path::parse(format!("{folder}/{name}")).ok()?, time_of(written)))
            });
            let mut aged: Vec<_> = objects.collect();
            aged.sort();
            return Ok(aged);
        }
        let folder = Path::from(folder);
        let listing = self.objects.list(Some(&folder)).try_collect::<Vec<_>>().await;
        let listing = match listing {
            Ok(listing) => listing,
            Err(error) if is_absent(&error) => Vec::new(),
            Err(error) => return Err(unavailable(&folder, &error)),
        };
        let mut aged: Vec<_> =
            listing.into_iter().map(|meta| (meta.location.clone(), stamp(&meta))).collect();
        aged.sort();
        Ok(aged)
    }

    /// The numbers of the numbered objects in a folder, in order, each with the time at which it was written. What has
    /// another name is not qo's.
    pub(crate) async fn numbers_aged(&self, folder: &str) -> Result<Vec<(u64, Time)>> {
        let listed = self.list_aged(folder).await?.into_iter();
        Ok(listed.filter_map(|(path, written)| Some((number_of(&path)?, written))).collect())
    }

    /// The number of the last object of a folder that is listed after this one, if there is any. A listing may be late.
    pub(crate) async fn last_listed_after(&self, folder: &str, number: u64) -> Result<Option<u64>> {
        if let Some(directory) = &self.directory {
            // Their names alone: there may be very many.
            let names = directory.names(folder).await?.into_iter();
            let numbers = names.filter_map(|name| number_of(&Path::from(format!("{folder}/{name}"))));
            return Ok(numbers.max().filter(|last| *last > number));
        }
        let (folder, offset) = (Path::from(folder), numbered(folder, number));
        let mut listing = self.objects.list_with_offset(Some(&folder), &offset);
        let mut last = None;
        while let Some(meta) = listing.next().await {
            let meta = meta.map_err(|error| unavailable(&folder, &error))?;
            last = last.max(number_of(&meta.location));
        }
        Ok(last)
    }

    /// The last record of a bucket's log, as a listing tells, and a look at whether there is another behind it: a listing may
    /// be late. `Data` if a record after `covered` is missing: to write behind it would be to acknowledge what no reader
    /// gets to.
    pub(crate) async fn listed_end(&self, covered: u64) -> Result<u64> {
        let (folder, offset) = (Path::from("log"), Self::path(covered));
        let mut listing = self.objects.list_with_offset(Some(&folder), &offset);
        let mut next = covered + 1;
        while let Some(meta) = listing.next().await {
            let meta = meta.map_err(|error| unavailable(&folder, &error))?;
            let Some(number) = number_of(&meta.location) else { continue };
            // A listing may be late.
            while next < number {
                if !self.exists(&Self::path(next)).await? {
                    return Err(missing(next));
                }
                next += 1;
            }
            next = number + 1;
        }
        match self.exists(&Self::path(next)).await? {
            true => self.last_far_after(next).await,
            false => Ok(next - 1),
        }
    }

    /// The numbers of the numbered objects in a folder, in order.
    pub(crate) async fn numbers(&self, folder: &str) -> Result<Vec<u64>> {
        Ok(self.numbers_aged(folder).await?.into_iter().map(|(number, _)| number).collect())
    }

    /// Deletes what processes that were killed had begun to write to a folder of a directory, if it is over: that is
    /// decided by the number of the object that it was to be, if it has one, and by when it was written.
    pub(crate) async fn clear(
        &self,
        folder: &str,
        is_over: impl Fn(Option<u64>, Time) -> bool,
    ) -> Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let staged = directory.files(folder).await?.into_iter().filter(|(name, _)| is_staged(name));
        let over = staged.filter(|(name, written)| {
            let object = name.rsplit_once('#').map(|(object, _)| Path::from(format!("{folder}/{object}")));
            is_over(object.as_ref().and_then(number_of), time_of(*written))
        });
        directory.remove_all(over.map(|(name, _)| format!("{folder}/{name}")).collect()).await
    }

    /// Deletes an object. That it is gone already is as good.
    pub(crate) async fn delete(&self, path: &Path) -> Result<()> {
        match self.objects.delete(path).await {
            Ok(()) => Ok(()),
            Err(error) if is_absent(&error) => Ok(()),
            Err(error) => Err(unavailable(path, &error)),
        }
    }

    /// Deletes objects, in order. In a directory at one go: a log that is busy lets nobody else have its thread for long, and
    /// files would come faster than they go.
    pub(crate) async fn delete_all(&self, paths: Vec<Path>) -> Result<()> {
        if let Some(directory) = &self.directory {
            return directory.remove_all(paths.iter().map(ToString::to_string).collect()).await;
        }
        // A bucket takes a thousand with one request. They go in pages, in order: a gap within one heals with the next sweep.
        for page in paths.chunks(DELETED_AT_ONCE) {
            let page: Vec<_> = page.iter().cloned().map(Ok).collect();
            let mut gone = self.objects.delete_stream(futures::stream::iter(page).boxed());
            while let Some(deleted) = gone.next().await {
                match deleted {
                    Err(error) if !is_absent(&error) => {
                        return Err(Error::new(
                            ErrorKind::Unavailable,
                            format!("sweeping: {}", said(&error)),
                        ));
                    }
                    Ok(_) | Err(_) => {}
                }
            }
        }
        Ok(())
    }

    /// When the store says that an object was written.
    pub(crate) async fn written_at(&self, path: &Path) -> Result<Option<Time>> {
        match self.objects.head(path).await {
            Ok(meta) => Ok(Some(stamp(&meta))),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(unavailable(path, &error)),
        }
    }

    /// The time that the store itself stamps on what is written to it now.
    pub(crate) async fn store_time(&self) -> Result<Time> {
        if let Some(time) = self.time_of_an_answer().await? {
            return Ok(time);
        }
        // A directory that is away would be made anew by the write.
        self.still_there()?;
        let path = Path::from(format!("clock/{}", Uuid::new_v4()));
        let written = self.objects.put(&path, Vec::new().into()).await;
        written.map_err(|error| unavailable(&path, &error))?;
        let stamped = self.written_at(&path).await;
        // Whoever sweeps finds it if this fails.
        self.delete(&path).await.ok();
        let gone = || Error::new(ErrorKind::Unavailable, format!("{path}: was written and is not there"));
        stamped?.ok_or_else(gone)
    }

    /// The date that the newest answer of a bucket bore, right or wrong; none if this is no bucket, or its answers bear none.
    pub(crate) fn date(&self) -> Option<Dated> {
        self.traffic.as_ref().and_then(|traffic| traffic.date())
    }

    /// The date that most of the newest answers of a bucket agree with.
    pub(crate) fn believed(&self) -> Option<Dated> {
        self.traffic.as_ref().and_then(|traffic| traffic.believed())
    }

    /// The same, if it rests on enough answers to set a clock by.
    pub(crate) fn settled(&self) -> Option<Dated> {
        self.traffic.as_ref().and_then(|traffic| traffic.settled())
    }

    /// The time of a bucket now, as most of the newest answers have it.
    pub(crate) fn believed_now(&self) -> Option<Time> {
        self.traffic.as_ref().and_then(|traffic| traffic.believed_now())
    }

    /// Asks a bucket until at least so many of its answers have borne a date, if they do.
    pub(crate) async fn hear_dates(&self, count: u64) -> Result<()> {
        let Some(traffic) = &self.traffic else { return Ok(()) };
        let missing = count.saturating_sub(traffic.dates_heard());
        let path = Path::from("clock/now");
        // At once: each is a question of its own, and nobody waits longer than for one.
        futures::future::try_join_all((0..missing).map(|_| self.exists(&path))).await.map(drop)
    }

    /// Whether so much time has passed at a bucket since it was `seen` there. A date that says so is confirmed by more
    /// answers: it may be wrong. Where answers bear no date nobody knows.
    pub(crate) async fn is_late_since(&self, seen: Option<Time>, age: Duration) -> bool {
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let (Some(traffic), Some(seen)) = (&self.traffic, seen) else { return false };
        let says_so = |dated: &Dated| dated.date.ms_since(seen) >= age_ms;
        if !traffic.date().is_some_and(|dated| says_so(&dated)) {
            return false;
        }
        let mut late = 1;
        for _ in 1..CONFIRMATIONS {
            // A question that fails says nothing: to be late is what is safe.
            let answered = self.exists(&Path::from("clock/now")).await.is_ok();
            late += usize::from(!answered || traffic.date().is_some_and(|dated| says_so(&dated)));
        }
        let is_late = late * 2 > CONFIRMATIONS;
        if is_late {
            traffic.believe_newest(CONFIRMATIONS);
        }
        is_late
    }

    /// The time of an answer that a bucket gives now: whatever is asked, it bears one.
    async fn time_of_an_answer(&self) -> Result<Option<Time>> {
        if self.traffic.is_none() {
            return Ok(None);
        }
        let asked = Instant::now();
        self.exists(&Path::from("clock/now")).await?;
        Ok(self.date().filter(|dated| dated.sent >= asked).and_then(|_| self.believed_now()))
    }

    /// Makes sure that every record that can be seen is on the disk: one that another process is just writing can be
    /// seen before it is.
    pub(crate) async fn sync(&self) -> Result<()> {
        match &self.directory {
            Some(directory) => directory.sync("log").await,
            None => Ok(()),
        }
    }
}

/// The object with this number in a folder. Numbers have 20 digits, so that names sort as numbers do.
pub(crate) fn numbered(folder: &str, number: u64) -> Path {
    Path::from(format!("{folder}/{number:020}"))
}

/// The number of a numbered object. None if it is not called exactly like one.
pub(crate) fn number_of(path: &Path) -> Option<u64> {
    let (folder, name) = path.as_ref().split_once('/')?;
    let number = name.parse().ok().filter(|number| *number <= LAST)?;
    (numbered(folder, number) == *path).then_some(number)
}

/// Whether a file is one that is still being written: such a one is called like the object that it is to be, and a
/// number. Nobody sees it as an object.
fn is_staged(name: &str) -> bool {
    let number = name.split_once('#').map(|(_, number)| number);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn time_of(written: SystemTime) -> Time {
    let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    Time::from_millis(match written.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => ms(after),
        Err(before) => -ms(before.duration()),
    })
}

fn stamp(meta: &ObjectMeta) -> Time {
    Time::from_millis(meta.last_modified.timestamp_millis())
}

/// An object cannot be reached: `Unavailable`, or `Invalid` if a directory refuses, which nothing but another right changes.
fn unavailable(path: &Path, error: &object_store::Error) -> Error {
    match is_denied(error) {
        true => Error::new(ErrorKind::Invalid, format!("{path}: {}: {NEEDS_RIGHTS}", said(error))),
        false => Error::new(ErrorKind::Unavailable, format!("{path}: {}", said(error))),
    }
}

/// Whether the operating system refused, and will again.
fn is_denied(error: &object_store::Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<std::io::Error>().is_some_and(directory::is_denied) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Whether an error says that an object is not there. That the bucket is not there is another matter: it must not look like a
/// log that has ended.
pub(crate) fn is_absent(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { .. }) && !said(error).contains("NoSuchBucket")
}

/// Whether a store refused a request, and nothing can have come of it: not of an earlier try of the same request either.
pub(crate) fn is_refused(error: &object_store::Error) -> bool {
    matches!(
        error,
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. }
    ) && !in_full(error).contains(" retries, max_retries")
}

/// Codes of S3 that say that credentials are wrong or have expired. Others come with the next rotation.
const BAD_CREDENTIALS: [&str; 7] = [
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "TokenRefreshRequired",
    "RequestTimeTooSkewed",
    "RequestExpired",
];

/// Whether an error says that credentials are not accepted.
pub(crate) fn are_credentials_bad(error: &object_store::Error) -> bool {
    let (code, _) = code_and_message(&in_full(error)).unwrap_or_default();
    BAD_CREDENTIALS.contains(&code.as_str())
}

/// What it means that a store refused a write. Nothing was written: `Invalid` if the right to write is missing, which nothing
/// but another right will change; `Unavailable` if the credentials are not accepted, which pass.
pub(crate) fn refused(place: &str, error: &object_store::Error) -> Error {
    let why = said(error);
    match are_credentials_bad(error) {
        true => {
            Error::new(ErrorKind::Unavailable, format!("{place}: the credentials are not accepted: {why}"))
        }
        false => {
            let what = format!(
                "{place}: the credentials may not write there, and nothing was written: they need s3:PutObject on {place}/*: {why}"
            );
            Error::new(ErrorKind::Invalid, what)
        }
    }
}

/// The code and the message of an answer of S3.
fn code_and_message(said: &str) -> Option<(String, String)> {
    let between = |before: &str, after: &str| {
        said.split_once(before)?.1.split_once(after).map(|(found, _)| found.trim().to_owned())
    };
    Some((between("<Code>", "</Code>")?, between("<Message>", "</Message>").unwrap_or_default()))
}

/// What an error says to people: of an answer of S3 its status, code and message, not the XML around them.
pub(crate) fn said(error: &object_store::Error) -> String {
    let said = in_full(error);
    let Some((code, message)) = code_and_message(&said) else {
        // Some refuse without a word.
        return said.trim_end_matches([' ', ':']).to_owned();
    };
    let status = ["status code: ", "error response: "].into_iter().find_map(|before| said.split_once(before));
    let status = status.and_then(|(_, rest)| rest.split_once(':')).map_or("", |(status, _)| status);
    let status = if status.contains('<') { "" } else { status };
    let parts = [status, code.as_str(), message.as_str()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
}

/// What an error says, with all its causes: "no space left on device" is never the outermost.
pub(crate) fn in_full(error: &object_store::Error) -> String {
    let mut said = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let why = error.to_string();
        if !said.contains(&why) {
            said = format!("{said}: {why}");
        }
        cause = error.source();
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::memory::InMemory;

    #[tokio::test]
    async fn a_missing_record_may_only_show_late_where_the_files_are_on_another_machine() {
        let above = tempfile::tempdir().expect("a temporary directory");
        let path = above.path().join("store");
        let objects =
            || Arc::new(object_store::local::LocalFileSystem::new_with_prefix(&path).expect("there"));
        let open = |is_remote: bool| {
            let directory = Directory::open(&path).expect("made");
            directory.mark(5);
            let directory = if is_remote { directory.made_remote() } else { directory };
            Log::in_directory(objects(), objects(), directory)
        };
        let said = async |log: &Log| log.late_or(missing(5)).await.kind();
        assert_eq!(said(&open(false)).await, ErrorKind::Data);
        let remote = open(true);
        assert_eq!(said(&remote).await, ErrorKind::Unavailable);
        let mark = std::fs::File::options().write(true).open(path.join("mark")).expect("there");
        let before = mark.metadata().and_then(|mark| mark.modified()).expect("known");
        mark.set_modified(before - Duration::from_secs(120)).expect("set");
        assert_eq!(said(&remote).await, ErrorKind::Data, "it has had its time");
        let damaged = Error::new(ErrorKind::Unavailable, "away");
        assert_eq!(remote.late_or(damaged.clone()).await, damaged);
    }

    #[tokio::test]
    async fn the_end_is_found_however_long_the_log_is() {
        let log = Log::new(Arc::new(InMemory::new()));
        let mut written = 0;
        for end in (0..70).chain([127, 128, 129, 1_000, 2_048, 4_095, 4_096, 5_003]) {
            while written < end {
                written += 1;
                assert_eq!(log.create(&Log::path(written), Vec::new()).await, Created::Done);
            }
            for covered in [0, end / 2, end.saturating_sub(1), end] {
                assert_eq!(log.last_after(covered).await, Ok(end), "after {covered}");
            }
        }
    }
}
