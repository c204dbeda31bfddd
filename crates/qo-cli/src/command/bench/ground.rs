//! The ground of a measurement: fresh directories on one disk, and how long that disk takes to sync a small file.

use super::figure::median;
use qo::core::ErrorKind;
use qo::settings::without_password;
use qo::{Error, Result};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long the disk rests between two timed files.
const REST: Duration = Duration::from_millis(3);
/// The type of a file system in memory, as `statfs` reports it.
const TMPFS: &str = "1021994";

/// A place on a disk where every round has a directory of its own.
#[derive(Debug)]
pub struct Ground {
    folder: TempDir,
}

impl Ground {
    /// In the directory of a `file:` store, else in that of temporary files.
    pub fn find(store: Option<&str>) -> Result<Self> {
        let base = match store {
            None => std::env::temp_dir(),
            Some(url) => directory(url)?,
        };
        let unusable = |error: io::Error| {
            Error::new(ErrorKind::Unavailable, format!("store {}: {error}", base.display()))
        };
        fs::create_dir_all(&base).map_err(unusable)?;
        let folder = tempfile::Builder::new().prefix("qo-bench-").tempdir_in(&base).map_err(unusable)?;
        Ok(Self { folder })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A fresh directory.
    pub fn fresh(&self) -> Result<Plot> {
        let made = tempfile::Builder::new().prefix("round-").tempdir_in(self.folder.path());
        let folder =
            made.map_err(|error| Error::new(ErrorKind::Unavailable, format!("no directory: {error}")))?;
        Ok(Plot { folder: folder.keep() })
    }

    /// Whether it is in memory, where a sync costs nothing.
    pub fn is_in_memory(&self) -> bool {
        // The type of this number differs between platforms; its hexadecimal form does not.
        rustix::fs::statfs(self.path()).is_ok_and(|stat| format!("{:x}", stat.f_type) == TMPFS)
    }

    /// How long it takes to keep a small file, in milliseconds: write it, sync it, link it to its place, sync the
    /// directory. A record of the log costs as much. The median of `count` files, with a rest between two: a disk that
    /// gets one such file after another is faster than one that gets a file now and then.
    pub async fn fsync_ms(&self, count: usize) -> Result<f64> {
        let plot = self.fresh()?;
        let failed =
            |error| Error::new(ErrorKind::Unavailable, format!("{}: {error}", plot.path().display()));
        let mut times = Vec::new();
        for number in 0..count {
            tokio::time::sleep(REST).await;
            times.push(keep(plot.path(), number).map_err(failed)?);
        }
        Ok(median(&times))
    }
}

fn directory(url: &str) -> Result<PathBuf> {
    let path = url.strip_prefix("file:").map(|path| path.strip_prefix("//").unwrap_or(path));
    let path = path.filter(|path| !path.is_empty());
    let rule = "every round needs a fresh directory: name one to make them in, as in file:/mnt/disk";
    path.map(PathBuf::from).ok_or_else(|| Error::invalid("store", without_password(url), rule))
}

fn keep(folder: &Path, number: usize) -> io::Result<f64> {
    let (staged, kept) = (folder.join(format!("staged-{number}")), folder.join(number.to_string()));
    let began = Instant::now();
    let mut file = File::create_new(&staged)?;
    file.write_all(&[b'x'; 1_000])?;
    file.sync_all()?;
    fs::hard_link(&staged, &kept)?;
    fs::remove_file(&staged)?;
    File::open(folder)?.sync_all()?;
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

/// The directory of one round. Its files are truncated when this is dropped, and deleted with the [`Ground`].
///
/// They are not deleted at once, because a round would then slow down the next. ext4 does not reuse the inode of a file
/// that was deleted in the last minutes, and steps over all those inodes, one by one, whenever a file is made. After
/// some thousand records a file costs a millisecond more.
#[derive(Debug)]
pub struct Plot {
    folder: PathBuf,
}

impl Plot {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// The URL of a store in it.
    pub fn url(&self) -> String {
        format!("file:{}", self.path().join("store").display())
    }
}

impl Drop for Plot {
    fn drop(&mut self) {
        empty(&self.folder);
    }
}

/// Truncates every file in a folder. A file where that fails only takes up room for a while.
fn empty(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => empty(&path),
            Ok(_) | Err(_) => drop(File::create(&path)),
        }
    }
}
