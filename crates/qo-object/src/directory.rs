//! What a directory can do that a bucket cannot: be made durable, and wake those who wait.
//!
//! **The bell** is an empty file whose times are set after every record. The kernel tells every process that watches it;
//! rings that nobody has heard yet are heard as one. Nothing rests on it: a ring that is lost (a process that died before
//! it rang, a file system that tells nobody) is made up for by a look now and then.

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use qo_core::{Error, ErrorKind, Result};
use std::fs::{File, FileTimes};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// A namespace's directory.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    bell: File,
    /// The folder of the records, held open so that no other one can be taken for it.
    log: File,
}

impl Directory {
    /// Makes the directory if it is not there, so that it outlives a power failure, and hangs up its bell.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let unusable = |error: io::Error| {
            Error::new(ErrorKind::Unavailable, format!("store {}: {}", path.display(), reason(path, &error)))
        };
        make(path).map_err(unusable)?;
        for folder in ["log", "snapshot"] {
            make(&path.join(folder)).map_err(unusable)?;
        }
        let bell = File::options().create(true).truncate(false).write(true).open(path.join("bell"));
        let bell = bell.map_err(unusable)?;
        let log = File::open(path.join("log")).map_err(unusable)?;
        Ok(Self { path: path.to_owned(), bell, log })
    }

    /// Whether what is at the path is still what was opened. A directory that was removed or unmounted must not be made
    /// anew by the next record: that would be another log, which begins in the middle. `Unavailable` if nothing is
    /// there, which may pass; `Data` if it is another one.
    pub(crate) fn still_there(&self) -> Result<()> {
        let shown = self.path.display();
        let gone = |error: io::Error| {
            Error::new(ErrorKind::Unavailable, format!("store {shown}: is not there any more: {error}"))
        };
        let opened = self.log.metadata().map_err(gone)?;
        let found = std::fs::metadata(self.path.join("log")).map_err(gone)?;
        if (opened.dev(), opened.ino()) == (found.dev(), found.ino()) {
            return Ok(());
        }
        let message =
            format!("store {shown}: is another directory than the one that was opened: start again");
        Err(Error::new(ErrorKind::Data, message))
    }

    /// Tells every process that watches.
    pub(crate) fn ring(&self) {
        // The times need not be true, only set: the kernel says so to whoever watches. A ring that fails is one that
        // nobody hears.
        self.bell
            .set_times(FileTimes::new().set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1)))
            .ok();
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

    /// Waits until what can be seen in a folder is on the disk.
    pub(crate) async fn sync(&self, folder: &str) -> Result<()> {
        let path = self.path.join(folder);
        let shown = path.display().to_string();
        let synced = match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn_blocking(move || sync(&path)).await.map_err(io::Error::other).flatten()
            }
            Err(_) => sync(&path),
        };
        synced.map_err(|error| Error::new(ErrorKind::Unknown, format!("{shown}: {error}")))
    }
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
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
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

fn reason(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            let file = path.ancestors().find(|path| path.exists() && !path.is_dir());
            let file = file.unwrap_or(path).display();
            format!("{file} is a file: a store is a directory")
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            format!("{error}: qo must be able to write there")
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
