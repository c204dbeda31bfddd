//! The requests to a bucket, counted by kind, because each costs money; and the dates of its answers, which tell its
//! time.

use crate::prices::Requests;
use qo_core::Time;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The requests to one opened bucket, and the dates of its answers.
#[derive(Debug, Default)]
pub struct Traffic {
    pub(crate) puts: AtomicU64,
    pub(crate) gets: AtomicU64,
    pub(crate) lists: AtomicU64,
    pub(crate) deletes: AtomicU64,
    dates: Mutex<Dates>,
}

/// The dates of the newest answers.
#[derive(Debug, Default)]
struct Dates {
    newest: VecDeque<Dated>,
    /// How many answers have borne a date so far.
    heard: u64,
    /// Most dates were forgotten, because the clock seems to have leapt, and as many have not come since.
    are_few: bool,
}

/// Answers whose dates are remembered. A date counts when most of them agree with it.
pub(crate) const ANSWERS: usize = 15;

/// How far dates of one clock may be apart: they are cut off to whole seconds, and answers are on their way for a
/// while.
const COARSE_MS: i64 = 1_500;

/// The date of an answer, cut off to whole seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dated {
    pub(crate) date: Time,
    /// When the request was sent; the date was not written before that …
    pub(crate) sent: Instant,
    /// … and not after this.
    pub(crate) heard: Instant,
}

impl Traffic {
    /// The requests so far. A request that failed and was sent again counts twice, as it does on the bill.
    pub fn requests(&self) -> Requests {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Requests {
            puts: count(&self.puts),
            gets: count(&self.gets),
            lists: count(&self.lists),
            deletes: count(&self.deletes),
        }
    }

    /// The date of the newest answer, right or wrong.
    pub(crate) fn date(&self) -> Option<Dated> {
        self.dates().newest.back().copied()
    }

    /// The best of the dates that most of the newest answers agree with. A few wrong ones among many do not count. Of
    /// two that disagree the earlier counts.
    pub(crate) fn believed(&self) -> Option<Dated> {
        let dates = self.dates();
        let origin = dates.newest.front()?.heard;
        let ms = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        // How far the bucket's clock is ahead of this process's, by each answer.
        let ahead_ms =
            |dated: &Dated| dated.date.as_millis() - ms(dated.heard.saturating_duration_since(origin));
        let mut sorted: Vec<i64> = dates.newest.iter().map(ahead_ms).collect();
        sorted.sort_unstable();
        let median = sorted[(sorted.len() - 1) / 2];
        let agrees = |dated: &&Dated| {
            let way_ms = ms(dated.heard.saturating_duration_since(dated.sent));
            (ahead_ms(dated) - median).abs() <= COARSE_MS.saturating_add(way_ms)
        };
        // The later a date is, the less was cut off.
        dates.newest.iter().filter(agrees).max_by_key(|dated| ahead_ms(dated)).copied()
    }

    /// The time of the bucket now, by most of the newest answers.
    pub(crate) fn believed_now(&self) -> Option<Time> {
        self.believed().map(|dated| {
            let passed = u64::try_from(dated.heard.elapsed().as_millis()).unwrap_or(u64::MAX);
            dated.date.plus_ms(passed)
        })
    }

    /// How many answers have borne a date so far.
    pub(crate) fn dates_heard(&self) -> u64 {
        self.dates().heard
    }

    /// Forgets all dates but the newest `count`, by which the bucket's clock has leapt.
    pub(crate) fn believe_newest(&self, count: usize) {
        let mut dates = self.dates();
        let old = dates.newest.len().saturating_sub(count);
        dates.newest.drain(..old);
        dates.are_few = true;
    }

    /// The believed date, if it rests on enough answers to set a clock by: after a leap few are left, and two or three
    /// wrong ones would be most of them.
    pub(crate) fn settled(&self) -> Option<Dated> {
        if self.dates().are_few { None } else { self.believed() }
    }

    /// An answer to a request of `sent` bore this date.
    pub fn answered(&self, date: Time, sent: Instant) {
        let mut dates = self.dates();
        if dates.newest.len() == ANSWERS {
            dates.newest.pop_front();
        }
        dates.newest.push_back(Dated { date, sent, heard: Instant::now() });
        dates.are_few &= dates.newest.len() < ANSWERS;
        dates.heard += 1;
    }

    fn dates(&self) -> MutexGuard<'_, Dates> {
        self.dates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Time = Time::from_millis(1_800_000_000_000);
    const HOUR_MS: i64 = 3_600_000;

    /// Answers, 100 ms apart, each wrong by so many milliseconds. Returns how wrong the believed date is after each.
    async fn believed_after(wrong_ms: &[i64]) -> Vec<i64> {
        let (traffic, begun) = (Traffic::default(), Instant::now());
        let mut believed = Vec::new();
        for wrong_ms in wrong_ms {
            tokio::time::advance(Duration::from_millis(100)).await;
            let true_ms = NOON.as_millis() + begun.elapsed().as_millis() as i64;
            traffic.answered(Time::from_millis((true_ms + wrong_ms) / 1_000 * 1_000), Instant::now());
            let dated = traffic.believed().expect("a date");
            let now_ms = dated.date.as_millis() + dated.heard.elapsed().as_millis() as i64;
            believed.push(now_ms - true_ms);
        }
        believed
    }

    #[tokio::test(start_paused = true)]
    async fn a_date_counts_when_most_of_the_newest_answers_agree() {
        for lie in [HOUR_MS, -HOUR_MS] {
            // The third answer; two in a row; every second one.
            for wrong in
                [vec![0, 0, lie, 0, 0], vec![0, 0, 0, lie, lie, 0], vec![0, 0, lie, 0, lie, 0, lie, 0]]
            {
                let off = believed_after(&wrong).await;
                assert!(off[1..].iter().all(|off| (-1_000..=0).contains(off)), "{wrong:?}: {off:?}");
            }
            // The clock has really leapt: eight of fifteen answers agree.
            let wrong = [vec![0; 20], vec![lie; 15]].concat();
            let off = believed_after(&wrong).await;
            assert!(off[..27].iter().all(|off| off.abs() <= 1_000), "{off:?}");
            assert!(off[28..].iter().all(|off| (off - lie).abs() <= 1_000), "{off:?}");
        }
        let first = believed_after(&[HOUR_MS, 0]).await;
        assert!(first[1].abs() <= 1_000, "of two that disagree the earlier counts: {first:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_confirmed_leap_counts_at_once() {
        let traffic = Traffic::default();
        for date in [NOON; ANSWERS] {
            traffic.answered(date, Instant::now());
        }
        let later = NOON.plus_ms(HOUR_MS as u64);
        (0..2).for_each(|_| traffic.answered(later, Instant::now()));
        assert_eq!(traffic.believed().map(|dated| dated.date), Some(NOON));
        traffic.believe_newest(2);
        assert_eq!(traffic.believed().map(|dated| dated.date), Some(later));
        for _ in 2..ANSWERS {
            assert!(traffic.settled().is_none(), "no clock is set by so few");
            traffic.answered(later, Instant::now());
        }
        assert_eq!(traffic.settled().map(|dated| dated.date), Some(later));
    }
}
