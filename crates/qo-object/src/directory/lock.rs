//! Locks by which writers keep the [write order](crate::write_order).
//!
//! - **Write intent**: a writer that wants to write holds a lock on `wanting/ID`. The others see it, and wait only for
//!   writers that have one.
//! - **Write lock**: a writer that writes holds a lock on `turn`, so that no other prepares a record for a number that
//!   is about to be taken.
//!
//! The kernel releases the locks of a process that ends, however it ends. No writer blocks on a lock: if its holder is
//! stopped, the others go on after some milliseconds.
//!
//! Invariant: locks affect speed alone. A record is decided by the writer that creates it.

use super::Directory;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct FileLock(File);

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing the file would not release it: a child process that is being started may share the file.
        self.0.unlock().ok();
    }
}

/// The outcome of an attempt to take the write lock.
#[derive(Debug)]
pub(crate) enum WriteLock {
    /// This writer holds it, until it is dropped.
    Held(FileLock),
    /// Another writer holds it.
    Busy,
    /// There are no locks here, and no writer waits for one.
    Unsupported,
}

impl Directory {
    /// Shows that a writer wants to write, until the lock is dropped. None if it cannot be locked.
    pub(crate) fn lock_intent(&self, writer: Uuid) -> Option<FileLock> {
        let file = lockable(&self.wanting(writer)).or_else(|_| {
            // Another writer may be making the folder.
            std::fs::create_dir(self.path.join("wanting")).ok();
            lockable(&self.wanting(writer))
        });
        let file = file.ok()?;
        // A writer that is just testing the lock holds it for an instant.
        let locked = file.try_lock().or_else(|_| file.try_lock());
        locked.is_ok().then_some(FileLock(file))
    }

    /// A writer ends: no other will look for its intent.
    pub(crate) fn forget_intent(&self, writer: Uuid) {
        std::fs::remove_file(self.wanting(writer)).ok();
    }

    fn wanting(&self, writer: Uuid) -> PathBuf {
        self.path.join("wanting").join(writer.to_string())
    }

    /// Whether a writer shows that it wants to write.
    pub(crate) fn has_intent(&self, writer: Uuid) -> bool {
        File::open(self.wanting(writer))
            .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    /// Takes the write lock, unless another writer holds it.
    pub(crate) fn try_write_lock(&self) -> WriteLock {
        let Ok(file) = lockable(&self.path.join("turn")) else { return WriteLock::Unsupported };
        match file.try_lock() {
            Ok(()) => WriteLock::Held(FileLock(file)),
            Err(TryLockError::WouldBlock) => WriteLock::Busy,
            Err(TryLockError::Error(_)) => WriteLock::Unsupported,
        }
    }
}

fn lockable(path: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).open(path)
}
