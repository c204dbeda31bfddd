//! Processes as the kernel knows them, and the workers of the fleet.

use qo_judge::now_ns;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Child;

/// Sends a signal. The process may be gone by now.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// A process and its parent.
struct Entry {
    pid: u32,
    parent: u32,
}

fn numbers() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("a process table").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn table() -> Vec<Entry> {
    let read = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut words = stat.rsplit_once(") ")?.1.split(' ');
        if words.next()? == "Z" {
            return None;
        }
        Some(Entry { pid, parent: words.next()?.parse().ok()? })
    };
    numbers().filter_map(read).collect()
}

/// The processes that a worker started, which are guards, and the processes that the guards started.
pub fn below(root: u32) -> (Vec<u32>, Vec<u32>) {
    let table = table();
    let mut family = BTreeSet::from([root]);
    let (mut guards, mut programs) = (Vec::new(), Vec::new());
    while let Some(found) =
        table.iter().find(|entry| family.contains(&entry.parent) && !family.contains(&entry.pid))
    {
        family.insert(found.pid);
        if found.parent == root { guards.push(found.pid) } else { programs.push(found.pid) }
    }
    (guards, programs)
}

/// Processes with this entry in their environment, even if their parents have ended.
pub fn marked(entry: &str) -> Vec<u32> {
    let has = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|found| found == entry.as_bytes())
    };
    numbers().filter(|pid| *pid != std::process::id()).filter(has).collect()
}

/// A worker of the fleet.
pub struct Worker {
    pub number: u32,
    pub child: Child,
    /// The file that it logs to.
    pub log: PathBuf,
    /// It was stopped once: a lease that ended meanwhile may end the process.
    pub was_stopped: bool,
}

impl Worker {
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, which: Signal) {
        signal(self.id(), which);
    }

    /// Stops it, with everything below it or alone, and returns since when.
    pub fn stop(&mut self, with_all: bool) -> u64 {
        self.was_stopped = true;
        let since_ns = now_ns();
        self.signal(Signal::STOP);
        if with_all {
            let (guards, programs) = below(self.id());
            guards.into_iter().chain(programs).for_each(|pid| signal(pid, Signal::STOP));
        }
        since_ns
    }

    /// Lets it and everything below it go on.
    pub fn go_on(&self) {
        let (guards, programs) = below(self.id());
        programs.into_iter().chain(guards).for_each(|pid| signal(pid, Signal::CONT));
        self.signal(Signal::CONT);
    }

    /// Kills it and waits for its end.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }

    /// The end of its log.
    pub fn last_words(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let from = text.ceil_char_boundary(text.len().saturating_sub(600));
        text[from..].to_owned()
    }

    /// What is wrong with the way it ended, or with its log.
    pub fn complaint(&self, code: Option<i32>) -> Option<String> {
        let fine = match code {
            // The store was away when it started; its supervisor starts it again.
            Some(0 | 75) => true,
            // A handler outlived its lease.
            Some(70) => self.was_stopped,
            // The attacker killed it.
            None => true,
            Some(_) => false,
        };
        let said = self.last_words();
        (!fine || said.contains("panicked"))
            .then(|| format!("worker {} ended with {code:?}: {said}", self.number))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Until it is waited for, its id is not reused.
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.kill();
        }
        let _ = fs::remove_file(&self.log);
    }
}
