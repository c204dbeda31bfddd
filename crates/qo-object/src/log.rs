//! The log: numbered objects, each created once and never changed.

use crate::directory::Directory;
use crate::format::{self, Identity};
use crate::medium::{Medium, time_of};
use crate::record::Record;
use crate::snapshot::missing;
use crate::traffic::Traffic;
use futures::TryStreamExt;
use futures::future::ready;
use object_store::{ObjectStore, path::Path};
use qo_core::{Error, ErrorKind, Result, Time};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

/// How long a new file of another process may be invisible on a file system of another machine.
const SHOWS_AFTER_MS: u64 = 60_000;

/// The largest number of an object. An object whose name is a larger number is not qo's.
const LAST: u64 = u64::MAX >> 1;

/// The numbered objects of one namespace.
#[derive(Debug, Clone)]
pub struct Log {
    medium: Medium,
    /// Which namespace was opened.
    identity: Arc<OnceLock<Identity>>,
}

/// The outcome of an attempt to create an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    /// The object is there, and this attempt created it.
    Done,
    /// There was one already. An earlier attempt of the same writer may have created it, if its answer was lost: the
    /// nonce tells.
    Exists,
    /// The object is not there, and will not be: the store refuses to write it.
    Refused(Error),
    /// The store's answer was lost.
    Unknown(String),
}

impl Log {
    /// The log in an object store.
    pub fn new(objects: Arc<dyn ObjectStore>) -> Self {
        Self::on(Medium::objects(objects))
    }

    /// The log in a bucket.
    pub(crate) fn in_bucket(objects: Arc<dyn ObjectStore>, traffic: Arc<Traffic>) -> Self {
        Self::on(Medium::bucket(objects, traffic))
    }

    /// The log in a directory.
    pub(crate) fn in_directory(
        objects: Arc<dyn ObjectStore>,
        unsynced: Arc<dyn ObjectStore>,
        directory: Directory,
    ) -> Self {
        Self::on(Medium::directory(objects, unsynced, directory))
    }

    fn on(medium: Medium) -> Self {
        Self { medium, identity: Arc::default() }
    }

    /// The same log, which says where it is when something is wrong.
    pub(crate) fn at(self, place: impl std::fmt::Display) -> Self {
        Self { medium: self.medium.at(place), ..self }
    }

    /// The same log, which shares with another handle which namespace was opened.
    pub(crate) fn knowing(self, other: &Self) -> Self {
        Self { identity: Arc::clone(&other.identity), ..self }
    }

    /// What the objects lie on.
    pub(crate) fn medium(&self) -> &Medium {
        &self.medium
    }

    /// Which namespace was opened, as soon as that is known.
    pub(crate) fn identity(&self) -> Option<Identity> {
        self.identity.get().copied()
    }

