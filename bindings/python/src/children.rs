//! Handlers in child processes, one job at a time in each (`--processes=N`).
//!
//! 1. A driver for each child starts it under a guard and waits until it is ready.
//! 2. A job goes to the driver that has been idle for the shortest time, or waits for the next one. The driver sends it to
//!    its child, and the lease's end when that is renewed.
//! 3. When the child answers, the driver settles the attempt and takes the next job.
//! 4. When the child dies, its attempt ends at once, and the error says how it died. The driver starts another child.
//! 5. A child that does not stop when its job must is killed when the worker gives the job up.
//!
//! Invariant: an attempt has its [mark](qo::Context::unfinished) until the child has answered, or neither it nor a
//! process that it started is left. The guard kills the child when the worker dies or the lease of its job is over.

use crate::bridge::Outcome;
use crate::frame::{self, FromChild, Inbox, Run, ToChild};
use crate::worker::outcome;
use futures::future::BoxFuture;
use qo::core::Json;
use qo::guard::{self, Ended, Guarded};
use qo::worker::Unfinished;
use qo::{Context, Error, ErrorKind, Failure, Handler};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::{FdFlags, fcntl_setfd};
use serde::Deserialize;
use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::pin::pin;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::Interest;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout, timeout_at};

/// The variable that names the socket of a child.
pub const SOCKET: &str = "QO_CHILD_SOCKET";
/// The variable by which the processes of a child are known.
const MARK: &str = "QO_CHILD";
/// How long a child may take to load its app.
const START: Duration = Duration::from_secs(120);
/// How long a child that gets no more jobs may take to end.
const END: Duration = Duration::from_secs(10);
/// How often a running child is told of a renewed lease.
const RENEWAL: Duration = Duration::from_secs(1);
/// Pauses between starts that fail: the first and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(10)];

/// How children are kept.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Described {
    /// How many.
    pub children: u32,
    /// What starts one.
    pub command: Vec<String>,
    /// The executable of the guard.
    pub guard: PathBuf,
    /// A child ends after this many jobs. Defaults to never.
    pub recycle_jobs: Option<u32>,
    /// A child ends when it holds more memory than this after a job. Defaults to never.
    pub recycle_mib: Option<u32>,
}

/// A job on its way to a child.
struct Job {
    /// Its number among the jobs of the lobby.
    number: u64,
    task: usize,
    payload: Json,
    context: Context,
    tell: oneshot::Sender<Outcome>,
    unfinished: Unfinished,
}

/// Where jobs meet drivers.
#[derive(Default)]
struct Lobby {
    waiting: Mutex<Waiting>,
    /// Tells that no more jobs come.
    closed: Notify,
}

#[derive(Default)]
struct Waiting {
    /// The number of the last job.
    last: u64,
    /// Drivers that have a child.
    ready: usize,
    /// Drivers that wait for a job.
    drivers: Vec<oneshot::Sender<Job>>,
    /// Jobs that wait for a driver.
    jobs: VecDeque<Job>,
    /// No more jobs come.
    is_closed: bool,
}

/// What a driver finds.
enum Next {
    Job(Job),
    /// It must wait.
    Later(oneshot::Receiver<Job>),
    /// No more jobs come.
    Closed,
}

impl Lobby {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> u64 {
        let mut waiting = self.waiting();
        waiting.last += 1;
        waiting.last
    }

    /// The worker has given a job up. If it still waits here, nothing of it has run.
    fn forget(&self, number: u64) {
        self.waiting().jobs.retain(|job| job.number != number);
    }

    fn is_closed(&self) -> bool {
        self.waiting().is_closed
    }

    fn enter(&self, mut job: Job) {
        let mut waiting = self.waiting();
        if waiting.is_closed {
            // Its teller is dropped, and says so.
            return;
        }
        while let Some(driver) = waiting.drivers.pop() {
            match driver.send(job) {
                Ok(()) => return,
                // This driver has left: its child has died.
                Err(back) => job = back,
            }
        }
        waiting.jobs.push_back(job);
    }

