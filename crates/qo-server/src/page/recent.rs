//! Views that may take long: a page waits for them a moment, and then shows the last answer, with its age.
//!
//! A database with a million live jobs lists its groups in seconds or minutes, and pages ask again at each change. So:
//!
//! 1. While a call of a caller has run for longer than a moment, no other call of the view begins for that caller. It
//!    goes on when the page does not wait any longer.
//! 2. A call that took long begins again only when a multiple of its time has passed. Until then its answer is kept.
//! 3. An answer is kept for its caller alone, who is known by its token.

use qo_core::{Error, ErrorKind, Result, TokenId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long a page waits where an earlier answer is kept.
const A_MOMENT: Duration = Duration::from_millis(250);
/// How long it waits where there is none.
const AT_FIRST: Duration = Duration::from_secs(1);
/// A view that takes long begins again after so many times its time.
const SHARE: u32 = 5;
/// Callers that are remembered.
const CALLERS: usize = 100;
/// A call that has not come back by then is taken for lost.
const LOST: Duration = Duration::from_secs(600);

/// The last answers of one view.
pub(crate) struct Recent<T>(Mutex<BTreeMap<Option<TokenId>, Kept<T>>>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

struct Kept<T> {
    answer: Option<(T, Instant)>,
    began: Option<Instant>,
    again: Instant,
}

/// An answer, and how old it is.
pub struct Answer<T> {
    pub value: T,
    pub age: Duration,
}

/// What a page does about a view.
enum Ask<T> {
    /// The view is asked.
    Now(Option<Answer<T>>),
    /// It was asked, or took long: what is kept has to do.
    Kept(Option<Answer<T>>),
}

impl<T: Clone + Send + 'static> Recent<T> {
    /// The answer of a call, or the last one if the call takes long. None if there is none yet.
    pub async fn get(
        self: &Arc<Self>,
        caller: Option<TokenId>,
        call: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<Option<Answer<T>>> {
        let kept = match self.ask(caller) {
            Ask::Kept(kept) => return Ok(kept),
            Ask::Now(kept) => kept,
        };
        let (sender, receiver) = oneshot::channel();
        let recent = Arc::clone(self);
        tokio::spawn(async move {
            let began = Instant::now();
            let answer = call.await;
            recent.answered(caller, began.elapsed(), answer.as_ref().ok());
            // The page may not wait any longer.
            sender.send(answer).ok();
        });
        match timeout(if kept.is_some() { A_MOMENT } else { AT_FIRST }, receiver).await {
            Ok(Ok(answer)) => answer.map(|value| Some(Answer { value, age: Duration::ZERO })),
            Ok(Err(_)) => Err(Error::new(ErrorKind::Internal, "a view was not answered")),
            Err(_) => Ok(kept),
        }
    }

    fn ask(&self, caller: Option<TokenId>) -> Ask<T> {
        let now = Instant::now();
        let runs_long =
            |kept: &Kept<T>| kept.began.is_some_and(|began| (A_MOMENT..LOST).contains(&(now - began)));
        let mut all = self.all();
        if all.len() >= CALLERS {
            all.retain(|known, kept| *known == caller || runs_long(kept));
        }
        let kept = all.entry(caller).or_insert(Kept { answer: None, began: None, again: now });
        let answer = kept.answer.as_ref().map(|(value, at)| Answer { value: value.clone(), age: now - *at });
        if runs_long(kept) || now < kept.again {
            return Ask::Kept(answer);
        }
        kept.began = kept.began.filter(|began| now - *began < LOST).or(Some(now));
        Ask::Now(answer)
    }

    fn answered(&self, caller: Option<TokenId>, took: Duration, answer: Option<&T>) {
        let now = Instant::now();
        if let Some(kept) = self.all().get_mut(&caller) {
            let is_long = took > A_MOMENT;
            kept.began = None;
            kept.again = if is_long { now + took * SHARE } else { now };
            kept.answer = answer.filter(|_| is_long).map(|answer| (answer.clone(), now));
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Option<TokenId>, Kept<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use tokio::runtime::Builder;

    const ADA: Option<TokenId> = None;

    fn eve() -> Option<TokenId> {
        Some(TokenId::from_random([7; 8]))
    }

    fn paused<T>(test: impl Future<Output = T>) -> T {
        Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(test)
    }

    #[test]
    fn a_quick_view_is_asked_each_time() {
        paused(async {
            let recent = Arc::new(Recent::default());
            for n in 0..3 {
                let answer =
                    recent.get(ADA, async move { Ok(n) }).await.expect("no error").expect("an answer");
                assert_eq!((answer.value, answer.age), (n, Duration::ZERO));
            }
        });
    }

    #[test]
    fn a_view_that_is_slow_is_asked_once_and_shows_what_it_last_said() {
        paused(async {
            let recent = Arc::new(Recent::<u32>::default());
            assert!(recent.get(ADA, pending()).await.expect("no error").is_none(), "nothing is known yet");
            let second = recent.get(ADA, async { unreachable!("one call runs already") }).await;
            assert!(second.expect("no error").is_none());
            recent.answered(ADA, Duration::from_secs(5), Some(&7));
            let kept = recent.get(ADA, async { unreachable!("it took long") }).await.expect("no error");
            assert_eq!(kept.map(|answer| answer.value), Some(7));
            let other = recent.get(eve(), async { Ok(8) }).await.expect("no error");
            assert_eq!(other.map(|answer| answer.value), Some(8), "another caller gets its own answer");
        });
    }
}
