//! A child that is ready, and how it starts and ends.

use super::Described;
use super::lobby::Job;
use super::socket::Socket;
use crate::fault::{self, Place};
use crate::frame::{FromChild, Run, ToChild};
use crate::worker::outcome;
use futures::FutureExt;
use qo::Failure;
use qo::guard::{self, Ended, Guarded, oom_kills, told};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::{FdFlags, fcntl_setfd};
use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::pin::pin;
use std::process::Command;
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

/// The variable that names the socket of a child.
const SOCKET: &str = "QO_CHILD_SOCKET";
/// The variable by which the processes of a child are known.
const MARK: &str = "QO_CHILD";
/// How long a child may take to load its app.
const START: Duration = Duration::from_secs(120);
/// How long a child that gets no more jobs may take to end.
const END: Duration = Duration::from_secs(10);
/// How often a running child is told of a renewed lease.
const RENEWAL: Duration = Duration::from_secs(1);
/// After this long without a job a child has no deadline.
const IDLE: Duration = Duration::from_millis(50);

/// A child that is ready.
pub struct Child {
    process: Guarded,
    socket: Socket,
    /// When a renewed lease is passed on.
    renewals: Interval,
    jobs: u32,
    /// The kernel's count of processes that it killed for their memory, at the last two looks, the older first.
    oom_kills: [u64; 2],
}

