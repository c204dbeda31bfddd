//! Contention: when this writer writes beside other writers. It owns what the process knows of them: the
//! [write order](crate::write_order), [yield requests](crate::yield_request), the races that it has lost and the locks
//! that it holds.

use crate::directory::{FileLock, WriteLock};
use crate::log::Log;
use crate::medium::Medium;
use crate::put::{Put, put};
use crate::record::Record;
use crate::store::Options;
use crate::write_order::WriteOrder;
use crate::yield_request::YieldRequest;
use futures::future::{Either, select};
use qo_core::Result;
use std::pin::pin;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// After a stalled holder of the write lock, ignore the lock for this long: otherwise every record would wait for it.
const IGNORE_LOCKS: Duration = Duration::from_secs(1);

/// What one writer knows of the others, and the locks by which they know of it.
pub(crate) struct Contention {
    me: Uuid,
    medium: Medium,
    order: WriteOrder,
    yield_request: YieldRequest,
    /// Races lost in a row.
    lost: u32,
    /// Shows other writers that this one wants to write …
    intent: Option<FileLock>,
    /// … and that it writes.
    write_lock: Option<FileLock>,
    ignore_locks_until: Option<Instant>,
}

impl Contention {
    pub(crate) fn new(me: Uuid, medium: &Medium) -> Self {
        let (medium, order) = (medium.clone(), WriteOrder::new(me, medium.policy().has_locks));
        Self {
            me,
            medium,
            order,
            yield_request: YieldRequest::default(),
            lost: 0,
            intent: None,
            write_lock: None,
            ignore_locks_until: None,
        }
    }

    /// A record was read. Records from before this process read on (`is_old`) say nothing about the order now.
    pub(crate) fn saw(&mut self, record: &Record, is_old: bool) {
        self.yield_request.saw(record.writer);
        // A light client has no place in the order: most submit once and end.
        if record.offered.is_empty() && !is_old {
            match record.is_work() || self.medium.policy().has_locks {
                true => self.order.saw(record.number, record.writer),
                false => self.order.saw_renewal(record.number, record.writer),
            }
        }
    }

    /// A record of this writer is there.
    pub(crate) fn wrote(&mut self, number: u64) {
        self.lost = 0;
        self.order.saw(number, self.me);
    }

    /// Whether another writer has written lately, or has asked for room.
    pub(crate) fn sees_others(&self) -> bool {
        self.order.sees_others() || self.is_yielding()
    }

    /// Whether this writer leaves room for a newcomer.
    pub(crate) fn is_yielding(&self) -> bool {
        self.yield_request.is_heard()
    }

    /// About how long this writer takes to write a record.
    pub(crate) fn write_time(&self) -> Duration {
        self.order.write_time()
    }

    /// Until when to wait for the holder of the write lock, from now.
    pub(crate) fn lock_deadline(&self) -> Instant {
        Instant::now() + self.order.lock_timeout()
    }

    /// Until when other writers may be first; none if it is this writer's turn.
    pub(crate) fn wait_until(&mut self) -> Option<Instant> {
        let medium = &self.medium;
        let others = self.order.wait_until(|other| medium.may_have_intent(other));
        let newcomer =
            self.yield_request.heard().and_then(|write_time| self.order.leave_room_until(write_time));
        others.max(newcomer)
    }

    /// When a writer that waits until then polls the end of the log; none where the bell wakes it.
    pub(crate) fn poll_at(&self, until: Instant) -> Option<Instant> {
        (!self.medium.policy().has_bell).then(|| self.next_look(until))
    }

    /// When a writer that waits until then looks at the end of the log.
    pub(crate) fn next_look(&self, until: Instant) -> Instant {
        self.order.next_look(until)
    }

    /// Whether this writer lost a race and another one is first again. With locks the order is settled before a writer
    /// writes, and races are lost only to writers that take no locks.
    pub(crate) fn must_wait_again(&mut self) -> bool {
        self.lost > 0 && !self.medium.policy().has_locks && self.wait_until().is_some()
    }

    /// Shows other writers that this one wants to write, if there are any.
    pub(crate) fn show_intent(&mut self) {
        if self.intent.is_none() && self.order.sees_others() {
            self.intent = self.medium.lock_intent(self.me);
        }
    }

    /// Takes the write lock if there are other writers. False if one of them holds it and has until `deadline` to
    /// release it.
    pub(crate) fn begin_turn(&mut self, deadline: Instant) -> bool {
        if !self.order.sees_others() {
            return true;
        }
        if self.try_write_lock() {
            self.ignore_locks_until = None;
            return true;
        }
        let now = Instant::now();
        if now >= deadline {
            self.ignore_locks_until = Some(now + IGNORE_LOCKS);
        }
        self.ignore_locks_until.is_some_and(|until| now < until)
    }

    /// Takes the write lock, where there is one. False if another writer holds it.
    pub(crate) fn try_write_lock(&mut self) -> bool {
        match self.medium.try_write_lock() {
            WriteLock::Held(lock) => self.write_lock = Some(lock),
            WriteLock::Busy => return false,
            WriteLock::Unsupported => {}
        }
        true
    }

    /// Whether this writer holds a lock that other writers wait for.
    pub(crate) fn holds_locks(&self) -> bool {
        self.intent.is_some() || self.write_lock.is_some()
    }

    pub(crate) fn holds_write_lock(&self) -> bool {
        self.write_lock.is_some()
    }

    /// Ends this writer's turn, with a record or without, and wakes the other writers.
    pub(crate) fn end_turn(&mut self) {
        (self.intent, self.write_lock) = (None, None);
        self.medium.ring();
    }

    /// Puts a record, and looks for a yield request in parallel. The record does not wait for that look.
    pub(crate) async fn put(&mut self, log: &Log, record: &Record, options: &Options) -> Result<Put> {
        let sent = Instant::now();
        let look = pin!(self.yield_request.look(&self.medium));
        let put = pin!(put(log, record, options));
        let put = match select(look, put).await {
            Either::Left(((), put)) => put.await,
            Either::Right((put, _)) => put,
        };
        if put.is_ok() {
            self.order.took(sent.elapsed());
        }
        put
    }

    /// Races lost in a row.
    pub(crate) fn lost(&self) -> u32 {
        self.lost
    }

    /// Another writer was first.
    pub(crate) fn lose(&mut self) {
        self.lost += 1;
    }

    /// The commit has ended, or given up.
    pub(crate) fn forget_losses(&mut self) {
        self.lost = 0;
    }

    /// Makes a yield request if too many races were lost.
    pub(crate) async fn ask_for_room(&mut self) {
        let write_time = self.order.write_time();
        self.yield_request.lost(&self.medium, self.lost, self.me, write_time).await;
    }

    /// The process ends, and wants to write no more.
    pub(crate) fn leave(&self) {
        self.medium.forget_intent(self.me);
    }
}
