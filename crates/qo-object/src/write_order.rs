//! Turn-taking: who tries to write the next record, and when.
//!
//! Writers that all try at once make one record and many lost races. So each writer looks at who wrote lately: **whoever
//! wrote last goes last**. The one whose last record is the oldest tries at once; the next one gives it a moment, the one
//! after that two. If somebody whose turn it is has nothing to write, his moment passes; on a directory, where whoever
//! wants to write [can say so](crate::directory), nobody waits for him at all. In a bucket nobody can, and nobody is woken:
//! there a moment is longer, whoever lets two of his pass is not waited for again until he has written, and who waits looks at the
//! end of the log again and again, so that he begins as soon as it is his turn. A writer that nobody has seen yet tries at once. Nothing
//! rests on it but fairness and speed: the log has room for one record at each number.

use crate::directory::{Directory, WriteLock};
use crate::request::{Asked, BATCH, Caller, Request};
use crate::writer::Writer;
use qo_core::{Answer, Result};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

/// How many records could be written in a moment. Where nobody can say that he wants to write, whoever's turn it is has to
/// see that it is, and to write.
const PACES: (u32, u32) = (2, 4);
/// A writer that has not written for this many moments is not waited for …
const GONE_AFTER: u32 = 24;
/// … or, where nobody can say that he wants to write, for so many rounds of all who write, if that is less.
const GONE_AFTER_ROUNDS: u32 = 2;
/// Who was waited for in vain so often, where nobody can say that he wants to write, is not waited for until he has written.
const IN_VAIN: u32 = 2;
/// Most moments that one waits for others who cannot say whether they want to write, however many there are.
const MOST_TIMEOUTS: u32 = 8;
/// Bounds of how often who waits for his turn looks whether it is.
const LOOK: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(250));
/// Bounds of a moment, whatever the store's pace.
const TURN_TIMEOUT: (Duration, Duration) = (Duration::from_micros(300), Duration::from_millis(500));

/// The longest that room is left for a newcomer after a record.
const MOST_ROOM: Duration = Duration::from_secs(1);

/// Bounds of how long one who is seen to write is waited for: he may have been stopped.
const LOCK_TIMEOUT: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// How long nobody is waited for after somebody who was seen to write took too long.
const IGNORE_LOCKS: Duration = Duration::from_secs(1);

/// Who wrote when, as one writer saw it.
#[derive(Debug)]
pub(crate) struct WriteOrder {
    me: Uuid,
    /// The last record of each writer, and when it was seen.
    last: BTreeMap<Uuid, (u64, Instant)>,
    /// When the newest record was seen.
    newest: Instant,
    /// How long it takes to write a record here, more or less.
    pace: Duration,
    /// Whoever wants to write can say so.
    knows_wants: bool,
    /// How often others were waited for in vain, where nobody can say so, since they last wrote.
    in_vain: BTreeMap<Uuid, u32>,
}

impl WriteOrder {
    pub(crate) fn new(me: Uuid, knows_wants: bool) -> Self {
        let pace = Duration::from_millis(1);
        Self {
            me,
            last: BTreeMap::new(),
            newest: Instant::now(),
            pace,
            knows_wants,
            in_vain: BTreeMap::new(),
        }
    }

    /// A record was seen, one's own too.
    pub(crate) fn saw(&mut self, number: u64, writer: Uuid) {
        let now = Instant::now();
        self.last.insert(writer, (number, now));
        self.in_vain.remove(&writer);
        self.newest = now;
        let gone = self.gone();
        self.last.retain(|_, (_, seen)| now.duration_since(*seen) <= gone);
        self.in_vain.retain(|writer, _| self.last.contains_key(writer));
    }

    /// A record was seen whose writer only renewed what he has: nothing says that he will write again soon.
    pub(crate) fn saw_renewal(&mut self, number: u64, writer: Uuid) {
        self.saw(number, writer);
        self.in_vain.insert(writer, IN_VAIN);
    }

