//! Wake-ups: which waiting workers are told when there is work.
//!
//! Telling every worker of every change would make each of a thousand idle workers ask the store about each job. So the
//! server asks for them:
//!
//! 1. A worker looks for work ([`Store::work`]) and finds none. From then on its session **waits**, with the claim that
//!    it asked about and the number of the last change that the look had seen.
//! 2. One task follows the changes of the store and keeps the newest number (`follow`).
//! 3. Another task (`wake`) takes the waiting sessions whose look is older than the newest change, the one that was woken
//!    longest ago first, and looks for each. A session for which there is work is woken and waits no more; the others
//!    wait on, with the newer look.
//! 4. After a few wake-ups it pauses, so that those workers can claim, and goes on with the rest: two at first, twice
//!    as many in each further round. One job so wakes two of the workers that could run it, ten thousand jobs wake all
//!    of them within a few rounds, and a worker that was woken and is dead delays the others by a pause.
//! 5. A look in vain says when time alone may bring work: a date, the end of a lease. The look is **due** then, and made
//!    again without any change. Nothing else tells a waiting worker of a date that came after its own look.
//!
//! Sessions of one kind (the same queues, tasks and claim) that hold no job get the same answer, so one look stands for
//! all of them as long as it finds nothing. A thousand idle workers of one service so cost one look for each change, of
//! which their own renewals are most. Sessions that were opened elsewhere, or before this process began, are of no known
//! kind; the store's list of workers tells theirs.
//!
//! Invariants:
//! - A session whose look is older than the newest change, or due, is looked for again, or was woken.
//! - A wake-up grants nothing. A lost one costs a poll interval at most: workers poll now and then in any case.

use qo_core::{Claim, ErrorKind, Name, NewSession, SessionId, Store, Work};
use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// Sessions that the first round wakes.
const FEW: usize = 2;
/// Most sessions that a round wakes.
const MANY: usize = 100_000;
/// The pause after a round, in which those that were woken claim.
const ROUND: Duration = Duration::from_millis(3);
/// Between two wake-ups for a client that wants to know of every change.
const GAP: Duration = Duration::from_millis(5);
/// Most sessions of which the kind is remembered. Beyond that it is forgotten, and each is looked for by itself.
const KINDS: usize = 100_000;
/// The pause after the store did not answer.
const PAUSE: Duration = Duration::from_millis(200);
/// Between two questions for the list of workers.
const LIST_GAP: Duration = Duration::from_secs(1);
/// Looks that are due within so much are made together.
const SLACK: Duration = Duration::from_millis(20);
/// The soonest and the latest that a look is made again because of a date. Clocks differ, and a worker polls in any case.
const DUE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(3600));

/// The sessions that are connected to this server, and the changes of its store.
pub(crate) struct Wakes {
    store: Arc<dyn Store>,
    sessions: Mutex<Sessions>,
    /// The newest change that this server has heard of.
    newest: watch::Sender<u64>,
    /// A session has begun to wait.
    waits: Notify,
}

#[derive(Default)]
struct Sessions {
    by_id: BTreeMap<SessionId, Waiting>,
    kinds: BTreeMap<SessionId, Kind>,
    /// Counts wake-ups, so that sessions take turns.
    turn: u64,
    /// Sessions that exchanged while the list of workers was under way: it may be older than that.
    listing: Option<BTreeSet<SessionId>>,
    /// When the list of workers was asked for last.
    listed: Option<Instant>,
}

/// Queues and tasks, sorted.
type Serves = Arc<(Vec<Name>, Vec<Name>)>;

fn sorted(queues: &[Name], tasks: &[Name]) -> (Vec<Name>, Vec<Name>) {
    let (mut queues, mut tasks) = (queues.to_vec(), tasks.to_vec());
    queues.sort_unstable();
    tasks.sort_unstable();
    (queues, tasks)
}

/// What a session serves.
struct Kind {
    serves: Serves,
    permits: u32,
    /// It holds no job, by its last exchange.
    is_idle: bool,
}

