//! What a directory can do that a bucket cannot: be made durable, wake those who wait, and show who wants to write.
//!
//! **The bell** is an empty file that is touched after every record. The kernel tells every process that watches it;
//! rings that nobody has heard yet are heard as one. Nothing rests on it: a ring that is lost (a process that died before
//! it rang, a file system that tells nobody) is made up for by a look now and then.
//!
//! **The mark** is a file with the number of the newest record, written after it and not synced: see
//! [`format`](crate::format).
//!
//! **Who wants to write** holds a lock on a file that is called like him. Others see that, and let him go first if it is his
//! [turn](crate::write_order); nobody waits for one who wants nothing. **Who writes** holds a lock on the file `turn`, so that
//! nobody prepares a record for a place that is about to be taken. The kernel lets go of a lock when its holder ends,
//! however he ends. If he is only stopped, others wait a moment and go on without him: nothing rests on these locks but
//! speed, and who decided a record is still whoever creates it.

use crate::format::{self, Identity};
use crate::log::Created;
use crate::mount;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use qo_core::{Error, ErrorKind, Result};
use std::fs::{File, Metadata, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;
use tokio::sync::Notify;
use uuid::Uuid;

/// A namespace's directory.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// None for whoever only looks.
    bell: Option<File>,
    /// The folder of the records, held open so that no other one can be taken for it.
    log: Option<File>,
    /// Which folder that is.
    log_place: Option<Place>,
    /// None for a process that only looks, or may not write there.
    mark: Option<File>,
    /// The namespace that was opened here.
    resident: OnceLock<Resident>,
    /// It is on another machine: files of other processes may show late.
    is_remote: bool,
}

/// A file or folder of the machine: device and number.
type Place = (u64, u64);

/// A namespace that lives in a directory. Its format object is held open, so that no other file gets its number.
#[derive(Debug)]
struct Resident {
    identity: Identity,
    format: Place,
    _file: File,
}

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct FileLock(File);

impl Drop for FileLock {
    fn drop(&mut self) {
        // To close the file would not do: a child that is just being started may have it too.
        self.0.unlock().ok();
    }
}

/// Who writes.
#[derive(Debug)]
pub(crate) enum WriteLock {
    /// This one, until it is dropped.
    Held(FileLock),
    /// Somebody else.
    Busy,
    /// There are no locks here: it cannot be said, and nobody need wait for it.
    Unsupported,
}

/// A file's name and when it was written.
pub(crate) type Written = (String, SystemTime);