    fn next(&self) -> Next {
        let mut waiting = self.waiting();
        match waiting.jobs.pop_front() {
            Some(job) => Next::Job(job),
            None if waiting.is_closed => Next::Closed,
            None => {
                let (tell, told) = oneshot::channel();
                waiting.drivers.retain(|driver| !driver.is_closed());
                waiting.drivers.push(tell);
                Next::Later(told)
            }
        }
    }

    /// Waits for a job; none if no more come. A job that has come is not lost if this is dropped: see [`Drop`] of
    /// [`Called`].
    async fn call(&self) -> Option<Job> {
        match self.next() {
            Next::Job(job) => Some(job),
            Next::Closed => None,
            Next::Later(told) => Called { lobby: self, told: Some(told) }.answer().await,
        }
    }

    fn close(&self) {
        let mut waiting = self.waiting();
        waiting.is_closed = true;
        waiting.drivers.clear();
        waiting.jobs.clear();
        drop(waiting);
        self.closed.notify_waiters();
    }
}

/// A driver that has a child.
struct Ready<'a>(&'a Lobby);

impl<'a> Ready<'a> {
    fn new(lobby: &'a Lobby) -> Self {
        lobby.waiting().ready += 1;
        Self(lobby)
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        self.0.waiting().ready -= 1;
    }
}

/// A job that the worker waits for. If this is dropped, the worker has given it up, or it has ended.
struct Awaited {
    lobby: Arc<Lobby>,
    number: u64,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.lobby.forget(self.number);
    }
}

/// A driver that waits. If it stops waiting at the moment at which it gets a job, the job goes to another one.
struct Called<'a> {
    lobby: &'a Lobby,
    told: Option<oneshot::Receiver<Job>>,
}

impl Called<'_> {
    async fn answer(mut self) -> Option<Job> {
        let job = self.told.as_mut()?.await.ok();
        self.told = None;
        job
    }
}

impl Drop for Called<'_> {
    fn drop(&mut self) {
        if let Some(mut told) = self.told.take() {
            told.close();
            if let Ok(job) = told.try_recv() {
                self.lobby.enter(job);
            }
        }
    }
}

/// The children of a worker.
pub struct Children {
    lobby: Arc<Lobby>,
    drivers: Vec<tokio::task::JoinHandle<()>>,
}

impl Children {
    /// Starts the children, and returns when the first one is ready. An error if it does not start.
    pub async fn start(described: Described, tasks: Vec<String>) -> qo::Result<Self> {
        let (described, tasks, lobby) = (Arc::new(described), Arc::new(tasks), Arc::<Lobby>::default());
        let first = Child::start(&described, &tasks).await.map_err(|why| {
            Error::new(ErrorKind::Invalid, format!("a child process does not start: {why}"))
        })?;
        let mut first = Some(first);
        let drivers = (0..described.children)
            .map(|_| {
                let (described, tasks) = (Arc::clone(&described), Arc::clone(&tasks));
                let driver = Driver { described, tasks, lobby: Arc::clone(&lobby) };
                tokio::spawn(driver.run(first.take()))
            })
            .collect();
        Ok(Self { lobby, drivers })
    }

    /// A handler of a task.
    pub fn handler(&self, task: usize) -> ChildHandler {
        ChildHandler { lobby: Arc::clone(&self.lobby), task }
    }

    /// Ends the children when their jobs have ended, and waits until they are gone.
    pub async fn end(self) {
        self.lobby.close();
        futures::future::join_all(self.drivers).await;
    }
}

/// A task whose jobs run in child processes.
pub struct ChildHandler {
    lobby: Arc<Lobby>,
    task: usize,
}

impl Handler for ChildHandler {
    fn call(&self, payload: Json, context: Context) -> BoxFuture<'static, Outcome> {
        let (tell, told) = oneshot::channel();
        let (number, unfinished) = (self.lobby.number(), context.unfinished());
        let awaited = Awaited { lobby: Arc::clone(&self.lobby), number };
        self.lobby.enter(Job { number, task: self.task, payload, context, tell, unfinished });
        Box::pin(async move {
            let _awaited = awaited;
            told.await.unwrap_or_else(|_| Err(Failure::retry("the child processes have ended")))
        })
    }
}

