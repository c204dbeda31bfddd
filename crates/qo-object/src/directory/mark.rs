//! The mark of a directory: a file with the number of the newest record, written after it and not synced. See
//! [`format`](crate::format).

use super::Directory;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::SystemTime;

/// The length of a mark.
const MARK: usize = "qo mark 00000000000000000000 00000000\n".len();

/// The text of a mark. Its checksum tells a damaged one.
fn mark_of(number: u64) -> String {
    let text = format!("qo mark {number:020}");
    format!("{text} {:08x}\n", crc32fast::hash(text.as_bytes()))
}

/// The number in a mark; none if it is damaged.
fn marked(file: &File) -> Option<u64> {
    let mut bytes = [0; MARK];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let number = std::str::from_utf8(&bytes).ok()?.split(' ').nth(2)?.parse().ok()?;
    (mark_of(number).as_bytes() == bytes).then_some(number)
}

impl Directory {
    /// Marks that the log has reached a record, which is on the disk. It costs a read and a write of the page cache. A
    /// process that is overtaken between the two sets the mark back by a record or two; the next record makes up for
    /// it.
    pub(crate) fn mark(&self, number: u64) {
        let Some(file) = &self.mark else { return };
        if marked(file).is_none_or(|before| before < number) {
            // If this fails, the mark is behind, and does not vouch for the last records.
            file.write_all_at(mark_of(number).as_bytes(), 0).ok();
        }
    }

    /// The record that the log has reached, by the mark; 0 if there is none.
    pub(crate) fn marked(&self) -> u64 {
        // By its name: the open file may be the mark of a directory that is gone.
        File::open(self.path.join("mark")).ok().and_then(|file| marked(&file)).unwrap_or(0)
    }

    /// When the mark was last written, if files of other processes may show late here.
    pub(crate) fn marked_late(&self) -> Option<SystemTime> {
        let mark = std::fs::metadata(self.path.join("mark")).ok().filter(|_| self.is_remote)?;
        mark.modified().ok()
    }
}