    /// Compares the namespace that was found with the one that was opened; the first one that is found is the one that
    /// was opened. `Data` if they differ.
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
        self.medium.moved_into(opened)
    }

    /// The error of a missing record. On a file system of another machine the record may only show late: while the mark
    /// is fresh the error is `Unavailable`, after which the caller tries again, and not `Data`.
    pub(crate) async fn late_or(&self, error: Error) -> Error {
        let marked = Some(&self.medium).filter(|_| error.kind() == ErrorKind::Data);
        let Some(marked) = marked.and_then(Medium::marked_late).map(time_of) else { return error };
        match self.medium.store_time().await {
            Ok(now) if now.ms_since(marked) < SHOWS_AFTER_MS => {
                let why = "it may only show late, because the file system is on another machine: try again";
                Error::new(ErrorKind::Unavailable, format!("{}; {why}", error.message()))
            }
            Ok(_) | Err(_) => error,
        }
    }

    /// The object of a record.
    pub fn path(number: u64) -> Path {
        numbered("log", number)
    }

    /// Creates an object unless there is one.
    pub async fn create(&self, path: &Path, bytes: Vec<u8>) -> Created {
        self.medium.create(path, bytes).await
    }

    /// Creates a record unless there is one. It is for the thread of a log alone.
    pub(crate) async fn create_record(&self, number: u64, bytes: Vec<u8>) -> Created {
        self.medium.create_record(&Self::path(number), number, bytes).await
    }

    /// Reads a record, if it is there. `Data` if it is damaged, `Unavailable` if the objects cannot be reached.
    pub async fn read(&self, number: u64) -> Result<Option<Record>> {
        Ok(self.read_sized(number).await?.map(|(record, _)| record))
    }

    /// Reads a record, and says how many bytes it has.
    pub(crate) async fn read_sized(&self, number: u64) -> Result<Option<(Record, usize)>> {
        let path = Self::path(number);
        let Some(mut bytes) = self.medium.read_record(&path).await? else { return Ok(None) };
        let mut decoded = Record::decode(path.as_ref(), &bytes);
        if decoded.is_err() && self.medium.policy().reads_damage_twice {
            let Some(again) = self.medium.get(&path).await? else { return Ok(None) };
            bytes = again;
            decoded = Record::decode(path.as_ref(), &bytes);
        }
        let record = decoded?;
        if record.number != number {
            let what = format!("{path}: is damaged: it says that it is record {}", record.number);
            return Err(Error::new(ErrorKind::Data, what));
        }
        Ok(Some((record, bytes.len())))
    }

    /// Whether a record is there.
    pub(crate) async fn has(&self, number: u64) -> Result<bool> {
        self.medium.exists(&Self::path(number)).await
    }

    /// The last record, for a writer that appends behind it without having read the log; `covered` is what the newest
    /// snapshot covers. `Data` if a record between the two is missing: a writer would append where no reader gets to.
    pub(crate) async fn end_after(&self, covered: u64) -> Result<u64> {
        match self.medium.policy().looks_are_free {
            true => self.last_after(covered).await,
            false => self.listed_end(covered).await,
        }
    }

    /// The last record, if the log has any after `covered`. The log has no gaps and grows at its end only, so a few
    /// looks find it, however long it is.
    pub(crate) async fn last_after(&self, covered: u64) -> Result<u64> {
        if !self.medium.policy().looks_are_free {
            return self.last_after_in_parallel(covered).await;
        }
        let (mut there, mut step) = (covered, 1);
        while self.has(there + step).await? {
            there += step;
            step *= 2;
        }
        // Invariant: record `there` is there (or covered), record `there + step` is not.
        while step > 1 {
            step /= 2;
            if self.has(there + step).await? {
                there += step;
            }
        }
        Ok(there)
    }

    /// The same where every look takes a while, so several go in parallel: twelve find a step that is too large, seven
    /// leave an eighth of it.
    async fn last_after_in_parallel(&self, covered: u64) -> Result<u64> {
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
        // Invariant: record `there` is there (or covered), record `absent` is not.
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
        let looks = futures::future::try_join_all(numbers.map(|number| self.has(number))).await?;
        Ok(looks.iter().take_while(|exists| **exists).count())
    }

    /// The last record by a listing, and a look for the one behind it, because a listing may be late. `Data` if a
    /// record after `covered` is missing.
    async fn listed_end(&self, covered: u64) -> Result<u64> {
        let (mut next, mut listed) = (covered + 1, self.medium.numbers_after("log", covered));
        while let Some(number) = listed.try_next().await? {
            while next < number {
                if !self.has(next).await? {
                    return Err(missing(next));
                }
                next += 1;
            }
            next = number + 1;
        }
        match self.has(next).await? {
            true => self.last_after_in_parallel(next).await,
            false => Ok(next - 1),
        }
    }

    /// Checks that every record after `covered` up to `last` is there, and none behind it, where one call lists them.
    /// What looks like the last record may lie before or behind a gap, and a record that is appended there is
    /// acknowledged although no reader gets to it. `Data` if a record is missing.
    pub(crate) async fn check_whole(&self, covered: u64, last: u64) -> Result<()> {
        let Some(numbers) = self.medium.numbers_at_once("log").await? else { return Ok(()) };
        let there: BTreeSet<u64> = numbers.into_iter().collect();
        let within = (covered + 1..=last).filter(|number| !there.contains(number));
        // Another process may have written during this look: then the next record is there by now.
        let behind = there.last().filter(|there| **there > last + 1).map(|_| last + 1);
        for number in within.chain(behind) {
            // A listing may be late.
            if !self.has(number).await? {
                return Err(missing(number));
            }
        }
        Ok(())
    }

    /// The numbers of the numbered objects in a folder, in order, each with its stamp. Objects with other names are not
    /// qo's.
    pub(crate) async fn numbers_aged(&self, folder: &str) -> Result<Vec<(u64, Time)>> {
        let listed = self.medium.list_aged(folder).await?.into_iter();
        Ok(listed.filter_map(|(path, written)| Some((number_of(&path)?, written))).collect())
    }

    /// The numbers of the numbered objects in a folder, in order.
    pub(crate) async fn numbers(&self, folder: &str) -> Result<Vec<u64>> {
        Ok(self.numbers_aged(folder).await?.into_iter().map(|(number, _)| number).collect())
    }

    /// The number of the last object of a folder that is listed after `number`, if there is any. A listing may be late.
    pub(crate) async fn last_listed_after(&self, folder: &str, number: u64) -> Result<Option<u64>> {
        if let Some(numbers) = self.medium.numbers_at_once(folder).await? {
            return Ok(numbers.into_iter().max().filter(|last| *last > number));
        }
        let listed = self.medium.numbers_after(folder, number);
        listed.try_fold(None, |last: Option<u64>, number| ready(Ok(last.max(Some(number))))).await
    }
}

/// The object with this number in a folder. Numbers have 20 digits, so that names sort as numbers do.
pub(crate) fn numbered(folder: &str, number: u64) -> Path {
    Path::from(format!("{folder}/{number:020}"))
}

/// The number of a numbered object. None if its name is not exactly that of one.
pub(crate) fn number_of(path: &Path) -> Option<u64> {
    let (folder, name) = path.as_ref().split_once('/')?;
    let number = name.parse().ok().filter(|number| *number <= LAST)?;
    (numbered(folder, number) == *path).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Directory;
    use object_store::memory::InMemory;
    use std::time::Duration;

    #[tokio::test]
    async fn a_record_may_show_late_on_a_file_system_of_another_machine() {
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
        assert_eq!(said(&remote).await, ErrorKind::Data, "the mark is too old for that");
        let damaged = Error::new(ErrorKind::Unavailable, "away");
        assert_eq!(remote.late_or(damaged.clone()).await, damaged);
    }

    #[tokio::test]
    async fn the_end_of_a_log_of_any_length_is_found() {
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
