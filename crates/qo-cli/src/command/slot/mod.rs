//! `qo slot`: any command under a limit, without being a job.

mod guarded;
mod held;
mod keeper;

use super::argument;
use crate::host::Host;
use crate::output::Screen;
use crate::place::Place;
use crate::trouble::{Done, INTERRUPTED, Trouble};
use clap::{Args, Subcommand};
use guarded::{Ended, Guarded};
use held::Held;
use keeper::Keeper;
use qo::client::pause_between_tries;
use qo::core::millis;
use qo::core::{GroupRef, LeaseId, Name, SlotRequest, caps};
use qo::{Error, ErrorKind};
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// Run commands under a limit.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  qo slot run --group backup --limit 1 -- ./backup.sh")]
pub enum Slot {
    Run(Run),
}

/// Take a slot, run a command, give the slot back. The slots are shared with the jobs of the group.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qo slot run --group backup --limit 1 -- ./backup.sh
  qo slot run --group gpu --slots 2 --wait 10m -- python train.py
  qo slot run --group deploy/eu --limit 1 --no-wait -- make deploy    exit code 4 if it is taken
  qo --store s3://bucket/prefix slot run --objects --group nightly --limit 1 -- ./nightly.sh

The exit code is that of the command. If the command was told to stop and exits with 0, it is 128 plus the signal, as for
any command that a signal ends. The command does not outlive its slot: if the lease cannot be renewed it is killed.
Its environment has QO_GROUP and QO_FENCE_TOKEN.")]
pub struct Run {
    /// The group: GROUP or GROUP/KEY.
    #[arg(long, value_parser = argument::group)]
    group: GroupRef,
    /// A limit for the group where no other source has set one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=caps::LIMIT as i64), allow_negative_numbers = true)]
    limit: Option<u32>,
    /// How many slots.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=caps::LIMIT as i64), allow_negative_numbers = true)]
    slots: u32,
    /// How long to wait for them [default: for ever].
    #[arg(long, value_name = "TIME", value_parser = argument::duration, allow_hyphen_values = true, conflicts_with = "no_wait")]
    wait: Option<u64>,
    /// Do not wait: exit code 4 if they are taken. With --objects, a slot whose holder was killed stays taken for such
    /// a command: to know that the lease is over, it would have to watch the slot for a whole lease.
    #[arg(long)]
    no_wait: bool,
    /// The lease, which is renewed while the command runs [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = argument::duration, allow_hyphen_values = true)]
    lease: Option<u64>,
    /// The name of the holder: a label for people [default: the command's name].
    #[arg(long, value_name = "NAME", value_parser = argument::name)]
    name: Option<Name>,
    /// How long the command may take to stop after Ctrl-C.
    #[arg(long, value_name = "TIME", value_parser = argument::duration, allow_hyphen_values = true, default_value = "10s")]
    grace: u64,
    /// Take a slot that is an object in a bucket (`s3://…`), without reading the namespace there. Such slots are
    /// counted apart from those of jobs. Every program that uses the group must name the same limit, up to 50.
    #[arg(long, requires = "limit", conflicts_with = "slots")]
    objects: bool,
    /// The command.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Keeps stdin for the command, because the guard's stdin is the socket to this process. A terminal is not passed on: a
/// command in a process group of its own may not read from it.
pub fn keep_stdin() -> Option<OwnedFd> {
    use std::io::IsTerminal;
    let stdin = std::io::stdin();
    if stdin.is_terminal() { None } else { rustix::io::dup(&stdin).ok() }
}

impl Slot {
    /// Runs a command.
    pub async fn run(self, place: &Place, screen: &mut Screen, stdin: Option<OwnedFd>) -> Done {
        let Self::Run(run) = self;
        let mut signals = Signals::listen()?;
        let request = run.request(place);
        request.check()?;
        let keeper = match run.objects {
            true => Keeper::Objects(
                qo::slot_objects(&place.settings.store).map_err(|error| place.explained(error))?,
            ),
            false => {
                let store = place.open().await?;
                place.tell_hold(&store, screen).await?;
                Keeper::Namespace(store)
            }
        };
        let Some(held) = run.acquire(&keeper, screen, request, &mut signals).await? else {
            screen.say("interrupted while waiting; no slot is held");
            return Err(Trouble::Exit(INTERRUPTED));
        };
        let ended = run.hold(&held, &place.host, screen, stdin, &mut signals).await;
        let returned = held.give_back().await;
        if let Err(error) = returned {
            screen.warn(format_args!(
                "the slot could not be given back: {error}; it is free again when its lease ends"
            ));
        }
        let (ended, stopped) = ended?;
        match ended {
            Ended::Exited(0) => match stopped {
                None => Ok(()),
                // Many commands exit with 0 after SIGTERM. That is no success.
                Some(Stopped::Signal(signal)) => {
                    screen.say("the command was told to stop and exited with 0; its work may be unfinished");
                    Err(Trouble::Exit(u8::try_from(128 + signal).unwrap_or(255)))
                }
                Some(Stopped::Lost) => {
                    held.lost().iter().for_each(|error| screen.error(error));
                    Err(Trouble::Exit(75))
                }
            },
            Ended::Exited(code) => Err(Trouble::Exit(u8::try_from(code).unwrap_or(1))),
            Ended::Killed(signal) => {
                let code = u8::try_from(128 + signal).unwrap_or(255);
                if let Some(error) = held.lost() {
                    screen.error(&error);
                    return Err(Trouble::Exit(75));
                }
                Err(Trouble::Exit(code))
            }
            Ended::Failed(why) => {
                // The exit code of a shell for a command that it does not find.
                screen.error(&Error::new(ErrorKind::NotFound, why));
                Err(Trouble::Exit(127))
            }
        }
    }
}

/// Why a command was told to stop.
#[derive(Debug, Clone, Copy)]
enum Stopped {
    /// A signal to this process, or to all processes.
    Signal(i32),
    /// The slot is lost.
    Lost,
}

impl Run {
    fn request(&self, place: &Place) -> SlotRequest {
        let holder = self.name.clone().unwrap_or_else(|| self.default_name());
        let lease_ms = self.lease.unwrap_or_else(|| millis(place.settings.worker.lease));
        let id = LeaseId(uuid::Uuid::new_v4());
        let request = SlotRequest::new(id, self.group.clone(), holder, lease_ms);
        SlotRequest { slots: self.slots, limit: self.limit, ..request }
    }