    /// A record of one's own took this long to write.
    pub(crate) fn took(&mut self, time: Duration) {
        self.pace = (self.pace * 3 + time) / 4;
    }

    /// Whether anybody else has written lately.
    pub(crate) fn sees_others(&self) -> bool {
        let (now, gone) = (Instant::now(), self.gone());
        // Where writers can say that they want to write, they need not be forgotten before the next record.
        let is_here = |seen: Instant| self.knows_wants || now.duration_since(seen) <= gone;
        self.last.iter().any(|(writer, (_, seen))| *writer != self.me && is_here(*seen))
    }

    /// When this writer should try; none if now. `wants` says of another whether he may want to write too.
    pub(crate) fn wait_until(&mut self, wants: impl Fn(Uuid) -> bool) -> Option<Instant> {
        let now = Instant::now();
        let (mine, _) = self.last.get(&self.me)?;
        let gone = self.gone();
        let first = self.last.iter().filter(|&(writer, (number, seen))| {
            *writer != self.me
                && number < mine
                && now.duration_since(*seen) <= gone
                && self.in_vain.get(writer).is_none_or(|times| *times < IN_VAIN)
                && wants(*writer)
        });
        let first: Vec<Uuid> = first.map(|(writer, _)| *writer).collect();
        let before_me = u32::try_from(first.len()).unwrap_or(u32::MAX);
        let timeouts = if self.knows_wants { before_me } else { before_me.min(MOST_TIMEOUTS) };
        let at = self.newest + self.turn_timeout().saturating_mul(timeouts);
        if at > now {
            return Some(at);
        }
        if !self.knows_wants {
            first.into_iter().for_each(|writer| *self.in_vain.entry(writer).or_default() += 1);
        }
        None
    }

    /// When this writer should try if room is to be left for somebody who writes at this pace; none if now.
    fn leave_room_until(&self, pace: Duration) -> Option<Instant> {
        let at = self.newest + (pace * PACES.1).max(self.turn_timeout()).min(MOST_ROOM);
        (at > Instant::now()).then_some(at)
    }

    /// How long it takes to write a record here, more or less.
    pub(crate) fn pace(&self) -> Duration {
        self.pace
    }

    /// How long somebody who is seen to write may take.
    pub(crate) fn lock_timeout(&self) -> Duration {
        (self.pace * 8).clamp(LOCK_TIMEOUT.0, LOCK_TIMEOUT.1)
    }

    /// How long somebody whose turn it is has to begin and end a record.
    fn turn_timeout(&self) -> Duration {
        let paces = if self.knows_wants { PACES.0 } else { PACES.1 };
        (self.pace * paces).clamp(TURN_TIMEOUT.0, TURN_TIMEOUT.1)
    }

    /// After how long a writer who writes nothing is not waited for.
    fn gone(&self) -> Duration {
        let writers = u32::try_from(self.last.len()).unwrap_or(u32::MAX);
        let rounds = writers.saturating_add(1).saturating_mul(GONE_AFTER_ROUNDS);
        self.turn_timeout().saturating_mul(if self.knows_wants { GONE_AFTER } else { rounds.min(GONE_AFTER) })
    }

    /// When who waits for his turn looks again: more often when it is near.
    fn next_look(&self, until: Instant) -> Instant {
        let now = Instant::now();
        now + (until.saturating_duration_since(now) / 4).max(self.pace / 2).clamp(LOOK.0, LOOK.1)
    }
}

impl Writer {
    /// Whether anybody else has written lately, or wants to.
    pub(crate) fn sees_others(&self) -> bool {
        self.order.sees_others() || self.yield_request.is_heard()
    }

    /// The directory, if others write to it too: those take turns.
    fn shared_directory(&self) -> Option<&Directory> {
        self.log.directory().filter(|_| self.order.sees_others())
    }

    /// It is somebody else's turn: there is a record, or there will be none.
    pub(crate) fn give_turn(&mut self) {
        (self.wanting, self.turn) = (None, None);
        self.log.directory().inspect(|directory| directory.ring());
    }

