//! The seam: what every store can do, whatever it is made of.

use crate::WorkflowStatus;
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

/// A namespace where jobs, workflows, groups, limits, schedules and sessions live.
///
/// Rules for every method:
/// - **Atomic.** A call happens as a whole, at one point of the store's order of events, or not at all.
/// - **Durable before acknowledged** (G10). `Ok` means that it survives a crash.
/// - **Cancel-safe.** Dropping the future leaves the call done or not done, never half done. The caller
///   does not know which, as after `Unknown`.
/// - **Safe to repeat.** After `Unknown` or a dropped future the same call may be made again: jobs, sessions and
///   leases carry ids, exchanges carry numbers, steers name a step; the rest sets a value or ends what has ended
///   (where `NotFound`, from `unset_limit` and `release_slot`, or `Fenced`, from `return_slots`, then means that the
///   first call did it).
/// - **Errors.** `Invalid` means that a value broke a rule and nothing happened; `Unavailable` that nothing
///   happened; `Unknown` that it may have happened. Every method may return these three.
///
/// - **Views** (`job`, `jobs`, `explain`, `groups`, `group`, `queues`, `workers`, `workflows`, `workflow`) answer as though
///   what is over at their time had been ended, and change nothing. But a job has ended only when a command has ended it:
///   `job`, `jobs`, `explain`, `workflows` and `workflow` show one that would end as it is stored.
///
/// Each kind of request has a `check` method for the rules that need no state; a store calls it first.
///
/// It is [`Any`], so that what only one kind of store can do is found behind `dyn Store`, too.
#[async_trait]
pub trait Store: Any + Send + Sync {
    /// Store time (G9): what leases, dates and ages are measured by. It never falls.
    async fn now(&self) -> Result<Time>;

    /// Stores jobs and says of each what became of it, in the order of the call.
    ///
    /// - The idempotency key is looked up first, then the id: the same one with the same task and payload
    ///   is [`Submitted::Existing`], with another `Conflict`.
    /// - `on_limit` is decided in the same step as the insert, so concurrent submits cannot over-admit:
    ///   `LimitReached` or [`Submitted::Skipped`]. Jobs earlier in the call count.
    /// - One `Invalid` job refuses the whole call; the message begins with its index, `jobs[3]`.
    /// - At most [`SUBMIT_JOBS`](crate::caps::SUBMIT_JOBS) jobs and
    ///   [`SUBMIT_BYTES`](crate::caps::SUBMIT_BYTES) of payload a call.
    async fn submit(&self, jobs: Vec<NewJob>) -> Result<Vec<Result<Submitted>>>;

    /// Calls jobs off and says of each in which state it is now.
    ///
    /// A pending job is cancelled at once. A running one keeps its slots; its worker is told to stop with
    /// its next exchange, and the job ends as cancelled when it is retried, released or loses its lease,
    /// while a success stays a success. A finished job stays as it is. Unknown ids are `NotFound`.
    async fn cancel(&self, jobs: Vec<JobId>) -> Result<Vec<Result<JobState>>>;

    /// Opens finished jobs again and says of each in which state it is now.
    ///
    /// A failed, cancelled or expired job is pending again, due now, with all its attempts; what is remembered of
    /// its earlier attempts stays. No limit is checked again. A job that waits for its next attempt is due now; any other
    /// that has not ended stays as it is. `Conflict` if it
    /// succeeded or its workflow was cancelled, `NotFound` if there is none or it was forgotten.
    async fn retry(&self, jobs: Vec<JobId>) -> Result<Vec<Result<JobState>>>;