impl Child {
    pub async fn start(described: &Described, tasks: &[String]) -> Result<Self, String> {
        let (mut process, stream) = launch(described).await.map_err(|error| {
            format!("{} under {}: {error}", described.command.join(" "), described.guard.display())
        })?;
        let mut socket = Socket::new(stream);
        let oom_kills_before = oom_kills();
        let ready = async {
            tokio::select! {
                message = socket.next() => match message {
                    Some(FromChild::Ready(has)) => match tasks.iter().find(|task| !has.contains(task)) {
                        None => Ok(()),
                        Some(task) => Err(format!("its app has no task {task}; has the source changed?")),
                    },
                    Some(FromChild::Failed(why)) => Err(why),
                    _ => Err("it closed its socket".to_owned()),
                },
                ended = process.ended() => Err(told(&ended, oom_kills_before, oom_kills())),
            }
        };
        let ready = timeout(START, ready).await;
        ready.unwrap_or_else(|_| Err(format!("it was not ready after {START:?}")))?;
        let mut renewals = interval(RENEWAL);
        renewals.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self { process, socket, renewals, jobs: 0, oom_kills: [oom_kills_before; 2] })
    }

    /// Runs a job. Returns whether the child lives.
    pub async fn run(&mut self, job: Job, tasks: &[String]) -> bool {
        let Job { number: _, task, payload, context, mut tell, unfinished } = job;
        if tell.is_closed() {
            // The worker gave it up before it began.
            return true;
        }
        fault::here(Place::Child);
        self.jobs += 1;
        self.process.follow(&context);
        let mut lease = context.extend_lease();
        let run = Run {
            task,
            name: tasks.get(task).cloned().unwrap_or_default(),
            payload: payload.as_str().to_owned(),
            job: context.job().to_string(),
            queue: context.queue().to_string(),
            group: context.group().to_string(),
            key: context.key().map(ToString::to_string),
            attempt: context.attempt(),
            max_attempts: context.max_attempts(),
            token: context.fence_token().0,
            traceparent: context.traceparent().map(String::from),
            lease_until_ms: lease.as_millis(),
        };
        // If the child is gone, its end is noticed below.
        self.socket.say(&ToChild::Run(Box::new(run)));
        let mut cancelled = pin!(context.cancelled());
        let mut is_told = false;
        let ended = loop {
            tokio::select! {
                biased;
                message = self.socket.next() => match message {
                    Some(FromChild::Done(word, text, seconds)) => {
                        if context.is_cancelled() {
                            // Its lease may be lost, and the child lives on.
                            self.process.leave();
                        }
                        drop(unfinished);
                        let _ = tell.send(outcome(&word, text, seconds));
                        return true;
                    }
                    Some(FromChild::Progress(fraction, note)) => context.progress(fraction, &note),
                    Some(FromChild::Log(text)) => context.log(&text),
                    Some(FromChild::Ready(_) | FromChild::Failed(_)) => {}
                    None => break self.process.ended().await,
                },
                ended = self.process.ended() => break ended,
                reason = &mut cancelled, if !is_told => {
                    is_told = true;
                    self.socket.say(&ToChild::Stop(reason.to_string()));
                }
                () = tell.closed() => {
                    // The worker has given the job up: its grace or its lease is over.
                    self.process.stop(Duration::ZERO);
                    break self.process.ended().await;
                }
                _ = self.renewals.tick() => {
                    self.oom_kills = [self.oom_kills[1], oom_kills()];
                    let now = context.extend_lease();
                    // A handler that does not ask does not read: the line must not fill up.
                    if now != lease && self.socket.is_flushed() {
                        lease = now;
                        self.socket.say(&ToChild::Lease(now.as_millis()));
                    }
                }
            }
        };
        // What it said before it died.
        while let Some(message) = self.socket.left() {
            match message {
                FromChild::Done(word, text, seconds) => {
                    drop(unfinished);
                    let _ = tell.send(outcome(&word, text, seconds));
                    return false;
                }
                FromChild::Log(text) => context.log(&text),
                _ => {}
            }
        }
        let why = told(&ended, self.oom_kills[0], oom_kills());
        tracing::warn!(job = %context.job(), task = %context.task(), "its child process has ended: {why}");
        drop(unfinished);
        let _ = tell.send(Err(Failure::retry(format_args!("the child process has ended: {why}"))));
        false
    }

    /// Whether it has ended, now or before. It says so.
    pub fn has_ended(&mut self) -> bool {
        let ended = self.process.ended().now_or_never();
        ended.inspect(|ended| self.say_idle_end(ended)).is_some()
    }

    /// Waits for a job, which `call` brings. None if no more come; an error if the child ends meanwhile.
    pub async fn idle(&mut self, call: impl Future<Output = Option<Job>>) -> Result<Option<Job>, ()> {
        let mut call = pin!(call);
        loop {
            let (is_idle, follows) = (tokio::time::sleep(IDLE), self.process.follows());
            tokio::select! {
                biased;
                ended = self.process.ended() => {
                    self.say_idle_end(&ended);
                    return Err(());
                }
                job = &mut call => return Ok(job),
                // The lease of its last job may be lost.
                () = is_idle, if follows => self.process.leave(),
            }
        }
    }

    fn say_idle_end(&self, ended: &Ended) {
        let why = told(ended, self.oom_kills[0], oom_kills());
        tracing::warn!("an idle child process has ended: {why}");
    }

    /// Why it should be replaced, if so.
    pub fn is_worn(&self, described: &Described) -> Option<String> {
        if let Some(jobs) = described.recycle_jobs.filter(|jobs| self.jobs >= *jobs) {
            return Some(format!("it ran {jobs} jobs"));
        }
        let most = described.recycle_mib?;
        let mib = memory_mib(self.process.id()?)?;
        (mib > u64::from(most)).then(|| format!("it holds {mib} MiB"))
    }

    /// Ends it: no more jobs come.
    pub async fn end(self) {
        let Self { mut process, socket, .. } = self;
        drop(socket);
        if timeout(END, process.ended()).await.is_err() {
            tracing::warn!("a child process does not end and is killed");
            process.stop(Duration::ZERO);
            process.ended().await;
        }
    }
}

/// Starts a child under its guard, with its end of a socket.
async fn launch(described: &Described) -> io::Result<(Guarded, tokio::net::UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let theirs = OwnedFd::from(theirs);
    let number = theirs.as_raw_fd();
    let mut command: Command = guard::command(&described.guard);
    command.args(&described.command).env(SOCKET, number.to_string());
    let command = inherit(command, theirs);
    let mark = (MARK, uuid::Uuid::new_v4().to_string());
    let process = Guarded::start(command, mark).await?;
    Ok((process, tokio::net::UnixStream::from_std(ours)?))
}

/// Leaves a descriptor open in the process that a command starts. The guard and its launcher pass it on.
fn inherit(mut command: Command, descriptor: OwnedFd) -> Command {
    // SAFETY: between fork and exec it makes one system call, `fcntl`, which is async-signal-safe.
    unsafe {
        command.pre_exec(move || Ok(fcntl_setfd(&descriptor, FdFlags::empty())?));
    }
    command
}

/// The memory that a process holds.
fn memory_mib(process: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let kib: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok())?;
    Some(kib >> 10)
}
