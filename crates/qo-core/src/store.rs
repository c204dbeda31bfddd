//! The `Store` trait: what every store can do, wherever it keeps its state.

use crate::WorkflowStatus;
use crate::{AuditEntry, AuditText, Deed, NewToken, Token, TokenId};
use crate::{
    Change, Changed, Claim, Configuration, Cursor, Exchange, ExchangeReply, Explanation, FenceToken,
};
use crate::{
    GroupDetail, GroupPage, GroupRef, JobDetail, JobFilter, JobId, JobPage, JobState, LeaseId, Name,
};
use crate::{
    NewJob, NewSession, OpenedSession, Over, Push, Pushed, QueueStatus, Result, ScheduleStatus, SessionId,
    SlotLease,
};
use crate::{SlotRequest, Steer, Submitted, Swept, TaskOptions, Time, Work, WorkerStatus, WorkflowPage};
use async_trait::async_trait;
use std::any::Any;
use std::time::Duration;

/// A namespace: the jobs, workflows, groups, limits, schedules and sessions of one store location.
///
/// Rules for every method:
/// - **Atomic.** A call happens as a whole, at one point of the store's order of events, or not at all.
/// - **Durable before acknowledged** (G10). After `Ok` the change survives a crash.
/// - **Cancel-safe.** Dropping the future leaves the call done or not done, never half done. The caller does not know
///   which, as after `Unknown`.
/// - **Safe to repeat.** After `Unknown` or a dropped future the caller may make the same call again. Jobs, sessions
///   and leases carry ids, exchanges carry numbers, steers name a step. The other calls set a value or end something.
///   When such a call is repeated, `NotFound` (from `unset_limit` and `release_slot`) or `Fenced` (from `return_slots`)
///   may mean that the first call succeeded.
/// - **Errors.** `Invalid`: a value broke a rule, and nothing happened. `Unavailable`: nothing happened. `Unknown`: it
///   may have happened. Every method may return these three.
/// - **Views** (`job`, `jobs`, `explain`, `groups`, `group`, `queues`, `workers`, `workflows`, `workflow`, `tokens`)
///   change nothing. They answer as though everything that is over at their time had been ended. One exception: a job ends
///   only by a command, so `job`, `jobs`, `explain`, `workflows` and `workflow` show a job that would end as it is
///   stored.
///
/// Each kind of request has a `check` method for the rules that need no state. A store calls it first.
///
/// The trait extends [`Any`], so that a caller can reach through `dyn Store` what only one kind of store offers.
#[async_trait]
pub trait Store: Any + Send + Sync {
    /// Store time (G9), which measures leases, dates and ages. It never falls.
    async fn now(&self) -> Result<Time>;

    /// Stores jobs and returns one outcome per job, in the order of the call.
    ///
    /// - The store looks up the idempotency key first, then the id. A job with the same task and payload is
    ///   [`Submitted::Existing`]; with another one it is a `Conflict`.
    /// - The store decides `on_limit` in the same step as the insert, so concurrent submits cannot over-admit:
    ///   `LimitReached` or [`Submitted::Skipped`]. Jobs earlier in the call count.
    /// - One `Invalid` job refuses the whole call. The message begins with its index, `jobs[3]`.
    /// - A call holds at most [`SUBMIT_JOBS`](crate::caps::SUBMIT_JOBS) jobs and
    ///   [`SUBMIT_BYTES`](crate::caps::SUBMIT_BYTES) of payload.
    async fn submit(&self, jobs: Vec<NewJob>) -> Result<Vec<Result<Submitted>>>;

    /// Cancels jobs and returns the state of each.
    ///
    /// A pending job is cancelled at once. A running job keeps its slots: the next exchange tells its worker to stop.
    /// The job ends as cancelled when its attempt is retried, released or loses its lease; a success stays a success.
    /// An ended job stays as it is. Unknown ids are `NotFound`.
    async fn cancel(&self, jobs: Vec<JobId>) -> Result<Vec<Result<JobState>>>;

    /// Reopens ended jobs and returns the state of each.
    ///
    /// A failed, cancelled or expired job is pending again, due now, with all its attempts left. Its earlier attempts
    /// stay on record. No limit is checked again. A job that waits for its next attempt becomes due now. Any other live
    /// job stays as it is. `Conflict` if the job succeeded or its workflow was cancelled. `NotFound` if there is no
    /// such job, or it was forgotten.
    async fn retry(&self, jobs: Vec<JobId>) -> Result<Vec<Result<JobState>>>;

