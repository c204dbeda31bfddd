//! A program and all its descendants.

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_process_group, wait, waitid,
};
use std::io;
use std::time::Duration;
use tokio::signal::unix::Signal as Heard;
use tokio::time::timeout;

/// Shortest and longest pause between two looks at killed processes. The end of a child cuts a pause short.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(200));

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Exited(i32),
    Killed(i32),
}

impl From<WaitStatus> for Status {
    fn from(status: WaitStatus) -> Self {
        let killed = || Self::Killed(status.terminating_signal().unwrap_or(0));
        status.exit_status().map_or_else(killed, Self::Exited)
    }
}

/// From now on a descendant whose parent has ended becomes a child of this process.
pub fn adopt() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// A program, which leads a process group, and its descendants. This process has no other children.
pub struct Family {
    program: Pid,
    /// How the program ended, if it has been waited for.
    status: Option<Status>,
}

impl Family {
    pub fn new(program: Pid) -> Self {
        Self { program, status: None }
    }

    /// Whether the program has ended. Waits for adopted children that have.
    pub fn has_ended(&mut self) -> io::Result<bool> {
        // The program itself is not reaped yet: until it is, the kernel does not reuse its id and its group's.
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if waitid(WaitId::Pid(self.program), ended)?.is_some() {
            return Ok(true);
        }
        if cfg!(target_os = "linux") {
            self.wait()?;
        }
        Ok(self.status.is_some())
    }

    /// Waits for all children that have ended. Returns whether others are left.
    fn wait(&mut self) -> io::Result<bool> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((child, status))) if child == self.program => self.status = Some(status.into()),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return Ok(true),
                Err(Errno::CHILD) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a signal to all of them.
    pub fn signal(&self, signal: Signal) {
        self.signal_group(signal);
        self.signal_others(signal);
    }

    /// Signals the group in one step, so that no member can fork and escape.
    fn signal_group(&self, signal: Signal) {
        if self.status.is_none() {
            // It may have ended just now.
            let _ = kill_process_group(self.program, signal);
        }
    }

    /// Signals descendants that `signal_group` does not reach. Returns whether there were any, and whether this process
    /// may signal any of them.
    #[cfg(target_os = "linux")]
    fn signal_others(&self, signal: Signal) -> (bool, bool) {
        let others = tree::below(rustix::process::getpid());
        // A program that has been reaped has lost its group's id: the members of the group are signalled one by one.
        let is_other = |process: &tree::Process| self.status.is_some() || process.group != Some(self.program);
        let others = others.iter().filter(|process| is_other(process));
        others.fold((false, false), |(_, reached), other| (true, other.signal(signal) || reached))
    }

    #[cfg(not(target_os = "linux"))]
    fn signal_others(&self, _: Signal) -> (bool, bool) {
        (false, false)
    }

    /// Kills all of them and waits until none is left. A process that forks cannot escape: what it leaves behind
    /// becomes a child of this process, and the next round finds it.
    pub async fn end(&mut self, child: &mut Heard) -> io::Result<Status> {
        let mut pause = PAUSE.0;
        loop {
            self.signal_group(Signal::KILL);
            let are_left = self.wait()?;
            match (self.status, are_left) {
                (Some(status), false) => return Ok(status),
                (None, false) => return Err(io::Error::other("the program is not a child of its guard")),
                (_, true) => {}
            }
            let (found, reached) = self.signal_others(Signal::KILL);
            if let (Some(status), true, false) = (self.status, found, reached) {
                // Everything that is left runs as another user: no signal of this process reaches it.
                return Ok(status);
            }
            let _ = timeout(pause, child.recv()).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }
}

/// The tree of processes, as `/proc` shows it.
#[cfg(target_os = "linux")]
mod tree {
    use rustix::fd::OwnedFd;
    use rustix::io::Errno;
    use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    /// A descendant. The kernel may give its id to another process at any time; the handle stays with this one.
    pub struct Process {
        pid: Pid,
        pub group: Option<Pid>,
        started: u64,
        handle: Result<OwnedFd, Errno>,
    }

    impl Process {
        /// The process of that id, if it is a child of that parent.
        fn open(pid: Pid, parent: Pid) -> Option<Self> {
            // Open the handle first: if the process that is looked at is not the one of the handle, the handle's
            // process is dead.
            let handle = pidfd_open(pid, PidfdFlags::empty());
            let look = Look::at(pid)?;
            let is_child = look.parent == raw(parent);
            is_child.then_some(Self { pid, group: Pid::from_raw(look.group), started: look.started, handle })
        }

        /// Sends it a signal. Returns whether this process may.
        pub fn signal(&self, signal: Signal) -> bool {
            let sent = match &self.handle {
                Ok(handle) => pidfd_send_signal(handle, signal),
                Err(Errno::NOSYS) => kill_process(self.pid, signal),
                // It has ended.
                Err(_) => return true,
            };
            sent != Err(Errno::PERM)
        }
    }

    /// What `/proc/PID/stat` says of a process.
    struct Look {
        parent: i32,
        group: i32,
        /// When it started. Together with the id it identifies the process.
        started: u64,
    }

    impl Look {
        fn at(pid: Pid) -> Option<Self> {
            let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
            let stat = String::from_utf8_lossy(&stat);
            // The name before it may contain any character.
            let words: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
            let number = |index: usize| words.get(index)?.parse::<i64>().ok();
            Some(Self {
                parent: i32::try_from(number(1)?).ok()?,
                group: i32::try_from(number(2)?).ok()?,
                started: u64::try_from(number(19)?).ok()?,
            })
        }
    }

    /// All descendants of a process, except those that are born or orphaned during the walk.
    pub fn below(root: Pid) -> Vec<Process> {
        // The list of children depends on the kernel's configuration. Without it every process is looked at.
        let lists = Path::new("/proc/thread-self/children").exists();
        let by_parent = if lists { BTreeMap::new() } else { by_parent() };
        let mut found = Vec::new();
        let mut parents: Vec<(Pid, u64)> =
            Look::at(root).map(|look| (root, look.started)).into_iter().collect();
        while let Some((parent, started)) = parents.pop() {
            let children = if lists {
                children(parent)
            } else {
                by_parent.get(&raw(parent)).cloned().unwrap_or_default()
            };
            let children: Vec<_> =
                children.into_iter().filter_map(|child| Process::open(child, parent)).collect();
            // If the parent has ended, the kernel may have given its id to another process, and these are that
            // process's children.
            if Look::at(parent).is_none_or(|look| look.started != started) {
                continue;
            }
            parents.extend(children.iter().map(|child| (child.pid, child.started)));
            found.extend(children);
        }
        found
    }

    /// The children of all threads of a process.
    fn children(parent: Pid) -> Vec<Pid> {
        let threads = fs::read_dir(format!("/proc/{}/task", parent.as_raw_nonzero())).into_iter().flatten();
        let lists =
            threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
        lists.flat_map(|list| list.split_whitespace().filter_map(pid).collect::<Vec<_>>()).collect()
    }

    fn by_parent() -> BTreeMap<i32, Vec<Pid>> {
        let mut map: BTreeMap<i32, Vec<Pid>> = BTreeMap::new();
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let found = process.file_name().to_str().and_then(pid);
            if let Some((found, look)) = found.and_then(|found| Some((found, Look::at(found)?))) {
                map.entry(look.parent).or_default().push(found);
            }
        }
        map
    }

    fn raw(pid: Pid) -> i32 {
        pid.as_raw_nonzero().get()
    }

    fn pid(text: &str) -> Option<Pid> {
        Pid::from_raw(text.parse().ok()?)
    }
}
