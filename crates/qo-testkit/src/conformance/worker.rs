//! A worker as cases use it: a session that numbers its exchanges by itself.

use super::job_spec::{name, success};
use qo_core::{Claim, ClaimedJob, Exchange, ExchangeReply, JobId, JobState, NewSession, Outcome, Prefetch};
use qo_core::{Progress, Result, SessionId, Settle, Start, Started, Store};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// How long a worker of a case may hold a claimed job before it starts it.
pub(super) const CLAIM_MS: u64 = 5_000;

/// A builder of a session. The world gives it an id unless the case does.
#[derive(Debug, Clone)]
pub struct SessionSpec {
    pub(super) id: Option<SessionId>,
    pub(super) new: NewSession,
}

/// A session of worker `worker` for `tasks`, in all queues, for 30 s, with 100 permits.
pub fn serving<const N: usize>(worker: &str, tasks: [&str; N]) -> SessionSpec {
    let id = SessionId(uuid::Uuid::nil());
    let tasks = tasks.map(name).into();
    let new = NewSession {
        id,
        worker: name(worker),
        queues: Vec::new(),
        tasks,
        lease_ms: 30_000,
        permits: 100,
        owner: None,
    };
    SessionSpec { id: None, new }
}

impl SessionSpec {
    /// With this id instead of the world's next one.
    #[must_use]
    pub fn id(mut self, id: SessionId) -> Self {
        self.id = Some(id);
        self
    }

    /// In these queues only.
    #[must_use]
    pub fn queues<const N: usize>(mut self, queues: [&str; N]) -> Self {
        self.new.queues = queues.map(name).into();
        self
    }

    /// With this lease.
    #[must_use]
    pub fn lease(mut self, ms: u64) -> Self {
        self.new.lease_ms = ms;
        self
    }

    /// With that many permits.
    #[must_use]
    pub fn permits(mut self, permits: u32) -> Self {
        self.new.permits = permits;
        self
    }
}

/// An open session.
pub struct Worker {
    store: Arc<dyn Store>,
    /// The session's id.
    pub session: SessionId,
    permits: u32,
    answered: AtomicU64,
    last: Mutex<Option<Exchange>>,
}

impl Worker {
    pub(super) fn new(store: Arc<dyn Store>, session: &NewSession) -> Self {
        let (session, permits) = (session.id, session.permits);
        Self { store, session, permits, answered: AtomicU64::new(0), last: Mutex::new(None) }
    }

    /// The next exchange, to be filled in. It reports all permits as free, so that no worker counts as saturated.
    pub fn next(&self) -> Exchange {
        let number = self.answered.load(Ordering::SeqCst) + 1;
        Exchange { free_permits: self.permits, ..Exchange::renew(self.session, number) }
    }

    /// Sends an exchange. Its number is used only if there is an answer.
    pub async fn send(&self, exchange: Exchange) -> Result<ExchangeReply> {
        let reply = self.store.exchange(exchange.clone()).await?;
        assert_eq!(reply.number, exchange.number, "the reply answers another exchange");
        assert_eq!(reply.settled.len(), exchange.settles.len(), "one result per settle");
        assert_eq!(reply.started.len(), exchange.starts.len(), "one result per start");
        self.answered.store(exchange.number, Ordering::SeqCst);
        *self.last.lock().expect("no case panics while it holds this") = Some(exchange);
        Ok(reply)
    }

    /// Sends the last exchange again, as after a lost reply.
    pub async fn repeat(&self) -> Result<ExchangeReply> {
        let last = self.last.lock().expect("no case panics while it holds this").clone();
        self.store.exchange(last.expect("there was an exchange")).await
    }

    /// Settles, renews and claims in one exchange, which must be accepted.
    pub async fn exchange(&self, settles: Vec<Settle>, max: u32) -> ExchangeReply {
        let mut exchange = Exchange { settles, ..self.next() };
        exchange.claim.max = max;
        self.send(exchange).await.expect("the session is live")
    }

    /// Claims up to `max` jobs.
    pub async fn claim(&self, max: u32) -> Vec<ClaimedJob> {
        self.exchange(Vec::new(), max).await.claimed
    }

    /// Claims up to `max` jobs and returns their ids.
    pub async fn claim_ids(&self, max: u32) -> Vec<JobId> {
        ids(&self.claim(max).await)
    }

