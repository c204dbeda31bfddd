//! Slots that we hold, and how long we may trust that we do.

use super::keeper::{Grant, Keeper};
use qo::core::{FenceToken, SlotRequest};
use qo::worker::trusted_for;
use qo::{Error, ErrorKind, Result};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Times that giving back is tried.
const TRIES: u32 = 5;
/// Pause after a call that failed.
const PAUSE: Duration = Duration::from_millis(200);

/// How often to look whether the slots are still ours, where something changes all the time.
const LOOK_GAP: Duration = Duration::from_millis(500);

/// Slots under our lease.
pub struct Held {
    keeper: Keeper,
    request: SlotRequest,
    grant: Grant,
    lease: Duration,
    /// How long it is trusted after each renewal: by the rule that workers follow.
    trusted_for: Duration,
    state: Mutex<State>,
}

struct State {
    /// Until then nobody else can have them.
    trusted_until: Instant,
    renew_at: Instant,
    lost: Option<Error>,
}

impl Held {
    /// Slots that were asked for at `sent`.
    pub fn new(keeper: Keeper, request: SlotRequest, grant: Grant, sent: Instant) -> Self {
        let lease = Duration::from_millis(request.lease_ms);
        let trusted_for = trusted_for(lease, keeper.coarseness());
        let state = State { trusted_until: sent + trusted_for, renew_at: sent + lease / 3, lost: None };
        Self { keeper, request, grant, lease, trusted_for, state: Mutex::new(state) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fence token.
    pub fn token(&self) -> FenceToken {
        self.grant.token
    }

    /// Until then nobody else can have the slots.
    pub fn trusted_until(&self) -> Instant {
        self.state().trusted_until
    }

    /// Why they are ours no longer, if they are not.
    pub fn lost(&self) -> Option<Error> {
        let state = self.state();
        let over = Instant::now() >= state.trusted_until;
        let unrenewed = || {
            Error::new(ErrorKind::Unavailable, "the lease could not be renewed, and the command was killed")
        };
        state.lost.clone().or_else(|| over.then(unrenewed))
    }

    /// Waits until somebody has taken the slots away: an operator, or a lease that ended. To renew then says so.
    async fn taken_away(&self) {
        let mut seen = self.keeper.seen().await;
        loop {
            // If nothing tells of it, it will be noticed at the next renewal.
            seen = self.keeper.change(seen).await;
            if !self.keeper.is_held(&self.request.group, self.grant.token).await {
                return;
            }
            // A busy store changes all the time.
            tokio::time::sleep(LOOK_GAP).await;
        }
    }

    /// Waits until it is time, and renews. The new end of trust; none, once, if the slots are lost.
    pub async fn renew(&self) -> Option<Instant> {
        loop {
            let renew_at = self.state().renew_at;
            tokio::select! {
                () = tokio::time::sleep_until(renew_at) => {}
                () = self.taken_away() => {}
            }
            let sent = Instant::now();
            let extended = self.keeper.extend(&self.request, self.grant).await;
            let mut state = self.state();
            match extended {
                Ok(_) => {
                    state.renew_at = sent + self.lease / 3;
                    state.trusted_until = sent + self.trusted_for;
                    return Some(state.trusted_until);
                }
                Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown) => {
                    // The guard kills the command when the trust is over; until then it is tried again.
                    state.renew_at = Instant::now() + PAUSE;
                }
                Err(error) => {
                    // It is not renewed again: there is nothing left to renew.
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
            match self.keeper.give_back(&self.request, self.grant).await {
                Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown) => {
                    tokio::time::sleep(PAUSE).await;
                }
                // They are not ours any more: an earlier try did it, or the lease is over.
                Err(error) if error.kind() == ErrorKind::Fenced => return Ok(()),
                result => return result,
            }
        }
        self.keeper.give_back(&self.request, self.grant).await
    }
}