    /// Cancels or retries the jobs that match a filter and can be, in the order of their acceptance, at most `limit`
    /// of those after `after`: call it again with [`Changed::next`] until there is none.
    async fn change_matching(
        &self,
        change: Change,
        filter: JobFilter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Changed>;

    /// One job, whole. `NotFound` if there is none or it was forgotten.
    async fn job(&self, job: JobId) -> Result<JobDetail>;

    /// Jobs that match a filter, in the order of their acceptance, `limit` at a time, from `after` on.
    async fn jobs(&self, filter: JobFilter, after: Option<Cursor>, limit: usize) -> Result<JobPage>;

    /// Why a job is not running. `NotFound` if there is none or it was forgotten.
    async fn explain(&self, job: JobId) -> Result<Explanation>;

    /// Workflows that are remembered, by name, `limit` at a time, those after `after`. Its steps are the
    /// [`jobs`](Self::jobs) of that workflow.
    async fn workflows(&self, after: Option<Name>, limit: usize) -> Result<WorkflowPage>;

    /// One workflow. `NotFound` if there is none or it was forgotten.
    async fn workflow(&self, workflow: Name) -> Result<WorkflowStatus>;

    /// Retries or skips the step that halts a workflow, or cancels the workflow: steps that wait are cancelled at once,
    /// one that runs is asked to stop, and nothing more can be submitted to it.
    ///
    /// `Conflict` if another step halts it, or none; but a step that has been opened again, or skipped, already is `Ok`.
    /// (A retry that is made again after its step has run and failed once more opens it once more.)
    async fn steer_workflow(&self, workflow: Name, steer: Steer) -> Result<()>;

    /// Declares tasks: their group, limit, timeout and backoff, and says what that changed. An app that declares a task
    /// again replaces what it said about it before; without a limit it takes its old one back.
    async fn register(&self, tasks: Vec<TaskOptions>) -> Result<Pushed>;

    /// Replaces what an app's configuration file says about limits, queue priorities, schedules and retention, as a whole,
    /// and says what that changed. What other apps said stays. See [`app`](crate::app) for which of them counts.
    async fn configure(&self, configuration: Configuration) -> Result<Pushed>;

    /// What each app's configuration says, in the order of their newest push that changed something: where two name the
    /// same, the later one counts.
    async fn configurations(&self) -> Result<Vec<Configuration>>;

    /// The last pushes of configurations and registrations that changed something, the newest first.
    async fn pushes(&self) -> Result<Vec<Push>>;

    /// Sets the operator's limit of a group, or with `GROUP/*` of every key. After `Ok` no claim exceeds
    /// it (G8). Lowering takes nothing away from running jobs; raising lets waiting jobs go at once.
    async fn set_limit(&self, group: GroupRef, limit: u32) -> Result<()>;

    /// Takes the operator's limit back; the next source counts again. `NotFound` if there was none.
    async fn unset_limit(&self, group: GroupRef) -> Result<()>;

    /// Stops (`true`) or resumes (`false`) claims from a queue. After `Ok` nothing is claimed from a
    /// paused queue (G8); running jobs go on, and submits are accepted.
    async fn pause_queue(&self, queue: Name, paused: bool) -> Result<()>;

    /// Groups that have live jobs or a limit, by name and key, `limit` at a time, those after `after`.
    async fn groups(&self, after: Option<GroupRef>, limit: usize) -> Result<GroupPage>;

    /// A group and the holders of its slots. `NotFound` if it has neither live jobs nor a limit.
    async fn group(&self, group: GroupRef) -> Result<GroupDetail>;

    /// Takes the slots that a claim holds in a group away from it: the attempt is used, its error says
    /// "released by operator", its worker is told to stop. `NotFound` if that token holds nothing there.
    async fn release_slot(&self, group: GroupRef, slot: FenceToken) -> Result<()>;

    /// Takes slots of a group for a program that is not a job, all or none, at once or not at all (`None`).
    ///
    /// They count against the same limit as the jobs of the group. The lease is the program's own: without
    /// [`extend_slots`](Self::extend_slots) it ends after `lease_ms`. The same id again, while the slots are held, gets the
    /// same lease; with another group or number of slots it is `Conflict`. An id whose lease has ended is not remembered:
    /// a request that arrives late takes slots until its lease is over.
    async fn acquire_slots(&self, request: SlotRequest) -> Result<Option<SlotLease>>;

    /// Lets a program hold its slots until `lease_ms` from now. `Fenced` if that token holds nothing (any more).
    async fn extend_slots(&self, lease: LeaseId, token: FenceToken, lease_ms: u64) -> Result<SlotLease>;

    /// Gives a program's slots back. `Fenced` if that token holds nothing (any more); nothing is freed twice.
    async fn return_slots(&self, lease: LeaseId, token: FenceToken) -> Result<()>;

    /// All schedules, by name.
    async fn schedules(&self) -> Result<Vec<ScheduleStatus>>;

    /// Lets a schedule fire (`true`) or not. Ticks that come while it is disabled are not made up for. `NotFound` if
    /// there is none.
    async fn enable_schedule(&self, schedule: Name, enabled: bool) -> Result<()>;

    /// Submits a schedule's job now, enabled or not; its ticks stay as they are. The same id again is the same job.
    /// `LimitReached` if an earlier one has not ended (unless they may overlap), `NotFound` if there is no such schedule.
    async fn trigger_schedule(&self, schedule: Name, job: JobId) -> Result<Submitted>;

    /// All queues that have live jobs, a limit, a priority or a pause, by name.
    async fn queues(&self) -> Result<Vec<QueueStatus>>;

    /// All sessions that have not ended and are not over, by worker name, then session.
    async fn workers(&self) -> Result<Vec<WorkerStatus>>;

    /// What is over and has not been ended yet. The other views show it as ended; an operator may want to know that nothing
    /// has ended it. Defaults to nothing.
    async fn over(&self) -> Result<Over> {
        Ok(Over::default())
    }

    /// Opens a session. Opening the same id again changes nothing and returns the lease's end; once it has
    /// ended the same id is `Fenced` (it is remembered for 24 hours), so a late duplicate cannot revive it.
    async fn open_session(&self, session: NewSession) -> Result<OpenedSession>;

    /// Settles jobs, starts claimed ones, renews the session, ends what is over, claims jobs: in this order, in one
    /// step.
    ///
    /// - The number must be the session's next one, or its last one again, which returns the same answer
    ///   and changes nothing. An older number is `Conflict`, a later one `Invalid`.
    /// - Each settle has its own result: a token that no longer owns the job is `Fenced` and changes
    ///   nothing (G2); the token that settled it gets the recorded state again.
    /// - Claims come in claim order (queue priority, job priority, `run_at`, acceptance) from the session's
    ///   queues and tasks; each claimed job holds all its slots, under a new fence token (G1, G4).
    /// - A session that has ended, or never was, is `Fenced`.
    async fn exchange(&self, exchange: Exchange) -> Result<ExchangeReply>;

    /// An exchange of a worker that has nothing to say: no settles, starts or progress, and it was told that there is
    /// [`work`](Self::work). Somebody else may have taken that meanwhile. If it would bring nothing at the moment when it is
    /// decided, a store may leave it at that: `None`, nothing has happened, and the number is still free.
    ///
    /// So workers that all wake up for one job do not all write. After `Unknown` send the number again with
    /// [`exchange`](Self::exchange). A store that loses nothing by it exchanges, which is what the default does.
    async fn fetch(&self, exchange: Exchange) -> Result<Option<ExchangeReply>> {
        self.exchange(exchange).await.map(Some)
    }

    /// Ends a session. Jobs that it still holds lose their lease (attempt used). Closing it again, or a
    /// session that never was, changes nothing.
    async fn close_session(&self, session: SessionId) -> Result<()>;

    /// Ends what is over at this time: sessions, timeouts, claims, leases of programs, `good_until`; fires
    /// schedules; forgets what finished long ago, a thousand jobs at a time. Every exchange does all but the last too; somebody must sweep where
    /// no worker is alive.
    async fn sweep(&self) -> Result<Swept>;

    /// What an exchange of a session that asks for this much would find now. It changes nothing. `Fenced` if the session
    /// has ended or never was.
    ///
    /// A worker that has nothing to say asks this before it exchanges, so that idle workers cost a store nothing. A store
    /// that cannot tell cheaply says that there is work, which is what the default does.
    async fn work(&self, session: SessionId, claim: Claim) -> Result<Work> {
        let _ = (session, claim);
        Ok(Work { now: true, next: None, at: self.now().await?, seen: 0 })
    }

    /// Waits until something has happened since `seen`, and returns where the store's changes are now; with none it
    /// returns that at once. It is a hint: it may return for nothing, and whoever waits should also look now and then.
    ///
    /// A store [that cannot tell](Self::tells_changes) never returns, which is what the default does.
    async fn changed(&self, seen: Option<u64>) -> Result<u64> {
        match seen {
            None => Ok(0),
            Some(_) => std::future::pending().await,
        }
    }

    /// Whether [`changed`](Self::changed) returns soon after something has happened, wherever that was. Where it does
    /// not, workers look more often.
    fn tells_changes(&self) -> bool {
        false
    }

    /// Whether renewing a session costs something that is worth saving: a worker with nothing to do renews its session seldom
    /// then, and for longer. Defaults to no.
    fn renewals_cost(&self) -> bool {
        false
    }

    /// How much earlier than agreed the store may end a lease, because it tells time coarsely: workers trust theirs for that
    /// much less. Defaults to nothing.
    fn coarseness(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether the store was told, without having asked, that jobs have come after the change `seen`. A worker then fetches
    /// at once and does not look first, where looking costs as much. Defaults to no.
    fn told_of_jobs(&self, seen: u64) -> bool {
        let _ = seen;
        false
    }

    /// Waits until the store has done what it does on the side, such as writing a snapshot. Nothing that was answered rests on
    /// it; but a program that ends at once would cut it short, and the next one would begin it anew. Defaults to nothing.
    async fn finish(&self) {}

    /// Keeps the log of an attempt: what a program wrote to stderr. It is found by the attempt's token, as long as its job
    /// is remembered. Of a long one the last [`LOG_BYTES`](crate::caps::LOG_BYTES) are kept. A log that is kept again for the
    /// same token replaces the one before as a whole: workers do that while the attempt runs.
    ///
    /// Logs are beside the order of events: keeping one decides nothing, and a lost one breaks no guarantee. A store that
    /// has no place for them drops them, which is what the default does.
    async fn keep_log(&self, token: FenceToken, log: String) -> Result<()> {
        let _ = (token, log);
        Ok(())
    }

    /// The log of an attempt, if it had one that is still kept.
    async fn log(&self, token: FenceToken) -> Result<Option<String>> {
        let _ = token;
        Ok(None)
    }
}