/// A session to look for.
struct Look {
    session: SessionId,
    claim: Claim,
    /// None if the answer is for this session alone.
    serves: Option<Serves>,
}

/// A look that found nothing.
#[derive(Clone, Copy)]
struct Vain {
    claim: Claim,
    /// The newest change before it.
    seen: u64,
    /// When time alone may bring work.
    due: Option<Instant>,
}

/// When a look must be made again although nothing changes.
fn due(work: &Work) -> Option<Instant> {
    let after = work.next?.as_millis().saturating_sub(work.at.as_millis());
    let after = Duration::from_millis(u64::try_from(after).unwrap_or(0));
    Some(Instant::now() + after.clamp(DUE.0, DUE.1))
}

/// How a round ended.
#[derive(PartialEq, Eq)]
enum Round {
    /// Each session was looked for.
    Whole,
    /// Others are left.
    Cut,
    /// The store did not answer.
    Failed,
}

impl Round {
    /// The pause after a round, and how many sessions the next one wakes. None if there is nothing left to do.
    fn next(&self, few: usize) -> Option<(Duration, usize)> {
        match self {
            Self::Whole => None,
            Self::Cut => Some((ROUND, (few * 2).min(MANY))),
            Self::Failed => Some((PAUSE, FEW)),
        }
    }
}

impl Look {
    /// Whether both get the same answer if it is that there is no work.
    fn is_like(&self, other: &Self) -> bool {
        self.serves.is_some() && self.serves == other.serves && self.claim == other.claim
    }
}

/// A session with a stream.
struct Waiting {
    /// Its last look. None while it does not wait.
    look: Option<Vain>,
    /// The turn of its last wake-up.
    woken: u64,
    /// Counts its wake-ups; streams follow it.
    wake_ups: watch::Sender<u64>,
    /// It waited while the list of workers was read: its kind is in there, or nowhere.
    is_listed: bool,
}

