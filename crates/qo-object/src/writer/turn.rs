//! Waiting for this writer's turn in the [write order](crate::write_order).
//!
//! 1. Calls of [`Store::fetch`](qo_core::Store::fetch) that would bring nothing by now are answered: they need no
//!    record.
//! 2. The writer shows that it wants to write.
//! 3. If another writer is first, it waits until that one's turn is over, and takes new requests meanwhile. With a full
//!    record it does not wait, unless it has to leave room for a newcomer.
//! 4. It takes the write lock. If another writer holds it, it waits for that one, but not for long: it may be stopped.

use super::Writer;
use crate::request::{BATCH, Call, Caller, Request};
use qo_core::{Answer, Result};
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep_until;

impl Writer {
    /// Waits until it is this writer's turn, and shows so to the others. Requests that come meanwhile join the batch.
    pub(super) async fn take_turn(
        &mut self,
        batch: &mut Vec<Request>,
        requests: &mut mpsc::Receiver<Request>,
        rung: &Notify,
        calls: &mut Vec<Call<Caller>>,
    ) {
        // Until when to wait for the holder of the write lock: it writes the record after this one.
        let mut lock = (self.end(), None);
        loop {
            if self.followers.contention.sees_others() {
                self.answer_empty_fetches(calls).await;
            }
            if calls.is_empty() {
                return;
            }
            let end = self.end();
            let contention = &mut self.followers.contention;
            contention.show_intent();
            let until = match contention.wait_until() {
                Some(at) if calls.len() < BATCH || contention.is_yielding() => at,
                _ => {
                    if lock.0 != end {
                        lock = (end, None);
                    }
                    let deadline = *lock.1.get_or_insert_with(|| contention.lock_deadline());
                    if contention.begin_turn(deadline) {
                        return;
                    }
                    deadline
                }
            };
            let poll = contention.poll_at(until);
            self.replica.expect_record(poll.is_some());
            tokio::select! {
                taken = requests.recv_many(batch, BATCH) => if taken == 0 { return },
                () = rung.notified() => self.look_around().await,
                () = sleep_until(poll.unwrap_or(until).min(until)) => if poll.is_some() {
                    self.look_around().await;
                },
            }
            self.replica.expect_record(false);
            self.sort(batch, calls).await;
        }
    }

    /// Waits until it is this writer's turn, for a commit that no caller waits for.
    pub(super) async fn wait_for_turn(&mut self) -> Result<()> {
        while let Some(at) = self.followers.contention.wait_until() {
            sleep_until(at.min(self.followers.contention.next_look(at))).await;
            self.catch_up().await?;
        }
        Ok(())
    }

    /// Answers fetches that would bring nothing by now.
    async fn answer_empty_fetches(&mut self, calls: &mut Vec<Call<Caller>>) {
        // The answer must rest on a look that was made after the call.
        let Some(asked) = calls.iter().filter(|call| call.is_fetch).map(|call| call.at).max() else {
            return;
        };
        let write_time = self.followers.contention.write_time();
        if !self.replica.has_looked_since(asked)
            && (self.replica.has_just_looked(write_time) || self.catch_up().await.is_err())
        {
            return;
        }
        // An offer that waits may be work for one of them.
        if !self.followers.admission.is_empty() && self.log.medium().policy().admits_with_claims {
            return;
        }
        let now = self.replica.now();
        let (state, watch) = self.replica.decide();
        for call in calls.extract_if(.., |call| call.fetches_nothing(state, now, &watch)) {
            call.caller.send(Ok(Answer::Done)).ok();
        }
    }
}