impl Directory {
    /// Makes the directory if it is not there, so that it outlives a power failure, and hangs up its bell.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let unusable = |error: io::Error| {
            Error::new(kind_of(&error), format!("store {}: {}", path.display(), reason(path, &error)))
        };
        make(path).map_err(unusable)?;
        for folder in ["log", "snapshot"] {
            make(&path.join(folder)).map_err(unusable)?;
        }
        let bell = File::options().create(true).truncate(false).write(true).open(path.join("bell"));
        let bell = bell.map_err(unusable)?;
        let log = File::open(path.join("log")).map_err(unusable)?;
        let metadata = log.metadata().map_err(unusable)?;
        let (log_place, is_remote) = (Some(place(&metadata)), mount::is_remote(&metadata));
        let mark =
            File::options().create(true).truncate(false).read(true).write(true).open(path.join("mark"));
        // A process that changes its current directory stays in this one.
        let path = path.canonicalize().map_err(unusable)?;
        let (bell, log, mark) = (Some(bell), Some(log), mark.ok());
        Ok(Self { path, bell, log, log_place, mark, resident: OnceLock::new(), is_remote })
    }

    /// A directory that is there already; nothing is made. `NotFound` if it is not.
    pub(crate) fn existing(path: &Path) -> Result<Self> {
        if path.is_dir() {
            let log = File::open(path.join("log")).ok();
            let metadata = log.as_ref().and_then(|log| log.metadata().ok());
            let log_place = metadata.as_ref().map(place);
            let is_remote = metadata.as_ref().is_some_and(mount::is_remote);
            let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            let resident = OnceLock::new();
            return Ok(Self { path, bell: None, log, log_place, mark: None, resident, is_remote });
        }
        let (kind, why) = match path.try_exists() {
            Ok(true) => (ErrorKind::Unavailable, "it is a file: a store is a directory".into()),
            Err(error) if is_denied(&error) => (ErrorKind::Invalid, reason(path, &error)),
            Ok(false) | Err(_) => (ErrorKind::NotFound, "there is no such directory".into()),
        };
        Err(Error::new(kind, format!("store {}: {why}", path.display())))
    }

    /// The namespace that was opened is this one: from now on no other is taken for it.
    pub(crate) fn moved_into(&self, identity: Identity) -> Result<()> {
        if self.resident.get().is_none() {
            let gone = |error: io::Error| self.gone(&error);
            let file = File::open(self.path.join(format::path().as_ref())).map_err(gone)?;
            let format = place(&file.metadata().map_err(gone)?);
            self.resident.get_or_init(|| Resident { identity, format, _file: file });
        }
        self.still_there()
    }

    /// Whether what is at the path is still what was opened: two calls of `stat`. A directory that was removed or unmounted
    /// must not be made anew by the next record: that would be another log, which begins in the middle. `Unavailable` if
    /// nothing is there, which may pass; `Data` if it is another one.
    pub(crate) fn still_there(&self) -> Result<()> {
        let Some(opened) = self.log_place else { return Ok(()) };
        let found = |name: &str| {
            let found = std::fs::metadata(self.path.join(name)).map_err(|error| self.gone(&error))?;
            Ok::<_, Error>(place(&found))
        };
        let resident = self.resident.get();
        let is_same = found("log")? == opened
            && match resident {
                Some(resident) => found(format::path().as_ref())? == resident.format,
                None => true,
            };
        if is_same {
            return Ok(());
        }
        let mut what = "is another directory than the one that was opened".to_owned();
        if let Some(resident) = resident {
            let now = std::fs::read(self.path.join(format::path().as_ref())).ok();
            let now = now.and_then(|bytes| format::identity_in(&bytes).ok());
            let now = now.map_or_else(|| "no namespace, or one without an id".into(), |now| now.to_string());
            what = format!("{what}: opened was {}; there now is {now}", resident.identity);
        }
        Err(Error::new(ErrorKind::Data, format!("store {}: {what}: start again", self.path.display())))
    }

    fn gone(&self, error: &io::Error) -> Error {
        let shown = self.path.display();
        match is_denied(error) {
            true => Error::new(ErrorKind::Invalid, format!("store {shown}: {}", reason(&self.path, error))),
            false => {
                Error::new(ErrorKind::Unavailable, format!("store {shown}: is not there any more: {error}"))
            }
        }
    }

    /// Says that the log has reached a record, which is on the disk. It costs a read and a write of the page cache. A
    /// process that is overtaken between the two sets the mark back by a record or two; the next record makes up for it.
    pub(crate) fn mark(&self, number: u64) {
        let Some(file) = &self.mark else { return };
        if marked(file).is_none_or(|before| before < number) {
            // Nothing rests on it: a log with an old mark is a log whose last records nothing vouches for.
            file.write_all_at(mark_of(number).as_bytes(), 0).ok();
        }
    }

    /// The record that the log has reached, as the mark says; 0 if it says nothing.
    pub(crate) fn marked(&self) -> u64 {
        // By its name: what was held open may be the mark of a directory that is gone.
        File::open(self.path.join("mark")).ok().and_then(|file| marked(&file)).unwrap_or(0)
    }

    /// When the mark was last written, if files of other processes may show late here.
    pub(crate) fn marked_late(&self) -> Option<SystemTime> {
        let mark = std::fs::metadata(self.path.join("mark")).ok().filter(|_| self.is_remote)?;
        mark.modified().ok()
    }

    /// The same directory, as if it were on another machine.
    #[cfg(test)]
    pub(crate) fn made_remote(self) -> Self {
        Self { is_remote: true, ..self }
    }

    /// Tells every process that watches.
    pub(crate) fn ring(&self) {
        // It is empty, and is cut to nothing: the kernel says so to whoever watches. (To set its times would need its owner,
        // and users may share a directory.) A ring that fails is one that nobody hears.
        self.bell.as_ref().map(|bell| bell.set_len(0));
    }

    /// Listens to the bell, if the kernel lets us.
    pub(crate) fn listen(&self, rung: Arc<Notify>) -> Option<RecommendedWatcher> {
        let heard = move |event: notify::Result<notify::Event>| {
            // An error, too, is a reason to look.
            if event.map_or(true, |event| !event.kind.is_access()) {
                rung.notify_one();
            }
        };
        let watcher = notify::recommended_watcher(heard).and_then(|mut watcher| {
            watcher.watch(&self.path.join("bell"), RecursiveMode::NonRecursive)?;
            Ok(watcher)
        });
        match watcher {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                tracing::warn!(
                    "store {}: no wake-up by the kernel, so it is polled: {error}",
                    self.path.display()
                );
                None
            }
        }
    }

    /// The bytes of a file, if it is there. It is read here and now: a file that is not there is no reason to change
    /// threads twice, and that is what a writer finds most of the time. So this is for the thread of a log alone.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        found(std::fs::read(self.path.join(name))).map_err(|error| self.unreadable(name, &error))
    }

    /// Creates a record unless there is one, and waits until it is on the disk; here and now, as with [`Directory::read`].
    /// The steps are those of `object_store`'s local files (write it aside, sync it, link it to its place, sync the folder);
    /// but those change threads twice, which on a fast disk takes half as long as the disk does.
    pub(crate) fn create_record(&self, name: &str, bytes: &[u8]) -> Created {
        let path = self.path.join(name);
        let unknown = |error: io::Error| match is_denied(&error) {
            // Nothing is in its place: the operating system refused before anything was linked there.
            true => Created::Refused(self.unreadable(name, &error)),
            false => Created::Unknown(format!("{}: {error}", path.display())),
        };
        let staged = match stage(&path, bytes) {
            Ok(staged) => staged,
            Err(error) => return unknown(error),
        };
        let linked = std::fs::hard_link(&staged, &path);
        // Whoever sweeps finds it if this fails.
        std::fs::remove_file(&staged).ok();
        match linked {
            Ok(()) => match self.log.as_ref().map_or_else(|| sync(above(&path)), File::sync_all) {
                Ok(()) => Created::Done,
                // It can be seen; that does not mean that it is on the disk.
                Err(error) => Created::Unknown(format!("{}: {error}", path.display())),
            },
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Created::Exists,
            Err(error) => unknown(error),
        }
    }

    /// Whether a file is there. It is asked here and now, as with [`Directory::read`].
    pub(crate) fn has(&self, name: &str) -> Result<bool> {
        let file = found(std::fs::metadata(self.path.join(name)));
        Ok(file.map_err(|error| self.unreadable(name, &error))?.is_some())
    }

    fn unreadable(&self, name: &str, error: &io::Error) -> Error {
        let path = self.path.join(name);
        Error::new(kind_of(error), format!("{}: {}", path.display(), reason(&path, error)))
    }

    /// Says that a writer wants to write, until what this returns is dropped. None if that cannot be said.
    pub(crate) fn lock_intent(&self, writer: Uuid) -> Option<FileLock> {
        let file = lockable(&self.wanting(writer)).or_else(|_| {
            // Somebody else may be making it.
            std::fs::create_dir(self.path.join("wanting")).ok();
            lockable(&self.wanting(writer))
        });
        let file = file.ok()?;
        // Whoever asks just now whether it is locked locks it, for a moment.
        let locked = file.try_lock().or_else(|_| file.try_lock());
        locked.is_ok().then_some(FileLock(file))
    }

    /// A writer ends: nobody will look for it.
    pub(crate) fn forget_intent(&self, writer: Uuid) {
        std::fs::remove_file(self.wanting(writer)).ok();
    }

    fn wanting(&self, writer: Uuid) -> PathBuf {
        self.path.join("wanting").join(writer.to_string())
    }

    /// Whether a writer says that it wants to write.
    pub(crate) fn has_intent(&self, writer: Uuid) -> bool {
        File::open(self.wanting(writer))
            .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// Says that one is writing, unless somebody else is.
    pub(crate) fn try_write_lock(&self) -> WriteLock {
        let Ok(file) = lockable(&self.path.join("turn")) else { return WriteLock::Unsupported };
        match file.try_lock() {
            Ok(()) => WriteLock::Held(FileLock(file)),
            Err(TryLockError::WouldBlock) => WriteLock::Busy,
            Err(TryLockError::Error(_)) => WriteLock::Unsupported,
        }
    }

    /// Waits until what can be seen in a folder is on the disk.
    pub(crate) async fn sync(&self, folder: &str) -> Result<()> {
        let path = self.path.join(folder);
        let shown = path.display().to_string();
        let synced = aside(move || sync(&path)).await;
        synced.map_err(|error| Error::new(ErrorKind::Unknown, format!("{shown}: {error}")))
    }

    /// The files in a folder, in no order; none if the folder is not there. What has a name that no object can have, and
    /// what is below a folder in it, is not qo's.
    pub(crate) async fn files(&self, folder: &str) -> Result<Vec<Written>> {
        let path = self.path.join(folder);
        let shown = path.display().to_string();
        let listed = aside(move || files(&path)).await;
        listed.map_err(|error| {
            Error::new(kind_of(&error), format!("{shown}: {}", reason(Path::new(&shown), &error)))
        })
    }

    /// The names of the files in a folder, in no order; nothing else is asked of them. None if the folder is not there.
    pub(crate) async fn names(&self, folder: &str) -> Result<Vec<String>> {
        let path = self.path.join(folder);
        let shown = path.display().to_string();
        let listed = aside(move || {
            let Some(entries) = found(std::fs::read_dir(path))? else { return Ok(Vec::new()) };
            let names = entries.map(|entry| Ok(entry?.file_name().into_string().ok()));
            Ok(names.collect::<io::Result<Vec<_>>>()?.into_iter().flatten().collect())
        });
        let listed = listed.await;
        listed.map_err(|error| {
            Error::new(kind_of(&error), format!("{shown}: {}", reason(Path::new(&shown), &error)))
        })
    }

    /// Removes files, in order, if they are there.
    pub(crate) async fn remove_all(&self, names: Vec<String>) -> Result<()> {
        let folder = self.path.clone();
        let removed = aside(move || {
            for name in names {
                let path = folder.join(name);
                found(std::fs::remove_file(&path))
                    .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
            }
            Ok(())
        });
        removed.await.map_err(|error| Error::new(ErrorKind::Unavailable, error.to_string()))
    }
}