/// Keeps one child.
struct Driver {
    described: Arc<Described>,
    tasks: Arc<Vec<String>>,
    lobby: Arc<Lobby>,
}

impl Driver {
    async fn run(self, first: Option<Child>) {
        let mut child = first;
        let mut pause = PAUSES[0];
        loop {
            let running = match child.take() {
                Some(child) => child,
                None => match Child::start(&self.described, &self.tasks).await {
                    Ok(child) => child,
                    Err(why) => {
                        tracing::error!("a child process does not start: {why}");
                        if !self.refuse(pause).await {
                            return;
                        }
                        pause = (pause * 2).min(PAUSES[1]);
                        continue;
                    }
                },
            };
            pause = PAUSES[0];
            if !self.drive(running).await {
                return;
            }
        }
    }

    /// Waits before the next start. If no driver has a child, it gives jobs back meanwhile; no attempt is used. Returns
    /// whether more may come.
    async fn refuse(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        while !self.lobby.is_closed() && Instant::now() < until {
            let is_alone = self.lobby.waiting().ready == 0;
            let wait = async {
                if is_alone {
                    return self.lobby.call().await;
                }
                self.lobby.closed.notified().await;
                None
            };
            // In short waits: a driver may lose its child meanwhile.
            let look = until.min(Instant::now() + PAUSES[0]);
            if let Ok(Some(job)) = timeout_at(look, wait).await {
                let _ = job.tell.send(Err(Failure::snooze(pause)));
            }
        }
        !self.lobby.is_closed()
    }

    /// Runs jobs on a child until it ends. Returns whether another one is needed.
    async fn drive(&self, mut child: Child) -> bool {
        let _ready = Ready::new(&self.lobby);
        loop {
            let job = tokio::select! {
                biased;
                ended = child.process.ended() => {
                    tracing::warn!("an idle child process has ended: {}", told(&ended, child.oom_kills[0]));
                    return true;
                }
                job = self.lobby.call() => job,
            };
            let Some(job) = job else {
                child.end().await;
                return false;
            };
            if !child.run(job, &self.tasks).await {
                return true;
            }
            if let Some(why) = child.is_worn(&self.described) {
                tracing::debug!("a child process is replaced: {why}");
                child.end().await;
                return true;
            }
        }
    }
}

/// A child that is ready.
struct Child {
    process: Guarded,
    socket: Socket,
    /// When a renewed lease is passed on.
    renewals: Interval,
    jobs: u32,
    /// The kernel's count of processes that it killed for their memory, at the last two looks, the older first.
    oom_kills: [u64; 2],
}

impl Child {
    async fn start(described: &Described, tasks: &[String]) -> Result<Self, String> {
        let (mut process, stream) = launch(described).await.map_err(|error| {
            format!("{} under {}: {error}", described.command.join(" "), described.guard.display())
        })?;
        let mut socket = Socket::new(stream);
        let oom_kills = oom_kills();
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
                ended = process.ended() => Err(told(&ended, oom_kills)),
            }
        };
        let ready = timeout(START, ready).await;
        ready.unwrap_or_else(|_| Err(format!("it was not ready after {START:?}")))?;
        let mut renewals = interval(RENEWAL);
        renewals.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self { process, socket, renewals, jobs: 0, oom_kills: [oom_kills; 2] })
    }

    /// Runs a job. Returns whether the child lives.
    async fn run(&mut self, job: Job, tasks: &[String]) -> bool {
        let Job { number: _, task, payload, context, mut tell, unfinished } = job;
        if tell.is_closed() {
            // The worker gave it up before it began.
            return true;
        }
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
        let why = told(&ended, self.oom_kills[0]);
        tracing::warn!(job = %context.job(), task = %context.task(), "its child process has ended: {why}");
        drop(unfinished);
        let _ = tell.send(Err(Failure::retry(format_args!("the child process has ended: {why}"))));
        false
    }

    /// Why it should be replaced, if so.
    fn is_worn(&self, described: &Described) -> Option<String> {
        if let Some(jobs) = described.recycle_jobs.filter(|jobs| self.jobs >= *jobs) {
            return Some(format!("it ran {jobs} jobs"));
        }
        let most = described.recycle_mib?;
        let mib = memory_mib(self.process.id()?)?;
        (mib > u64::from(most)).then(|| format!("it holds {mib} MiB"))
    }

    /// Ends it: no more jobs come.
    async fn end(self) {
        let Self { mut process, socket, .. } = self;
        drop(socket);
        if timeout(END, process.ended()).await.is_err() {
            tracing::warn!("a child process does not end and is killed");
            process.stop(Duration::ZERO);
            process.ended().await;
        }
    }
}

