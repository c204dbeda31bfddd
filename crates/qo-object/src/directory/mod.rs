//! A directory as a medium: records are files, synced before their calls are answered; a bell wakes other processes;
//! locks show which writer wants to write.
//!
//! **The bell** is an empty file that a writer touches after every record. The kernel reports that to every process
//! that watches it, and several rings that a process has not heard yet as one. A ring may be lost (the process died
//! before it rang, the file system reports nothing), so every process also polls.
//!
//! | module | what it holds |
//! |---|---|
//! | `lock` | write intents and the write lock |
//! | `mark` | the file `mark` |
//! | `disk` | files and folders |

mod disk;
mod lock;
mod mark;
#[cfg(test)]
mod tests;

pub(crate) use disk::{NEEDS_RIGHTS, is_denied};
pub(crate) use lock::{FileLock, WriteLock};

use crate::format::{self, Identity};
use crate::log::Created;
use crate::mount;
use disk::{above, aside, files, found, kind_of, make, reason, stage, sync};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use qo_core::{Cause, Error, ErrorKind, Result};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;
use tokio::sync::Notify;

/// A namespace's directory.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// None for a process that only looks.
    bell: Option<File>,
    /// The folder of the records, held open so that no other folder gets its number.
    log: Option<File>,
    /// The device and the number of that folder.
    log_place: Option<Place>,
    /// None for a process that only looks, or may not write it.
    mark: Option<File>,
    /// The namespace that was opened here.
    resident: OnceLock<Resident>,
    /// The directory is on another machine, so files of other processes may show late.
    is_remote: bool,
}

/// A file or folder of the machine: its device and its number.
type Place = (u64, u64);

/// The namespace in a directory. Its format object is held open, so that no other file gets its number.
#[derive(Debug)]
struct Resident {
    identity: Identity,
    format: Place,
    _file: File,
}

/// A file's name and when it was written.
pub(crate) type Written = (String, SystemTime);

impl Directory {
    /// Makes the directory if it is not there, so that it survives a power failure, and opens its files.
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
        // The process may change its current directory.
        let path = path.canonicalize().map_err(unusable)?;
        let (bell, log, mark) = (Some(bell), Some(log), mark.ok());
        Ok(Self { path, bell, log, log_place, mark, resident: OnceLock::new(), is_remote })
    }

    /// Opens a directory, and makes nothing. `NotFound` if it is not there.
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

    /// This namespace was opened: from now on no other is taken for it.
    pub(crate) fn moved_into(&self, identity: Identity) -> Result<()> {
        if self.resident.get().is_none() {
            let gone = |error: io::Error| self.gone(&error);
            let file = File::open(self.path.join(format::path().as_ref())).map_err(gone)?;
            let format = place(&file.metadata().map_err(gone)?);
            self.resident.get_or_init(|| Resident { identity, format, _file: file });
        }
        self.still_there()
    }

    /// Checks by two calls of `stat` that the directory at the path is still the one that was opened. The next record
    /// must not make a directory anew that was removed or unmounted: that would be another log, which begins in the
    /// middle. `Unavailable` if nothing is there, which may pass; `Data` if it is another one.
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
        let what = format!("store {}: {what}: start again", self.path.display());
        Err(Error::new(ErrorKind::Data, what).with_cause(Cause::OtherNamespace))
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

    /// The same directory, as if it were on another machine.
    #[cfg(test)]
    pub(crate) fn made_remote(self) -> Self {
        Self { is_remote: true, ..self }
    }

    /// Wakes every process that watches the bell.
    pub(crate) fn ring(&self) {
        // The file is empty and stays so, but the kernel reports the change. (Only the owner may set the times of a
        // file, and users may share a directory.) A ring that fails is a ring that is lost.
        self.bell.as_ref().map(|bell| bell.set_len(0));
    }

    /// Listens to the bell. None if the kernel refuses.
    pub(crate) fn listen(&self, rung: Arc<Notify>) -> Option<RecommendedWatcher> {
        let heard = move |event: notify::Result<notify::Event>| {
            // After an error, look too.
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

    /// The bytes of a file, if it is there. It is read on the calling thread, so this is for the thread of a log alone:
    /// most of the time the file is not there, and two changes of threads would cost more than that.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        found(std::fs::read(self.path.join(name))).map_err(|error| self.unreadable(name, &error))
    }

    /// Creates a record unless there is one, on the calling thread, as [`Directory::read`] does:
    ///
    /// 1. write it to a file beside its place, and sync that;
    /// 2. link the file to its place, which fails if there is a record;
    /// 3. remove the first name, and sync the folder.
    ///
    /// `object_store`'s local files do the same on other threads. On a fast disk the two changes of threads take half
    /// as long as the disk does.
    pub(crate) fn create_record(&self, name: &str, bytes: &[u8]) -> Created {
        let path = self.path.join(name);
        let unknown = |error: io::Error| match is_denied(&error) {
            // The operating system refused before anything was linked to the place.
            true => Created::Refused(self.unreadable(name, &error)),
            false => Created::Unknown(format!("{}: {error}", path.display())),
        };
        let staged = match stage(&path, bytes) {
            Ok(staged) => staged,
            Err(error) => return unknown(error),
        };
        let linked = std::fs::hard_link(&staged, &path);
        // If this fails, a sweep removes it.
        std::fs::remove_file(&staged).ok();
        match linked {
            Ok(()) => match self.log.as_ref().map_or_else(|| sync(above(&path)), File::sync_all) {
                Ok(()) => Created::Done,
                // The record shows, but it may not be on the disk.
                Err(error) => Created::Unknown(format!("{}: {error}", path.display())),
            },
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Created::Exists,
            Err(error) => unknown(error),
        }
    }

    /// Whether a file is there, on the calling thread, as [`Directory::read`] does.
    pub(crate) fn has(&self, name: &str) -> Result<bool> {
        let file = found(std::fs::metadata(self.path.join(name)));
        Ok(file.map_err(|error| self.unreadable(name, &error))?.is_some())
    }

    fn unreadable(&self, name: &str, error: &io::Error) -> Error {
        let path = self.path.join(name);
        Error::new(kind_of(error), format!("{}: {}", path.display(), reason(&path, error)))
    }

    /// Waits until every file that shows in a folder is on the disk.
    pub(crate) async fn sync(&self, folder: &str) -> Result<()> {
        let path = self.path.join(folder);
        let shown = path.display().to_string();
        let synced = aside(move || sync(&path)).await;
        synced.map_err(|error| Error::new(ErrorKind::Unknown, format!("{shown}: {error}")))
    }

    /// The files in a folder, in no order; none if the folder is not there. Names that no object can have, and folders
    /// in it, are not qo's.
    pub(crate) async fn files(&self, folder: &str) -> Result<Vec<Written>> {
        let path = self.path.join(folder);
        let shown = path.display().to_string();
        let listed = aside(move || files(&path)).await;
        listed.map_err(|error| {
            Error::new(kind_of(&error), format!("{shown}: {}", reason(Path::new(&shown), &error)))
        })
    }

    /// The names in a folder, in no order, without their metadata; none if the folder is not there.
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

fn place(file: &Metadata) -> Place {
    (file.dev(), file.ino())
}