    /// Cancels or retries the jobs that match a filter.
    ///
    /// It changes at most `limit` of the jobs after `after` that can be changed, in the order of their acceptance. Call
    /// it again with [`Changed::next`] until that is none.
    async fn change_matching(
        &self,
        change: Change,
        filter: JobFilter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Changed>;

    /// One job with all its details. `NotFound` if there is none or it was forgotten.
    async fn job(&self, job: JobId) -> Result<JobDetail>;

    /// Jobs that match a filter, in the order of their acceptance or the newest first: at most `limit` of those after
    /// `after` in that order.
    async fn jobs(&self, filter: JobFilter, after: Option<Cursor>, limit: usize) -> Result<JobPage>;

    /// Why a job is not running. `NotFound` if there is none or it was forgotten.
    async fn explain(&self, job: JobId) -> Result<Explanation>;

    /// Workflows that are remembered, by name: at most `limit` of those after `after`. [`jobs`](Self::jobs) lists the
    /// steps of a workflow.
    async fn workflows(&self, after: Option<Name>, limit: usize) -> Result<WorkflowPage>;

    /// One workflow. `NotFound` if there is none or it was forgotten.
    async fn workflow(&self, workflow: Name) -> Result<WorkflowStatus>;

    /// Retries or skips the step that halts a workflow, or cancels the workflow.
    ///
    /// Cancelling a workflow cancels its waiting steps at once and asks a running one to stop. The workflow then takes
    /// no more jobs.
    ///
    /// `Conflict` if another step halts it, or none. A step that is open again, or was skipped, already is `Ok`. A
    /// retry that is repeated after its step has run and failed once more reopens the step once more.
    async fn steer_workflow(&self, workflow: Name, steer: Steer) -> Result<()>;

    /// Declares tasks: their group, limit, timeout and backoff. Returns what that changed.
    ///
    /// An app that declares a task again replaces what it declared before. A declaration without a limit takes the
    /// app's old limit back.
    async fn register(&self, tasks: Vec<TaskOptions>) -> Result<Pushed>;

    /// Replaces an app's configuration as a whole: limits, queue priorities, schedules and retention. Returns what that
    /// changed.
    ///
    /// The configurations of other apps stay. [`app`](crate::app) says which one counts.
    async fn configure(&self, configuration: Configuration) -> Result<Pushed>;

    /// The configuration of each app, in the order of their newest push that changed something.
    ///
    /// Where two name the same setting, the later one counts.
    async fn configurations(&self) -> Result<Vec<Configuration>>;

    /// The last pushes of configurations and registrations that changed something, newest first.
    async fn pushes(&self) -> Result<Vec<Push>>;

    /// Sets the operator's limit of a group, or with `GROUP/*` of every key.
    ///
    /// After `Ok` no claim exceeds it (G8). Lowering takes nothing away from running jobs. Raising lets waiting jobs go
    /// at once.
    async fn set_limit(&self, group: GroupRef, limit: u32) -> Result<()>;

    /// Takes the operator's limit back, so that the next source counts. `NotFound` if there was none.
    async fn unset_limit(&self, group: GroupRef) -> Result<()>;

    /// Stops (`true`) or resumes (`false`) claims from a queue.
    ///
    /// After `Ok` no claim takes a job of a paused queue (G8). Running jobs go on, and submits are accepted.
    async fn pause_queue(&self, queue: Name, paused: bool) -> Result<()>;

    /// Groups that have live jobs or a limit, by name and key: at most `limit` of those after `after`.
    async fn groups(&self, after: Option<GroupRef>, limit: usize) -> Result<GroupPage>;

    /// A group and the holders of its slots. `NotFound` if it has neither live jobs nor a limit.
    async fn group(&self, group: GroupRef) -> Result<GroupDetail>;

    /// Takes away the slots that a claim holds in a group.
    ///
    /// The attempt is used, its error says "released by operator", and its worker is told to stop. `NotFound` if that
    /// token holds no slot there.
    async fn release_slot(&self, group: GroupRef, slot: FenceToken) -> Result<()>;

    /// Takes slots of a group for a program that is not a job: all of them, or none (`None`). The call does not wait.
    ///
    /// The slots count against the same limit as the jobs of the group. The lease is the program's own: without
    /// [`extend_slots`](Self::extend_slots) it ends after `lease_ms`. The same id again, while the slots are held, gets
    /// the same lease; with another group or number of slots it is a `Conflict`. The store does not remember an id
    /// whose lease has ended: a request that arrives late takes slots until its lease is over.
    async fn acquire_slots(&self, request: SlotRequest) -> Result<Option<SlotLease>>;

    /// Extends a program's lease on its slots to `lease_ms` from now. `Fenced` if that token holds no slots (any more).
    async fn extend_slots(&self, lease: LeaseId, token: FenceToken, lease_ms: u64) -> Result<SlotLease>;

    /// Returns a program's slots. `Fenced` if that token holds no slots (any more); no slot is freed twice.
    async fn return_slots(&self, lease: LeaseId, token: FenceToken) -> Result<()>;

    /// All schedules, by name.
    async fn schedules(&self) -> Result<Vec<ScheduleStatus>>;

    /// Enables (`true`) or disables a schedule. Ticks that pass while it is disabled are not made up for. `NotFound` if
    /// there is none.
    async fn enable_schedule(&self, schedule: Name, enabled: bool) -> Result<()>;

    /// Submits a schedule's job now, enabled or not. Its ticks stay as they are.
    ///
    /// The same id again is the same job. `LimitReached` if an earlier job of it has not ended (unless they may
    /// overlap). `NotFound` if there is no such schedule.
    async fn trigger_schedule(&self, schedule: Name, job: JobId) -> Result<Submitted>;

    /// Creates a token, and records in the same step that `by` did.
    ///
    /// The same id with the same content is the same token. `Conflict` if a live token has its id with another content,
    /// or its name. `Invalid` if it has expired already, or the namespace has
    /// [`TOKENS`](crate::caps::TOKENS) live ones.
    async fn create_token(&self, token: NewToken, by: AuditText) -> Result<()>;

    /// Revokes a token, and records in the same step that `by` did. `NotFound` if there is none, or it has expired.
    ///
    /// Nothing is left of it but its name in the audit log.
    async fn revoke_token(&self, token: TokenId, by: AuditText) -> Result<()>;

    /// The tokens that are live, by name. An expired one is not listed.
    async fn tokens(&self) -> Result<Vec<Token>>;

    /// Appends to the audit log what an operator did, at store time.
    ///
    /// Repeated, it is recorded once more. It never makes an exchange wait.
    async fn record(&self, deed: Deed) -> Result<()>;

    /// The audit log, newest first: at most `limit` of the entries with a number below `before`.
    ///
    /// Numbers grow by one. The newest [`AUDIT_ENTRIES`](crate::caps::AUDIT_ENTRIES) entries are kept, however old they
    /// are.
    async fn audit(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditEntry>>;

    /// All queues that have live jobs, a limit, a priority or a pause, by name.
    async fn queues(&self) -> Result<Vec<QueueStatus>>;

    /// All sessions that are alive (neither ended nor over), by worker name, then session.
    async fn workers(&self) -> Result<Vec<WorkerStatus>>;

    /// What is over and has not been ended yet. Defaults to nothing.
    ///
    /// The other views show it as ended. An operator may want to know that no command has ended it.
    async fn over(&self) -> Result<Over> {
        Ok(Over::default())
    }

    /// Opens a session. Opening the same id again changes nothing and returns the lease's end. With another owner it is
    /// a `Conflict`.
    ///
    /// The id of an ended session is `Fenced` for 24 hours, so that a late duplicate cannot revive it.
    async fn open_session(&self, session: NewSession) -> Result<OpenedSession>;

    /// Settles jobs, starts claimed ones, renews the session, ends what is over and claims jobs, in this order, in one
    /// step.
    ///
    /// - The number must be the session's next one, or its last one again. The last one again returns the same answer
    ///   and changes nothing. An older number is a `Conflict`, a later one `Invalid`.
    /// - Each settle has its own result. A token that no longer owns the job is `Fenced` and changes nothing (G2). The
    ///   token that settled it gets the recorded state again.
    /// - Claims come in claim order (queue priority, job priority, `run_at`, acceptance) from the session's queues and
    ///   tasks. Each claimed job holds all its slots, under a new fence token (G1, G4).
    /// - A session that has ended, or never was, is `Fenced`.
    async fn exchange(&self, exchange: Exchange) -> Result<ExchangeReply>;

    /// An exchange of a worker that only wants jobs. `None` if there are none for it.
    ///
    /// The worker sends no settles, starts or progress, and [`work`](Self::work) told it that there are jobs. Another
    /// worker may have claimed them meanwhile. If the exchange would bring nothing at the moment of the decision, a
    /// store may skip it: it returns `None`, nothing has happened, and the number is still free. So workers that all
    /// wake up for one job do not all write.
    ///
    /// After `Unknown` send the number again with [`exchange`](Self::exchange). Defaults to an exchange, for stores
    /// where skipping saves nothing.
    async fn fetch(&self, exchange: Exchange) -> Result<Option<ExchangeReply>> {
        self.exchange(exchange).await.map(Some)
    }

    /// Ends a session. Jobs that it still holds lose their lease (attempt used). Closing a session that has ended or
    /// never was changes nothing.
    async fn close_session(&self, session: SessionId) -> Result<()>;

    /// Ends everything that is over: sessions, timeouts, claims, leases of programs, `good_until`.
    ///
    /// It also fires schedules and forgets jobs whose retention is over, a thousand at a time. Every exchange does all
    /// of this except forgetting. Where no worker is alive, another process must sweep.
    async fn sweep(&self) -> Result<Swept>;

    /// What an exchange of a session with this claim would find now. It changes nothing.
    ///
    /// A worker with nothing to report asks this before it exchanges, so that idle workers cost a store nothing.
    /// `Fenced` if the session has ended or never was. Defaults to "there is work", for stores that cannot tell
    /// cheaply.
    async fn work(&self, session: SessionId, claim: Claim) -> Result<Work> {
        let _ = (session, claim);
        Ok(Work { now: true, next: None, at: self.now().await?, seen: 0 })
    }

    /// Waits until something has happened since `seen`, and returns the store's change counter.
    ///
    /// With no `seen` it returns the counter at once. It is a hint: it may return although nothing has happened, and
    /// callers should also poll now and then. Defaults to never returning, for stores
    /// [that cannot tell](Self::tells_changes).
    async fn changed(&self, seen: Option<u64>) -> Result<u64> {
        match seen {
            None => Ok(0),
            Some(_) => std::future::pending().await,
        }
    }

    /// Whether [`changed`](Self::changed) returns soon after a change by any process. Defaults to no: workers then poll
    /// more often.
    fn tells_changes(&self) -> bool {
        false
    }

    /// Whether a renewal costs so much that idle workers should renew seldom, for longer leases. Defaults to no.
    fn renewals_cost(&self) -> bool {
        false
    }

    /// How much too early the store may end a lease, because its time is coarse. Defaults to zero.
    ///
    /// Workers trust their leases for that much less.
    fn coarseness(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether a server stands between the caller and the store. Defaults to no.
    ///
    /// The process that calls the store itself measures how long jobs waited, so that each wait is counted once.
    fn is_served(&self) -> bool {
        false
    }

    /// Whether a wake-up has told the store that jobs came after the change `seen`. Defaults to no.
    ///
    /// A worker then fetches at once, without asking [`work`](Self::work) first where that costs as much as a fetch.
    fn told_of_jobs(&self, seen: u64) -> bool {
        let _ = seen;
        false
    }

    /// Waits until the store has finished background work, such as writing a snapshot. Defaults to nothing.
    ///
    /// No answer depends on that work. But a process that exits at once would cut it short, and the next process would
    /// start over.
    async fn finish(&self) {}

    /// Keeps the log of an attempt: the stderr of a program task. Defaults to dropping it.
    ///
    /// The log is found by the attempt's token, as long as its job is remembered. Of a long log the last
    /// [`LOG_BYTES`](crate::caps::LOG_BYTES) are kept. Keeping a log again for the same token replaces it as a whole;
    /// workers do that while the attempt runs.
    ///
    /// Logs stand outside the order of events: they take no part in any decision, and a lost log breaks no guarantee.
    async fn keep_log(&self, token: FenceToken, log: String) -> Result<()> {
        let _ = (token, log);
        Ok(())
    }

    /// The log of an attempt, if one is kept.
    async fn log(&self, token: FenceToken) -> Result<Option<String>> {
        let _ = token;
        Ok(None)
    }
}