/// Writes a file beside its place, and syncs it. It is called like the object that it is to be, and a number.
fn stage(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    for number in 1_u64.. {
        let mut staged = path.as_os_str().to_owned();
        staged.push(format!("#{number}"));
        let staged = PathBuf::from(staged);
        let mut file = match File::create_new(&staged) {
            Ok(file) => file,
            // Somebody else is at it, or was killed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(error),
        };
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        if written.is_err() {
            // A disk that is full needs the room.
            std::fs::remove_file(&staged).ok();
        }
        return written.map(|()| staged);
    }
    unreachable!("there are more numbers than files")
}

/// How long a mark is.
const MARK: usize = "qo mark 00000000000000000000 00000000\n".len();

/// The text of a mark, with a checksum: what is damaged is no mark.
fn mark_of(number: u64) -> String {
    let text = format!("qo mark {number:020}");
    format!("{text} {:08x}\n", crc32fast::hash(text.as_bytes()))
}

/// The number in a mark, if it is one.
fn marked(file: &File) -> Option<u64> {
    let mut bytes = [0; MARK];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let number = std::str::from_utf8(&bytes).ok()?.split(' ').nth(2)?.parse().ok()?;
    (mark_of(number).as_bytes() == bytes).then_some(number)
}

fn place(file: &Metadata) -> Place {
    (file.dev(), file.ino())
}