    /// Waits until it is this writer's turn, and says so to the others. What arrives meanwhile comes along.
    pub(crate) async fn take_turn(
        &mut self,
        batch: &mut Vec<Request>,
        requests: &mut mpsc::Receiver<Request>,
        rung: &Notify,
        commands: &mut Vec<Asked<Caller>>,
    ) {
        // How long to wait for one who writes the record after this one.
        let mut patience = (self.end.number, None);
        loop {
            if self.sees_others() {
                self.answer_barren(commands).await;
            }
            if commands.is_empty() {
                return;
            }
            if self.wanting.is_none() {
                let directory = self.shared_directory();
                self.wanting = directory.and_then(|directory| directory.lock_intent(self.id));
            }
            let until = match self.first_to_write() {
                Some(at) if commands.len() < BATCH || self.yield_request.is_heard() => at,
                _ => {
                    if patience.0 != self.end.number {
                        patience = (self.end.number, None);
                    }
                    let at = *patience.1.get_or_insert(Instant::now() + self.order.lock_timeout());
                    if self.begins_turn(at) {
                        return;
                    }
                    at
                }
            };
            // In a bucket nobody rings.
            let look = self.log.directory().is_none().then(|| self.order.next_look(until));
            self.is_waiting = look.is_some();
            tokio::select! {
                taken = requests.recv_many(batch, BATCH) => if taken == 0 { return },
                () = rung.notified() => self.look_around().await,
                () = sleep_until(look.unwrap_or(until).min(until)) => if look.is_some() {
                    self.look_around().await;
                },
            }
            self.is_waiting = false;
            self.sort(batch, commands).await;
        }
    }

    /// Whether somebody else was first in a bucket, and others are to be first now, too. On a directory the turn is taken
    /// before, and a race is lost only to those who take none.
    pub(crate) fn has_to_wait_again(&mut self) -> bool {
        self.lost > 0 && self.log.directory().is_none() && self.first_to_write().is_some()
    }

    /// Waits until it is this writer's turn, for what nobody has asked for.
    pub(crate) async fn wait_for_turn(&mut self) -> Result<()> {
        while let Some(at) = self.first_to_write() {
            sleep_until(at.min(self.order.next_look(at))).await;
            self.catch_up().await?;
        }
        Ok(())
    }

    /// Says that this writer writes. False if somebody else does, who has until `at` to be done with it.
    fn begins_turn(&mut self, at: Instant) -> bool {
        let Some(directory) = self.shared_directory() else { return true };
        let turn = directory.try_write_lock();
        let now = Instant::now();
        let is_theirs = matches!(turn, WriteLock::Busy);
        self.turn = match turn {
            WriteLock::Held(held) => Some(held),
            WriteLock::Busy | WriteLock::Unsupported => None,
        };
        if !is_theirs {
            self.ignore_locks_until = None;
            return true;
        }
        if now >= at {
            // It may have been stopped. It is not waited for again soon, or every record would take that long.
            self.ignore_locks_until = Some(now + IGNORE_LOCKS);
        }
        self.ignore_locks_until.is_some_and(|until| now < until)
    }

    /// Until when others may be first; none if it is this writer's turn.
    fn first_to_write(&mut self) -> Option<Instant> {
        let directory = self.log.directory();
        let others =
            self.order.wait_until(|other| directory.is_none_or(|directory| directory.has_intent(other)));
        let newcomer = self.yield_request.heard().and_then(|pace| self.order.leave_room_until(pace));
        others.max(newcomer)
    }

