//! Slots that this process holds, and how long it may trust that it does.

use super::keeper::Keeper;
use qo::core::{FenceToken, SlotRequest};
use qo::worker::trusted_for;
use qo::{ConcurrencyManager, Error, ErrorKind, HeldSlot, Result};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How often it tries to give slots back.
const TRIES: u32 = 5;
/// Pause after a call that failed.
const PAUSE: Duration = Duration::from_millis(200);

/// How often to check that the slots are still held, on a store that changes all the time.
const LOOK_GAP: Duration = Duration::from_millis(500);

/// Slots under a lease of this process.
pub struct Held {
    keeper: Keeper,
    manager: Arc<dyn ConcurrencyManager>,
    slot: HeldSlot,
    lease: Duration,
    /// How long the lease is trusted after each renewal, by the same rule as for workers.
    trusted_for: Duration,
    state: Mutex<State>,
}

struct State {
    /// Until then no other process can have them.
    trusted_until: Instant,
    renew_at: Instant,
    lost: Option<Error>,
}

impl Held {
    /// Slots that were asked for at `sent`.
    pub fn new(keeper: Keeper, request: &SlotRequest, slot: HeldSlot, sent: Instant) -> Self {
        let lease = Duration::from_millis(request.lease_ms);
        let trusted_for = trusted_for(lease, keeper.coarseness());
        let state = State { trusted_until: sent + trusted_for, renew_at: sent + lease / 3, lost: None };
        let manager = keeper.manager();
        Self { keeper, manager, slot, lease, trusted_for, state: Mutex::new(state) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fence token.
    pub fn token(&self) -> FenceToken {
        self.slot.token
    }

    /// Until then no other process can have the slots.
    pub fn trusted_until(&self) -> Instant {
        self.state().trusted_until
    }

    /// Why they are lost, if they are.
    pub fn lost(&self) -> Option<Error> {
        let state = self.state();
        let over = Instant::now() >= state.trusted_until;
        let unrenewed = || {
            Error::new(ErrorKind::Unavailable, "the lease could not be renewed, and the command was killed")
        };
        state.lost.clone().or_else(|| over.then(unrenewed))
    }

    /// Waits until the slots are taken away, by an operator or because the lease ended. The renewal that follows gets
    /// the reason.
    async fn taken_away(&self) {
        let mut seen = self.keeper.seen().await;
        loop {
            // If the store does not report changes, the next renewal notices.
            seen = self.keeper.change(seen).await;
            if !self.keeper.is_held(&self.slot.group, self.slot.token).await {
                return;
            }
            // A busy store changes all the time.
            tokio::time::sleep(LOOK_GAP).await;
        }
    }

    /// Waits until it is time, and renews. Returns the new end of trust; none, once, if the slots are lost.
    pub async fn renew(&self) -> Option<Instant> {
        loop {
            let renew_at = self.state().renew_at;
            tokio::select! {
                () = tokio::time::sleep_until(renew_at) => {}
                () = self.taken_away() => {}
            }
            let sent = Instant::now();
            let extended = self.manager.extend_lease(&self.slot, self.lease).await;
            let mut state = self.state();
            match extended {
                Ok(_) => {
                    state.renew_at = sent + self.lease / 3;
                    state.trusted_until = sent + self.trusted_for;
                    return Some(state.trusted_until);
                }
                Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown) => {
                    // Try again until trust ends. Then the guard kills the command.
                    state.renew_at = Instant::now() + PAUSE;
                }
                Err(error) => {
                    // The slots are lost: never renew again.
                    state.renew_at = Instant::now() + Duration::from_secs(86_400 * 365);
                    state.lost = Some(error);
                    return None;
                }
            }
        }
    }

    /// Gives the slots back.
    pub async fn give_back(&self) -> Result<()> {
        for _ in 0..TRIES {
            match self.manager.release(&self.slot).await {
                Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown) => {
                    tokio::time::sleep(PAUSE).await;
                }
                // The slots are no longer held: an earlier try gave them back, or the lease is over.
                Err(error) if error.kind() == ErrorKind::Fenced => return Ok(()),
                result => return result,
            }
        }
        self.manager.release(&self.slot).await
    }
}