    /// The command's name and this process's id, as a valid name.
    fn default_name(&self) -> Name {
        let program = self.command.first().map_or("", String::as_str);
        let program = program.rsplit('/').next().unwrap_or(program);
        let fine = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '_' };
        let program: String = program.chars().take(100).map(fine).collect();
        let name = format!("{}-{}", program.trim_start_matches(['.', '-']), std::process::id());
        Name::parse("name", &name)
            .or_else(|_| Name::parse("name", "slot"))
            .unwrap_or_else(|_| unreachable!("\"slot\" is a name"))
    }

    /// Waits for slots. None if a signal ended the wait.
    async fn acquire(
        &self,
        keeper: &Keeper,
        screen: &mut Screen,
        request: SlotRequest,
        signals: &mut Signals,
    ) -> Done<Option<Held>> {
        let deadline = self.wait.map(|ms| Instant::now() + Duration::from_millis(ms));
        let poll = keeper.poll();
        let started = Instant::now();
        let mut told = false;
        loop {
            let seen = keeper.seen().await;
            let sent = Instant::now();
            match keeper.acquire(&request).await {
                Ok(Some(slot)) => return Ok(Some(Held::new(keeper.clone(), &request, slot, sent))),
                Ok(None) if self.no_wait || is_past(deadline) => return Err(self.taken().into()),
                Ok(None) => {}
                // The outcome is unknown: ask again with the same id, which may have been granted.
                Err(error) if error.kind() == ErrorKind::Unknown && !self.no_wait && !is_past(deadline) => {}
                Err(error) => return Err(error.into()),
            }
            if !std::mem::replace(&mut told, true) {
                screen.say(format_args!("waiting for a slot of {}", self.group));
            }
            let until =
                deadline.map_or(Instant::now() + poll, |deadline| deadline.min(Instant::now() + poll));
            let pause = async {
                let _ = tokio::time::timeout_at(until, keeper.change(seen)).await;
                // A busy store changes all the time, and each try is a write.
                tokio::time::sleep_until(until.min(sent + pause_between_tries(started.elapsed()))).await;
            };
            tokio::select! {
                () = pause => {}
                _ = signals.heard() => return Ok(None),
            }
        }
    }

    fn taken(&self) -> Error {
        let mut message = format!("all slots of {} are taken, or too few are free", self.group);
        if self.objects {
            let lease = "; a slot whose holder is gone is taken by a command that waits for it for a whole lease, \
                         not with --no-wait";
            message.push_str(lease);
        }
        Error::new(ErrorKind::LimitReached, message)
    }

    /// Runs the command while the slot is held. Returns how it ended, and why it was told to stop, if it was.
    async fn hold(
        &self,
        held: &Held,
        host: &Host,
        screen: &mut Screen,
        stdin: Option<OwnedFd>,
        signals: &mut Signals,
    ) -> Done<(Ended, Option<Stopped>)> {
        let variables = [("QO_GROUP", self.group.to_string()), ("QO_FENCE_TOKEN", held.token().to_string())];
        let mut guarded =
            Guarded::start(&self.command, &variables, stdin, held.trusted_until(), host).await?;
        let grace = Duration::from_millis(self.grace);
        let mut stopped = None;
        loop {
            tokio::select! {
                // Poll signals first: a signal to all processes must be seen before the end of the command that it
                // caused.
                biased;
                signal = signals.heard() => {
                    screen.say("stopping the command; its slot is given back when it has ended");
                    stopped = stopped.or(Some(Stopped::Signal(signal)));
                    guarded.stop(grace).await;
                }
                ended = guarded.ended() => {
                    let ended = ended?;
                    return Ok((ended, stopped.or(guarded.signalled().map(Stopped::Signal))));
                }
                renewed = held.renew() => match renewed {
                    Some(until) => guarded.until(until).await,
                    None => {
                        screen.say("the slot is lost; stopping the command");
                        stopped = stopped.or(Some(Stopped::Lost));
                        guarded.stop(Duration::ZERO).await;
                    }
                },
            }
        }
    }
}

fn is_past(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

/// SIGINT and SIGTERM.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> Done<Self> {
        let listen = |kind| {
            signal(kind).map_err(|error| Error::new(ErrorKind::Unavailable, format!("signals: {error}")))
        };
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for one of them, and returns its number.
    async fn heard(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt().as_raw_value(),
            _ = self.terminate.recv() => SignalKind::terminate().as_raw_value(),
        }
    }
}