impl Wakes {
    pub fn new(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            store,
            sessions: Mutex::default(),
            newest: watch::Sender::new(0),
            waits: Notify::new(),
        })
    }

    /// The newest change that this server has heard of. Read it before a look.
    pub fn newest(&self) -> u64 {
        *self.newest.borrow()
    }

    /// A session looked and found nothing. `seen` is the newest change before its look.
    pub fn waits(&self, session: SessionId, claim: Claim, seen: u64, work: &Work) {
        if let Some(waiting) = self.sessions().by_id.get_mut(&session) {
            waiting.look = Some(Vain { claim, seen, due: due(work) });
            self.waits.notify_one();
        }
    }

    /// A session was opened.
    pub fn opened(&self, session: &NewSession) {
        let mut sessions = self.sessions();
        let serves = sorted(&session.queues, &session.tasks);
        let same = |kind: &&Kind| *kind.serves == serves;
        let serves = match sessions.kinds.values().next_back().filter(same) {
            Some(kind) => Arc::clone(&kind.serves),
            None => Arc::new(serves),
        };
        if sessions.kinds.len() >= KINDS {
            sessions.kinds.clear();
        }
        sessions.kinds.insert(session.id, Kind { serves, permits: session.permits, is_idle: true });
    }

    /// A session has exchanged, with so many free permits before it, and got jobs or not.
    pub fn exchanged(&self, session: SessionId, free_permits: u32, got_jobs: bool) {
        let mut sessions = self.sessions();
        if let Some(listing) = &mut sessions.listing {
            listing.insert(session);
        }
        if let Some(kind) = sessions.kinds.get_mut(&session) {
            kind.is_idle = free_permits == kind.permits && !got_jobs;
        }
    }

    /// A session has ended. Its stream ends.
    pub fn closed(&self, session: SessionId) {
        let mut sessions = self.sessions();
        sessions.by_id.remove(&session);
        sessions.kinds.remove(&session);
    }

    /// A call about a session was refused because it has ended, or is not the caller's.
    pub async fn refused(&self, session: SessionId) {
        if self.sessions().by_id.contains_key(&session) {
            let looked = self.store.work(session, Claim::default()).await;
            if looked.is_err_and(|error| error.kind() == ErrorKind::Fenced) {
                self.closed(session);
            }
        }
    }

    /// A session has found work, or exchanges.
    pub fn is_busy(&self, session: SessionId) {
        if let Some(waiting) = self.sessions().by_id.get_mut(&session) {
            waiting.look = None;
        }
    }

    /// The wake-ups of a session, from now on.
    pub fn of_session(&self, session: SessionId) -> watch::Receiver<u64> {
        let mut sessions = self.sessions();
        let waiting = sessions.by_id.entry(session).or_insert_with(|| Waiting {
            look: None,
            woken: 0,
            wake_ups: watch::Sender::new(0),
            is_listed: false,
        });
        waiting.wake_ups.subscribe()
    }

    /// A stream of the session has ended.
    pub fn left(&self, session: SessionId) {
        let mut sessions = self.sessions();
        if sessions.by_id.get(&session).is_some_and(|waiting| waiting.wake_ups.receiver_count() == 0) {
            sessions.by_id.remove(&session);
        }
    }

    /// All changes, from now on.
    pub fn of_all(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// The pause between two wake-ups of a client that follows all changes.
    pub const fn gap() -> Duration {
        GAP
    }

    /// Follows the changes of the store until it is dropped.
    pub async fn follow(self: Arc<Self>) {
        let mut seen = None;
        loop {
            match self.store.changed(seen).await {
                Ok(now) => {
                    seen = Some(now);
                    self.newest.send_if_modified(|newest| std::mem::replace(newest, now) != now);
                }
                Err(error) => {
                    tracing::warn!("the changes of the store cannot be followed: {error}");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Wakes waiting sessions until it is dropped.
    pub async fn wake(self: Arc<Self>) {
        let mut changes = self.newest.subscribe();
        loop {
            let began = self.waits.notified();
            let newest = *changes.borrow_and_update();
            self.list().await;
            let mut few = FEW;
            while let Some((pause, next)) = self.round(newest, few).await.next(few) {
                sleep(pause).await;
                few = next;
            }
            let due = self.next_due();
            let is_due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = began => {}
                () = is_due => {}
            }
        }
    }

    /// When the first look is due.
    fn next_due(&self) -> Option<Instant> {
        self.sessions().by_id.values().filter_map(|waiting| waiting.look?.due).min()
    }

    /// Learns the kinds of sessions that wait and were not opened here, all at once.
    async fn list(&self) {
        {
            let mut sessions = self.sessions();
            let Sessions { by_id, kinds, listed, .. } = &*sessions;
            let is_strange = |(id, waiting): (&SessionId, &Waiting)| {
                waiting.look.is_some() && !waiting.is_listed && !kinds.contains_key(id)
            };
            let is_early = listed.is_some_and(|listed| listed.elapsed() < LIST_GAP);
            if is_early || !by_id.iter().any(is_strange) {
                return;
            }
            sessions.listed = Some(Instant::now());
            sessions.listing = Some(BTreeSet::new());
        }
        let workers = self.store.workers().await;
        let mut sessions = self.sessions();
        let exchanged = sessions.listing.take().unwrap_or_default();
        let workers = match workers {
            Ok(workers) => workers,
            Err(error) => {
                tracing::warn!("each waiting worker is looked for by itself: {error}");
                return;
            }
        };
        let live: BTreeSet<SessionId> = workers.iter().map(|worker| worker.session).collect();
        let Sessions { by_id, kinds, .. } = &mut *sessions;
        kinds.retain(|id, _| live.contains(id) || by_id.contains_key(id));
        let mut shared: BTreeSet<Serves> = BTreeSet::new();
        for worker in workers {
            let (id, permits) = (worker.session, worker.permits);
            if kinds.contains_key(&id) || exchanged.contains(&id) || kinds.len() >= KINDS {
                continue;
            }
            let serves = sorted(&worker.queues, &worker.tasks);
            let serves = shared.get(&serves).cloned().unwrap_or_else(|| Arc::new(serves));
            shared.insert(Arc::clone(&serves));
            let is_idle = worker.running == 0 && worker.claimed == 0;
            kinds.insert(id, Kind { serves, permits, is_idle });
        }
        // Those that the list does not have are not asked about again.
        by_id.values_mut().for_each(|waiting| waiting.is_listed = true);
    }

    /// Looks for sessions whose look is outdated, until so many were woken.
    async fn round(&self, newest: u64, few: usize) -> Round {
        let mut woken = 0;
        let mut in_vain: Vec<(Look, Vain)> = Vec::new();
        for look in self.outdated(newest) {
            let (session, claim) = (look.session, look.claim);
            if woken == few {
                return Round::Cut;
            }
            if let Some((_, vain)) = in_vain.iter().find(|(other, _)| other.is_like(&look)) {
                self.looked(session, *vain);
                continue;
            }
            match self.store.work(session, claim).await {
                Ok(work) if !work.now => {
                    let vain = Vain { claim, seen: newest, due: due(&work) };
                    self.looked(session, vain);
                    in_vain.extend(look.serves.is_some().then_some((look, vain)));
                }
                Err(error) if error.is_transient() => {
                    tracing::warn!("no look for waiting workers: {error}");
                    return Round::Failed;
                }
                // The end of its stream tells the worker.
                Err(error) if error.kind() == ErrorKind::Fenced => self.closed(session),
                // There is work.
                _ => {
                    woken += 1;
                    self.woken(session);
                }
            }
        }
        Round::Whole
    }

    /// The sessions whose look is older than a change, or due, the one that was woken longest ago first.
    fn outdated(&self, newest: u64) -> Vec<Look> {
        let (sessions, now) = (self.sessions(), Instant::now());
        let look = |(id, waiting): (&SessionId, &Waiting)| {
            let is_old = |look: &Vain| look.seen < newest || look.due.is_some_and(|due| due <= now + SLACK);
            let Vain { claim, .. } = waiting.look.filter(is_old)?;
            let kind = sessions.kinds.get(id).filter(|kind| kind.is_idle);
            let serves = kind.map(|kind| Arc::clone(&kind.serves));
            Some((waiting.woken, Look { session: *id, claim, serves }))
        };
        let mut outdated: Vec<_> = sessions.by_id.iter().filter_map(look).collect();
        outdated.sort_by_key(|(woken, look)| (*woken, look.session));
        outdated.into_iter().map(|(_, look)| look).collect()
    }

    /// The session waits on, unless it has looked for itself or become busy meanwhile.
    fn looked(&self, session: SessionId, vain: Vain) {
        let mut sessions = self.sessions();
        let look = sessions.by_id.get_mut(&session).and_then(|waiting| waiting.look.as_mut());
        if let Some(look) = look.filter(|look| look.claim == vain.claim && look.seen <= vain.seen) {
            *look = vain;
        }
    }

    fn woken(&self, session: SessionId) {
        let mut sessions = self.sessions();
        sessions.turn += 1;
        let turn = sessions.turn;
        if let Some(waiting) = sessions.by_id.get_mut(&session) {
            (waiting.look, waiting.woken) = (None, turn);
            waiting.wake_ups.send_modify(|count| *count += 1);
        }
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of the round after so many like one.
    fn after(round: &Round, count: usize) -> usize {
        (0..count).fold(FEW, |few, _| round.next(few).expect("another round").1)
    }

    #[test]
    fn rounds_grow_to_a_bound_and_begin_small_after_an_error() {
        assert_eq!([1, 2, 3].map(|count| after(&Round::Cut, count)), [4, 8, 16]);
        assert_eq!(after(&Round::Cut, 1_000), MANY);
        assert_eq!(after(&Round::Failed, 1_000), FEW);
        assert_eq!(Round::Failed.next(MANY), Some((PAUSE, FEW)));
    }
}