    /// Claims one job, which must be there.
    pub async fn claim_one(&self) -> ClaimedJob {
        self.claim(1).await.pop().expect("a job to claim")
    }

    /// Claims up to `max` jobs to run, and others ahead of time until the session holds `buffer` of those.
    pub async fn prefetch(&self, max: u32, buffer: u32) -> ExchangeReply {
        let prefetch = Some(Prefetch { buffer, lease_ms: CLAIM_MS });
        let claim = Claim { max, prefetch, ..Claim::default() };
        self.send(Exchange { claim, ..self.next() }).await.expect("the session is live")
    }

    /// Claims jobs ahead of time until the session holds `buffer` of them, and starts none.
    pub async fn ahead(&self, buffer: u32) -> Vec<ClaimedJob> {
        let reply = self.prefetch(0, buffer).await;
        assert_eq!(reply.claimed, [], "nothing was asked for that runs at once");
        reply.prefetched.into_iter().map(|ahead| ahead.job).collect()
    }

    /// Claims one more job ahead of time, which must be there.
    pub async fn ahead_one(&self) -> ClaimedJob {
        self.ahead(1).await.pop().expect("a job to claim ahead of time")
    }

    /// Starts claimed jobs in one exchange.
    pub async fn start_all(&self, jobs: &[ClaimedJob]) -> Vec<Result<Started>> {
        let starts = jobs.iter().map(starting).collect();
        self.send(Exchange { starts, ..self.next() }).await.expect("the session is live").started
    }

    /// Starts one claimed job.
    pub async fn start(&self, job: &ClaimedJob) -> Result<Started> {
        self.start_all(std::slice::from_ref(job)).await.remove(0)
    }

    /// Starts one claimed job, which must run then, and returns it with the token that owns it now.
    pub async fn run(&self, job: &ClaimedJob) -> ClaimedJob {
        let started = self.start(job).await.expect("the claim is not over");
        assert_eq!(started.then, JobState::Running);
        let run = started.run.expect("what runs has a token");
        ClaimedJob { token: run.token, timeout_ms: run.timeout_ms, retry: run.retry, ..job.clone() }
    }

    /// Reports progress of jobs; the call must be accepted.
    pub async fn report(&self, progress: Vec<Progress>) {
        let reply = self.send(Exchange { progress, ..self.next() }).await.expect("the session is live");
        assert_eq!((reply.settled, reply.claimed, reply.stop), (vec![], vec![], vec![]));
    }

    /// Reports that it drains.
    pub async fn drain(&self) -> ExchangeReply {
        self.send(Exchange { draining: true, ..self.next() }).await.expect("the session is live")
    }

    /// Only renews.
    pub async fn renew(&self) -> ExchangeReply {
        self.exchange(Vec::new(), 0).await
    }

    /// Settles one job and claims nothing.
    pub async fn settle(&self, job: &ClaimedJob, outcome: Outcome) -> Result<JobState> {
        self.exchange(vec![settled(job, outcome)], 0).await.settled.remove(0)
    }

    /// Settles a job as succeeded, which must be accepted.
    pub async fn succeed(&self, job: &ClaimedJob) {
        assert_eq!(self.settle(job, success()).await, Ok(JobState::Succeeded));
    }

    /// Settles all these jobs as succeeded, in one exchange, which must be accepted.
    pub async fn succeed_all(&self, jobs: &[ClaimedJob]) {
        let reply = self.exchange(jobs.iter().map(|job| settled(job, success())).collect(), 0).await;
        assert!(reply.settled.iter().all(|state| *state == Ok(JobState::Succeeded)), "{:?}", reply.settled);
    }

    /// Ends the session.
    pub async fn close(&self) {
        self.store.close_session(self.session).await.expect("any session may be closed");
    }
}

/// The settle of a claimed job.
pub(super) fn settled(job: &ClaimedJob, outcome: Outcome) -> Settle {
    Settle { job: job.id, token: job.token, outcome }
}

/// A report on a job that runs.
pub(super) fn at_percent(job: &ClaimedJob, percent: u8, note: &str) -> Progress {
    Progress { job: job.id, token: job.token, percent, note: note.into() }
}

/// The start of a job that was claimed ahead of time.
pub(super) fn starting(job: &ClaimedJob) -> Start {
    Start { job: job.id, token: job.token }
}

pub(super) fn ids(claimed: &[ClaimedJob]) -> Vec<JobId> {
    claimed.iter().map(|job| job.id).collect()
}