fn lockable(path: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).open(path)
}

/// What is not there is no error.
fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Waits for the disk on a thread that may wait, if there is one.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime.spawn_blocking(work).await.map_err(io::Error::other).flatten(),
        Err(_) => work(),
    }
}

fn files(folder: &Path) -> io::Result<Vec<Written>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        // Behind a link there may be a file. What is gone meanwhile is gone.
        match std::fs::metadata(entry.path()) {
            Ok(file) if file.is_file() => files.push((name, file.modified()?)),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(files)
}

/// Makes a directory and those above it, each on the disk before the next.
fn make(path: &Path) -> io::Result<()> {
    match std::fs::create_dir(path) {
        Ok(()) => sync(above(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.parent().is_some() => {
            make(above(path))?;
            // Not once more from the start: there are places where nothing can be made, whatever is above them.
            std::fs::create_dir(path)?;
            sync(above(path))
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {
            // Whoever made it may not have come to sync it, and what is below it counts on it. Where the folder above may
            // not be read it is somebody else's, and has been there for long.
            sync(above(path)).ok();
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn above(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// What a directory must let a process do that uses a store in it.
pub(crate) const NEEDS_RIGHTS: &str = "qo must be able to read and write there";

/// Whether the operating system refuses a process what it asks for: to ask again changes nothing.
pub(crate) fn is_denied(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// What a caller must do about an error of a directory.
fn kind_of(error: &io::Error) -> ErrorKind {
    if is_denied(error) { ErrorKind::Invalid } else { ErrorKind::Unavailable }
}

fn reason(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            let file = path.ancestors().find(|path| path.exists() && !path.is_dir());
            let file = file.unwrap_or(path).display();
            format!("{file} is a file: a store is a directory")
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            format!("{error}: {NEEDS_RIGHTS}")
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_ring_is_heard_by_whoever_listens() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("a/b/store");
        let (rings, hears) = (Directory::open(&path).expect("made"), Directory::open(&path).expect("there"));
        let rung = Arc::new(Notify::new());
        let _watcher = hears.listen(Arc::clone(&rung)).expect("this kernel tells");
        for _ in 0..3 {
            rings.ring();
            rung.notified().await;
        }
    }

    #[test]
    fn who_wants_to_write_is_seen_until_he_has() {
        let above = tempfile::tempdir().expect("a temporary directory");
        let open = || Directory::open(&above.path().join("store")).expect("made");
        let (mine, theirs, me) = (open(), open(), Uuid::from_u128(7));
        assert!(!theirs.has_intent(me));
        for _ in 0..2 {
            let wanting = mine.lock_intent(me).expect("it can be said");
            assert!(theirs.has_intent(me));
            assert!(!theirs.has_intent(Uuid::from_u128(8)), "another one");
            drop(wanting);
            assert!(!theirs.has_intent(me));
        }
    }

    #[test]
    fn a_mark_only_grows_and_a_damaged_one_says_nothing() {
        let above = tempfile::tempdir().expect("a temporary directory");
        let path = above.path().join("store");
        let directory = Directory::open(&path).expect("made");
        assert_eq!(directory.marked(), 0);
        for (number, due) in [(7, 7), (12, 12), (9, 12)] {
            directory.mark(number);
            assert_eq!(directory.marked(), due);
        }
        let whole = std::fs::read(path.join("mark")).expect("readable");
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(path.join("mark"), damaged).expect("damaged");
            assert_eq!(directory.marked(), 0, "byte {at}");
        }
    }

    #[test]
    fn a_directory_that_is_gone_or_another_one_is_noticed() {
        let above = tempfile::tempdir().expect("a temporary directory");
        let (path, aside) = (above.path().join("store"), above.path().join("aside"));
        let directory = Directory::open(&path).expect("made");
        directory.still_there().expect("it is there");
        std::fs::rename(&path, &aside).expect("moved");
        let error = directory.still_there().expect_err("it is gone");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        Directory::open(&path).expect("made");
        assert_eq!(directory.still_there().expect_err("it is another one").kind(), ErrorKind::Data);
        std::fs::remove_dir_all(&path).expect("removed");
        std::fs::rename(&aside, &path).expect("moved back");
        directory.still_there().expect("it is there again");
    }

    #[test]
    fn a_place_where_nothing_can_be_made_is_an_error() {
        let error = Directory::open(Path::new("/proc/nowhere/store")).expect_err("nothing can be made there");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn a_place_that_refuses_is_invalid_and_says_which_right_is_missing() {
        // Not even root makes anything there.
        for path in ["/sys/qo", "/sys/kernel/qo/store"] {
            let error = Directory::open(Path::new(path)).expect_err("nothing can be made there");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.message().contains(path) && error.message().contains(NEEDS_RIGHTS), "{error}");
        }
    }

    #[test]
    fn a_record_that_is_refused_is_not_there_and_will_not_be() {
        let above = tempfile::tempdir().expect("a temporary directory");
        let path = above.path().join("store");
        let directory = Directory::open(&path).expect("made");
        // What cannot be written to even by root: the log of another file system.
        std::fs::remove_dir(path.join("log")).expect("removed");
        std::os::unix::fs::symlink("/sys/kernel", path.join("log")).expect("linked");
        let created = directory.create_record("log/00000000000000000001", b"x");
        let Created::Refused(error) = created else { panic!("{created:?}") };
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }

    #[test]
    fn a_file_in_the_way_is_named() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("notes.txt");
        std::fs::write(&file, "mine").expect("written");
        for path in [file.clone(), file.join("below")] {
            let error = Directory::open(&path).expect_err("a file is in the way");
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.message().contains("notes.txt is a file: a store is a directory"), "{error}");
        }
        assert_eq!(std::fs::read_to_string(file).expect("still there"), "mine");
    }
}
