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
//!
//! Sessions of one kind (the same queues, tasks and claim) that hold no job get the same answer, so one look stands for
//! all of them as long as it finds nothing. A thousand idle workers of one service so cost one look for each change, of
//! which their own renewals are most.
//!
//! Invariants:
//! - A session whose look is older than the newest change is looked for again, or was woken.
//! - A wake-up grants nothing. A lost one costs a poll interval at most: workers poll now and then in any case.

use qo_core::{Claim, ErrorKind, Name, NewSession, SessionId, Store};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

/// Sessions that the first round wakes.
const FEW: usize = 2;
/// The pause after a round, in which those that were woken claim.
const ROUND: Duration = Duration::from_millis(3);
/// Between two wake-ups for a client that wants to know of every change.
const GAP: Duration = Duration::from_millis(5);
/// Most sessions of which the kind is remembered. Beyond that it is forgotten, and each is looked for by itself.
const KINDS: usize = 100_000;
/// The pause after the store did not answer.
const PAUSE: Duration = Duration::from_millis(200);

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
}

/// What a session that was opened here serves.
struct Kind {
    serves: Arc<(Vec<Name>, Vec<Name>)>,
    permits: u32,
    /// It holds no job, by its last exchange.
    is_idle: bool,
}

/// A session to look for.
struct Look {
    session: SessionId,
    claim: Claim,
    /// None if the answer is for this session alone.
    serves: Option<Arc<(Vec<Name>, Vec<Name>)>>,
}

impl Look {
    /// Whether both get the same answer if it is that there is no work.
    fn is_like(&self, other: &Self) -> bool {
        self.serves.is_some() && self.serves == other.serves && self.claim == other.claim
    }
}

/// A session with a stream.
struct Waiting {
    /// What it would ask for, and the newest change before its last look. None while it does not wait.
    look: Option<(Claim, u64)>,
    /// The turn of its last wake-up.
    woken: u64,
    /// Counts its wake-ups; streams follow it.
    wake_ups: watch::Sender<u64>,
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
    pub fn waits(&self, session: SessionId, claim: Claim, seen: u64) {
        if let Some(waiting) = self.sessions().by_id.get_mut(&session) {
            waiting.look = Some((claim, seen));
            self.waits.notify_one();
        }
    }

    /// A session was opened.
    pub fn opened(&self, session: &NewSession) {
        let mut sessions = self.sessions();
        let same = |kind: &&Kind| *kind.serves == (session.queues.clone(), session.tasks.clone());
        let serves = match sessions.kinds.values().next_back().filter(same) {
            Some(kind) => Arc::clone(&kind.serves),
            None => Arc::new((session.queues.clone(), session.tasks.clone())),
        };
        if sessions.kinds.len() >= KINDS {
            sessions.kinds.clear();
        }
        sessions.kinds.insert(session.id, Kind { serves, permits: session.permits, is_idle: true });
    }

    /// A session has exchanged, with so many free permits before it, and got jobs or not.
    pub fn exchanged(&self, session: SessionId, free_permits: u32, got_jobs: bool) {
        if let Some(kind) = self.sessions().kinds.get_mut(&session) {
            kind.is_idle = free_permits == kind.permits && !got_jobs;
        }
    }

    /// A session was closed.
    pub fn closed(&self, session: SessionId) {
        self.is_busy(session);
        self.sessions().kinds.remove(&session);
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
            let mut few = FEW;
            while self.round(newest, few).await {
                sleep(ROUND).await;
                few *= 2;
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = began => {}
            }
        }
    }

    /// Looks for sessions whose look is older than a change, until so many were woken. Returns whether others are left.
    async fn round(&self, newest: u64, few: usize) -> bool {
        let mut woken = 0;
        let mut in_vain: Vec<Look> = Vec::new();
        for look in self.outdated(newest) {
            let (session, claim) = (look.session, look.claim);
            if woken == few {
                return true;
            }
            if in_vain.iter().any(|other| other.is_like(&look)) {
                self.looked(session, claim, newest);
                continue;
            }
            match self.store.work(session, claim).await {
                Ok(work) if !work.now => {
                    self.looked(session, claim, newest);
                    in_vain.extend(look.serves.is_some().then_some(look));
                }
                Err(error) if error.is_transient() => {
                    tracing::warn!("no look for waiting workers: {error}");
                    sleep(PAUSE).await;
                    return true;
                }
                // There is work, or the session has ended, which its worker should know.
                result => {
                    let is_over = result.is_err_and(|error| error.kind() == ErrorKind::Fenced);
                    woken += usize::from(!is_over);
                    self.woken(session);
                }
            }
        }
        false
    }

    /// The sessions whose look is older than a change, the one that was woken longest ago first.
    fn outdated(&self, newest: u64) -> Vec<Look> {
        let sessions = self.sessions();
        let look = |(id, waiting): (&SessionId, &Waiting)| {
            let (claim, _) = waiting.look.filter(|(_, seen)| *seen < newest)?;
            let kind = sessions.kinds.get(id).filter(|kind| kind.is_idle);
            let serves = kind.map(|kind| Arc::clone(&kind.serves));
            Some((waiting.woken, Look { session: *id, claim, serves }))
        };
        let mut outdated: Vec<_> = sessions.by_id.iter().filter_map(look).collect();
        outdated.sort_by_key(|(woken, look)| (*woken, look.session));
        outdated.into_iter().map(|(_, look)| look).collect()
    }

    /// The session waits on, unless it has looked for itself or become busy meanwhile.
    fn looked(&self, session: SessionId, claim: Claim, seen: u64) {
        let mut sessions = self.sessions();
        let look = sessions.by_id.get_mut(&session).and_then(|waiting| waiting.look.as_mut());
        if let Some(look) = look.filter(|(waits_for, before)| *waits_for == claim && *before < seen) {
            look.1 = seen;
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