/// The worker's end of the socket. It never waits for a child that does not read.
struct Socket {
    stream: tokio::net::UnixStream,
    inbox: Inbox,
    /// What the child has not taken yet, from `sent` on.
    outgoing: Vec<u8>,
    sent: usize,
}

impl Socket {
    fn new(stream: tokio::net::UnixStream) -> Self {
        Self { stream, inbox: Inbox::default(), outgoing: Vec::new(), sent: 0 }
    }

    /// The next message of the child; none when it has closed its end. Writes meanwhile what is left to write. May be
    /// dropped and called again.
    async fn next(&mut self) -> Option<FromChild> {
        loop {
            if let Some(message) = self.inbox.next().ok()? {
                return Some(message);
            }
            let interest = match self.is_flushed() {
                true => Interest::READABLE,
                false => Interest::READABLE.add(Interest::WRITABLE),
            };
            let ready = self.stream.ready(interest).await.ok()?;
            if ready.is_writable() {
                self.flush();
            }
            if ready.is_readable() && !self.read()? {
                return None;
            }
        }
    }

    /// Says something, as soon as the child takes it.
    fn say(&mut self, message: &ToChild) {
        // A payload that is too large for a frame would be too large for the store.
        if let Ok(frame) = frame::encode(message) {
            self.outgoing.extend_from_slice(&frame);
        }
        self.flush();
    }

    fn is_flushed(&self) -> bool {
        self.sent == self.outgoing.len()
    }

    /// Writes what the child takes now.
    fn flush(&mut self) {
        while !self.is_flushed() {
            match self.stream.try_write(&self.outgoing[self.sent..]) {
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The child is gone; its end is noticed elsewhere.
                Err(_) => break,
            }
        }
        self.outgoing.clear();
        self.sent = 0;
    }

    /// Reads what is there. Whether more may come; none after an error.
    fn read(&mut self) -> Option<bool> {
        match self.stream.try_read_buf(self.inbox.room()) {
            Ok(0) => Some(false),
            Ok(_) => Some(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Some(true),
            Err(_) => None,
        }
    }

    /// A message that a child said before it ended.
    fn left(&mut self) -> Option<FromChild> {
        loop {
            if let Some(message) = self.inbox.next().ok()? {
                return Some(message);
            }
            match self.stream.try_read_buf(self.inbox.room()) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return None,
            }
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

/// How a child ended. The kernel's count of out-of-memory kills tells whether it may have been one of them.
fn told(ended: &Ended, oom_kills_before: u64) -> String {
    let is_kill = matches!(ended, Ended::Killed(signal) if *signal == rustix::process::Signal::KILL.as_raw());
    if is_kill && oom_kills() > oom_kills_before {
        return format!("{ended}, by the kernel because memory ran out");
    }
    ended.to_string()
}

/// How many processes the kernel has killed for their memory. 0 if it does not tell.
fn oom_kills() -> u64 {
    let told = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let count = told.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok());
    count.unwrap_or(0)
}

/// The memory that a process holds.
fn memory_mib(process: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let kib: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok())?;
    Some(kib >> 10)
}