    /// Tells those who would fetch nothing by now: they need not wait for a turn.
    async fn answer_barren(&mut self, commands: &mut Vec<Asked<Caller>>) {
        // What was acknowledged before they asked is to be seen.
        let Some(asked) = commands.iter().filter(|asked| asked.is_fetch).map(|asked| asked.at).max() else {
            return;
        };
        if !self.has_looked_since(asked) && (self.has_just_looked() || self.catch_up().await.is_err()) {
            return;
        }
        // What was offered, and nobody has decided about, may be something.
        if !self.offers.is_empty() && self.log.directory().is_none() {
            return;
        }
        let now = self.time.now(self.state.now());
        let watch = self.watched.now();
        let barren = commands.extract_if(.., |asked| asked.is_barren(&mut self.state, now, &watch));
        for asked in barren {
            asked.caller.send(Ok(Answer::Done)).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_wrote_last_goes_last() {
        let mut seen_by: Vec<_> = (1..=3).map(|me| WriteOrder::new(writer(me), true)).collect();
        for order in &mut seen_by {
            for number in 1..=3_u64 {
                order.saw(number, writer(number.into()));
            }
        }
        let now = Instant::now();
        let waits: Vec<_> =
            seen_by.iter_mut().map(|order| order.wait_until(|_| true).map(|at| at - now)).collect();
        let timeout = seen_by[0].turn_timeout();
        assert_eq!(waits, [None, Some(timeout), Some(timeout * 2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_himself_for_strangers_or_for_those_who_left() {
        let mut order = WriteOrder::new(writer(1), true);
        assert_eq!(order.wait_until(|_| true), None);
        order.saw(1, writer(1));
        assert_eq!(order.wait_until(|_| true), None);
        order.saw(2, writer(2));
        assert_eq!(order.wait_until(|_| true), None, "the other one went last");
        order.saw(3, writer(1));
        assert!(order.wait_until(|_| true).is_some());
        tokio::time::advance(order.turn_timeout()).await;
        assert_eq!(order.wait_until(|_| true), None, "its turn has timed out");
        tokio::time::advance(order.turn_timeout() * GONE_AFTER).await;
        order.saw(4, writer(1));
        assert_eq!(order.wait_until(|_| true), None, "it has left");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_those_who_do_not_want_to_write() {
        let mut order = WriteOrder::new(writer(1), true);
        for number in 1..=4_u64 {
            order.saw(number, writer((5 - number).into()));
        }
        let now = Instant::now();
        assert!(order.sees_others());
        assert_eq!(order.wait_until(|_| false), None);
        let wait = order.wait_until(|other| other == writer(3)).map(|at| at - now);
        assert_eq!(wait, Some(order.turn_timeout()), "for one of three");
    }

    #[tokio::test(start_paused = true)]
    async fn where_nobody_can_say_that_he_wants_to_write_those_who_are_silent_are_soon_forgotten() {
        let mut order = WriteOrder::new(writer(1), false);
        order.saw(1, writer(2));
        order.saw(2, writer(3));
        order.saw(3, writer(1));
        assert!(order.sees_others() && order.wait_until(|_| true).is_some());
        tokio::time::advance(order.gone()).await;
        assert!(order.sees_others(), "they may be about to");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!order.sees_others());
    }

    #[tokio::test(start_paused = true)]
    async fn one_who_writes_much_among_many_who_seldom_do_waits_for_them_twice() {
        let mut order = WriteOrder::new(writer(0), false);
        for number in 1..=20_u64 {
            order.saw(number, writer(number.into()));
        }
        order.saw(21, writer(0));
        let timeout = order.turn_timeout();
        let wait = order.wait_until(|_| true).map(|at| at - Instant::now());
        assert_eq!(wait, Some(timeout * MOST_TIMEOUTS), "and not for twenty timeouts");
        for number in 22..22 + u64::from(IN_VAIN) {
            tokio::time::advance(timeout * MOST_TIMEOUTS).await;
            assert_eq!(order.wait_until(|_| true), None);
            order.saw(number, writer(0));
        }
        assert_eq!(order.wait_until(|_| true), None, "they have nothing to write");
        order.saw(30, writer(7));
        order.saw_renewal(31, writer(8));
        order.saw(32, writer(0));
        let wait = order.wait_until(|_| true).map(|at| at - Instant::now());
        assert_eq!(wait, Some(timeout), "one of them has");
    }
}
