//! Files and folders: what the directory asks of the operating system.

use super::Written;
use qo_core::ErrorKind;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes a file beside its place, and syncs it. It has the name of the object that it is to become, `#` and a number.
pub(super) fn stage(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    for number in 1_u64.. {
        let mut staged = path.as_os_str().to_owned();
        staged.push(format!("#{number}"));
        let staged = PathBuf::from(staged);
        let mut file = match File::create_new(&staged) {
            Ok(file) => file,
            // Another process is writing it, or was killed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(error),
        };
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        if written.is_err() {
            // A full disk needs the room.
            std::fs::remove_file(&staged).ok();
        }
        return written.map(|()| staged);
    }
    unreachable!("there are more numbers than files")
}

/// None, and no error, for what is not there.
pub(super) fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Waits for the disk on a thread of the runtime that may block, if there is a runtime.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime.spawn_blocking(work).await.map_err(io::Error::other).flatten(),
        Err(_) => work(),
    }
}

pub(super) fn files(folder: &Path) -> io::Result<Vec<Written>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        // `metadata` follows links. A file that is gone meanwhile is skipped.
        match std::fs::metadata(entry.path()) {
            Ok(file) if file.is_file() => files.push((name, file.modified()?)),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(files)
}

/// Makes a directory and its parents, each on the disk before the next.
pub(super) fn make(path: &Path) -> io::Result<()> {
    match std::fs::create_dir(path) {
        Ok(()) => sync(above(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.parent().is_some() => {
            make(above(path))?;
            // No recursion here: in some places nothing can be made, whatever is above them.
            std::fs::create_dir(path)?;
            sync(above(path))
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {
            // The process that made it may have been killed before it synced. A parent that may not be read belongs to
            // another user, and has been there for long.
            sync(above(path)).ok();
            Ok(())
        }
        Err(error) => Err(error),
    }
}

pub(super) fn above(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

pub(super) fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The rights that a process needs in the directory of a store.
pub(crate) const NEEDS_RIGHTS: &str = "qo must be able to read and write there";

/// Whether the operating system refuses for lack of rights: another try gets the same answer.
pub(crate) fn is_denied(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// The kind of error that a caller gets for an error of the operating system.
pub(super) fn kind_of(error: &io::Error) -> ErrorKind {
    if is_denied(error) { ErrorKind::Invalid } else { ErrorKind::Unavailable }
}

pub(super) fn reason(path: &Path, error: &io::Error) -> String {
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
