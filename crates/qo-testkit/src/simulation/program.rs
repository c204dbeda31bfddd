//! A simulated program that is not a job: it takes standalone slots, extends its lease, gives slots back, dies while it
//! holds some, and asks again after `Unknown`.

use super::scenery;
use super::stage::{Event, Stage};
use crate::history::{Actor, What};
use qo_core::{Answer, Command, Error, ErrorKind, FenceToken, LeaseId, Name, Result, SlotRequest};
use std::sync::Arc;

pub(super) struct Program {
    pub index: usize,
    /// One more with every crash.
    pub life: u64,
    name: Name,
    /// The call that was not answered yet.
    outstanding: Option<Arc<Command>>,
    waiting: bool,
    /// What it last asked for.
    request: Option<SlotRequest>,
    held: Option<Held>,
}

/// Slots that it holds, as far as it knows.
#[derive(Debug, Clone, Copy)]
struct Held {
    token: FenceToken,
    done_ms: u64,
}

impl Program {
    pub fn any(index: usize) -> Self {
        let name = scenery::name(&format!("script-{index}"));
        Self { index, life: 0, name, outstanding: None, waiting: false, request: None, held: None }
    }

    pub fn act_in(&self, stage: &mut Stage, most_ms: u64) {
        let ms = stage.random.within(1..=most_ms);
        stage.plan_in(ms, Event::Program(self.index));
    }

    /// Its timer fires: the unanswered call again, or the next one.
    pub fn act(&mut self, stage: &mut Stage) {
        if self.waiting {
            return;
        }
        if self.outstanding.is_none() {
            self.outstanding = self.any_command(stage).map(Arc::new);
        }
        if let Some(command) = &self.outstanding {
            self.waiting = true;
            stage.send(Actor::Program(self.index), self.life, command.clone());
        }
    }

    fn any_command(&mut self, stage: &mut Stage) -> Option<Command> {
        let Some((held, request)) = self.held.zip(self.request.clone()) else {
            return self.any_request(stage).map(Command::AcquireSlots);
        };
        let (lease, token, lease_ms) = (request.id, held.token, request.lease_ms);
        if stage.healed || stage.now_ms >= held.done_ms {
            return Some(Command::ReturnSlots(lease, token));
        }
        Some(match stage.random.below(100) {
            // The same request again, another one under the same id, and a token that is not its own.
            0..5 => Command::AcquireSlots(request),
            5..8 => Command::AcquireSlots(SlotRequest { slots: request.slots + 1, ..request }),
            8..11 => Command::ExtendSlots { lease, token: FenceToken(token.0 - 1), lease_ms },
            11..14 => Command::ReturnSlots(lease, FenceToken(token.0 + 1)),
            _ => Command::ExtendSlots { lease, token, lease_ms },
        })
    }

    fn any_request(&mut self, stage: &mut Stage) -> Option<SlotRequest> {
        if stage.healed {
            return None;
        }
        let again = self.request.take().filter(|_| stage.random.percent(40));
        let wall_ms = u64::try_from(stage.wall(0).as_millis()).unwrap_or(0);
        let id = LeaseId(stage.random.uuid(wall_ms));
        let request =
            again.unwrap_or_else(|| scenery::any_slot_request(&mut stage.random, id, self.name.clone()));
        self.request = Some(request.clone());
        Some(request)
    }

    /// An answer arrives.
    pub fn hear(&mut self, stage: &mut Stage, command: &Arc<Command>, reply: &Result<Answer>) {
        if !self.outstanding.as_ref().is_some_and(|outstanding| Arc::ptr_eq(outstanding, command)) {
            return;
        }
        self.waiting = false;
        let lost =
            matches!(reply.as_ref().map_err(Error::kind), Err(ErrorKind::Unknown | ErrorKind::Unavailable));
        if lost && stage.random.percent(85) {
            return self.act_in(stage, 500);
        }
        self.outstanding = None;
        match (&**command, reply.as_ref().map_err(Error::kind)) {
            (_, Ok(Answer::Acquired(Some(lease)))) => {
                let done_ms = stage.now_ms + stage.random.within(100..=8_000);
                self.held = Some(self.held.unwrap_or(Held { token: lease.token, done_ms }));
            }
            (Command::AcquireSlots(_), Err(_)) | (_, Ok(Answer::Extended(_))) => {}
            // Another program's token was refused, as it must be.
            (Command::ExtendSlots { token, .. } | Command::ReturnSlots(_, token), Err(ErrorKind::Fenced))
                if self.held.is_some_and(|held| held.token != *token) => {}
            _ => self.held = None,
        }
        let lease_ms = self.request.as_ref().map_or(1_000, |request| request.lease_ms);
        // Some programs extend too late.
        let late = stage.random.percent(10);
        let most_ms = if self.held.is_none() || late { 4_000 } else { lease_ms / 2 };
        self.act_in(stage, most_ms);
    }

    /// The process dies; its slots have no live holder until the lease is over.
    pub fn crash(&mut self, stage: &mut Stage) {
        stage.write(Actor::Program(self.index), What::Crashed);
        self.life += 1;
        (self.outstanding, self.waiting, self.request, self.held) = (None, false, None, None);
        self.act_in(stage, 5_000);
    }
}
