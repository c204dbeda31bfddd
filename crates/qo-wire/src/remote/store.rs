//! Each method of the trait as a call.

use super::{RemoteStore, link::Client, method, read, unreadable};
use crate::convert;
use crate::pb;
use async_trait::async_trait;
use qo_core::{AuditEntry, AuditText, Deed, NewToken, Token, TokenId};
use qo_core::{Change, Changed, Claim, Configuration, Cursor, Error, Exchange, ExchangeReply, Explanation};
use qo_core::{FenceToken, GroupDetail, GroupPage, GroupRef, JobDetail, JobFilter, JobId, JobPage, JobState};
use qo_core::{LeaseId, Name, NewJob, NewSession, OpenedSession, Over, Push, Pushed, QueueStatus, Result};
use qo_core::{
    ScheduleStatus, SessionId, SlotLease, SlotRequest, Steer, Store, Submitted, Swept, TaskOptions,
};
use qo_core::{Time, Work, WorkerStatus, WorkflowPage, WorkflowStatus, caps};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tonic::{Response, Status, Streaming};

/// Makes a call of that name.
macro_rules! call {
    ($self:ident, $name:literal, $function:ident, $request:expr) => {
        $self
            .link
            .call(method($name)?, $request, |mut client: Client, request| async move {
                client.$function(request).await
            })
            .await
    };
}

/// Makes a call whose answer is a stream, and reads all of it.
macro_rules! list {
    ($self:ident, $name:literal, $function:ident, $request:expr) => {
        $self
            .link
            .call(method($name)?, $request, |mut client: Client, request| async move {
                collected(client.$function(request).await?).await
            })
            .await
    };
}

async fn collected<M>(response: Response<Streaming<M>>) -> std::result::Result<Response<Vec<M>>, Status> {
    let mut stream = response.into_inner();
    let mut all = Vec::new();
    while let Some(message) = stream.message().await? {
        all.push(message);
    }
    Ok(Response::new(all))
}

fn read_all<T, M>(replies: Vec<M>) -> Result<Vec<T>>
where
    T: TryFrom<M, Error = Error>,
{
    convert::all(replies, "items").map_err(unreadable)
}

/// A page's length on its way. What does not fit into a message is no page's length.
fn page(limit: usize) -> Result<u32> {
    let too_long = |_| Error::invalid("limit", limit, format_args!("must be 1 to {}", caps::PAGE));
    u32::try_from(limit).map_err(too_long)
}

#[async_trait]
impl Store for RemoteStore {
    async fn now(&self) -> Result<Time> {
        let reply = call!(self, "Now", now, pb::NowRequest {})?;
        Ok(self.told(Time::from_millis(reply.now_ms)))
    }

    async fn submit(&self, jobs: Vec<NewJob>) -> Result<Vec<Result<Submitted>>> {
        read(call!(self, "Submit", submit, pb::SubmitRequest::from(jobs))?)
    }

    async fn cancel(&self, jobs: Vec<JobId>) -> Result<Vec<Result<JobState>>> {
        read(call!(self, "Cancel", cancel, pb::JobIds::from(jobs))?)
    }

    async fn retry(&self, jobs: Vec<JobId>) -> Result<Vec<Result<JobState>>> {
        read(call!(self, "Retry", retry, pb::JobIds::from(jobs))?)
    }

    async fn change_matching(
        &self,
        change: Change,
        filter: JobFilter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Changed> {
        let request = pb::ChangeMatchingRequest {
            change: convert::number::<pb::Change, _>(change),
            filter: Some(filter.into()),
            after: after.map(|Cursor(after)| after),
            limit: page(limit)?,
        };
        call!(self, "ChangeMatching", change_matching, request).map(Changed::from)
    }

    async fn job(&self, job: JobId) -> Result<JobDetail> {
        read(call!(self, "GetJob", get_job, pb::JobRequest { job: job.to_string() })?)
    }

    async fn jobs(&self, filter: JobFilter, after: Option<Cursor>, limit: usize) -> Result<JobPage> {
        let request = pb::ListJobsRequest {
            filter: Some(filter.into()),
            after: after.map(|Cursor(after)| after),
            limit: page(limit)?,
        };
        read(call!(self, "ListJobs", list_jobs, request)?)
    }

    async fn explain(&self, job: JobId) -> Result<Explanation> {
        read(call!(self, "Explain", explain, pb::JobRequest { job: job.to_string() })?)
    }

    async fn workflows(&self, after: Option<Name>, limit: usize) -> Result<WorkflowPage> {
        let request = pb::ListWorkflowsRequest { after: after.map(String::from), limit: page(limit)? };
        read(call!(self, "ListWorkflows", list_workflows, request)?)
    }

    async fn workflow(&self, workflow: Name) -> Result<WorkflowStatus> {
        let request = pb::WorkflowRequest { workflow: workflow.into() };
        read(call!(self, "GetWorkflow", get_workflow, request)?)
    }

    async fn steer_workflow(&self, workflow: Name, steer: Steer) -> Result<()> {
        let (action, step) = convert::steering(steer);
        let request = pb::SteerWorkflowRequest { workflow: workflow.into(), action: action.into(), step };
        call!(self, "SteerWorkflow", steer_workflow, request).map(drop)
    }

    async fn register(&self, tasks: Vec<TaskOptions>) -> Result<Pushed> {
        read(call!(self, "Register", register, pb::RegisterRequest::from(tasks))?)
    }

    async fn configure(&self, configuration: Configuration) -> Result<Pushed> {
        read(call!(self, "Configure", configure, pb::Configuration::from(configuration))?)
    }

    async fn configurations(&self) -> Result<Vec<Configuration>> {
        let request = pb::ListConfigurationsRequest {};
        read_all(list!(self, "ListConfigurations", list_configurations, request)?)
    }

    async fn pushes(&self) -> Result<Vec<Push>> {
        read_all(call!(self, "ListPushes", list_pushes, pb::ListPushesRequest {})?.pushes)
    }

    async fn set_limit(&self, group: GroupRef, limit: u32) -> Result<()> {
        let request = pb::SetLimitRequest { group: group.to_string(), limit };
        call!(self, "SetLimit", set_limit, request).map(drop)
    }

    async fn unset_limit(&self, group: GroupRef) -> Result<()> {
        call!(self, "UnsetLimit", unset_limit, pb::GroupRequest { group: group.to_string() }).map(drop)
    }

    async fn pause_queue(&self, queue: Name, paused: bool) -> Result<()> {
        let request = pb::PauseQueueRequest { queue: queue.into(), paused };
        call!(self, "PauseQueue", pause_queue, request).map(drop)
    }

    async fn groups(&self, after: Option<GroupRef>, limit: usize) -> Result<GroupPage> {
        let after = after.map(|after| after.to_string());
        read(call!(self, "ListGroups", list_groups, pb::ListGroupsRequest { after, limit: page(limit)? })?)
    }

    async fn group(&self, group: GroupRef) -> Result<GroupDetail> {
        let request = pb::GroupRequest { group: group.to_string() };
        convert::detail_of(list!(self, "GetGroup", get_group, request)?).map_err(unreadable)
    }

    async fn release_slot(&self, group: GroupRef, slot: FenceToken) -> Result<()> {
        let request = pb::ReleaseSlotRequest { group: group.to_string(), slot: slot.0 };
        call!(self, "ReleaseSlot", release_slot, request).map(drop)
    }

    async fn acquire_slots(&self, request: SlotRequest) -> Result<Option<SlotLease>> {
        let reply = call!(self, "AcquireSlots", acquire_slots, pb::AcquireSlotsRequest::from(request))?;
        Ok(reply.lease.map(SlotLease::from))
    }

    async fn extend_slots(&self, lease: LeaseId, token: FenceToken, lease_ms: u64) -> Result<SlotLease> {
        let request = pb::ExtendSlotsRequest { lease: lease.to_string(), token: token.0, lease_ms };
        call!(self, "ExtendSlots", extend_slots, request).map(SlotLease::from)
    }

    async fn return_slots(&self, lease: LeaseId, token: FenceToken) -> Result<()> {
        let request = pb::ReturnSlotsRequest { lease: lease.to_string(), token: token.0 };
        call!(self, "ReturnSlots", return_slots, request).map(drop)
    }

    async fn schedules(&self) -> Result<Vec<ScheduleStatus>> {
        read_all(list!(self, "ListSchedules", list_schedules, pb::ListSchedulesRequest {})?)
    }

    async fn enable_schedule(&self, schedule: Name, enabled: bool) -> Result<()> {
        let request = pb::EnableScheduleRequest { schedule: schedule.into(), enabled };
        call!(self, "EnableSchedule", enable_schedule, request).map(drop)
    }

    async fn trigger_schedule(&self, schedule: Name, job: JobId) -> Result<Submitted> {
        let request = pb::TriggerScheduleRequest { schedule: schedule.into(), job: job.to_string() };
        let reply = call!(self, "TriggerSchedule", trigger_schedule, request)?;
        Result::<Submitted>::try_from(reply).map_err(unreadable)?
    }

    async fn create_token(&self, token: NewToken, by: AuditText) -> Result<()> {
        let request = pb::CreateTokenRequest::of(token, &by);
        call!(self, "CreateToken", create_token, request).map(drop)
    }

    async fn revoke_token(&self, token: TokenId, by: AuditText) -> Result<()> {
        let request = pb::RevokeTokenRequest { token: token.into(), by: by.into() };
        call!(self, "RevokeToken", revoke_token, request).map(drop)
    }

    async fn tokens(&self) -> Result<Vec<Token>> {
        read_all(list!(self, "ListTokens", list_tokens, pb::ListTokensRequest {})?)
    }

    async fn record(&self, deed: Deed) -> Result<()> {
        call!(self, "Record", record, pb::Deed::from(deed)).map(drop)
    }

    async fn audit(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditEntry>> {
        let request = pb::ListAuditRequest { before, limit: page(limit)? };
        read_all(list!(self, "ListAudit", list_audit, request)?)
    }

    async fn queues(&self) -> Result<Vec<QueueStatus>> {
        read_all(list!(self, "ListQueues", list_queues, pb::ListQueuesRequest {})?)
    }

    async fn workers(&self) -> Result<Vec<WorkerStatus>> {
        read_all(list!(self, "ListWorkers", list_workers, pb::ListWorkersRequest {})?)
    }

    async fn over(&self) -> Result<Over> {
        convert::over_of(list!(self, "ListOver", list_over, pb::ListOverRequest {})?).map_err(unreadable)
    }

    async fn open_session(&self, session: NewSession) -> Result<OpenedSession> {
        let request = pb::OpenSessionRequest::from(session);
        call!(self, "OpenSession", open_session, request).map(OpenedSession::from)
    }

    async fn exchange(&self, exchange: Exchange) -> Result<ExchangeReply> {
        read(call!(self, "Exchange", exchange, pb::ExchangeRequest::from(exchange))?)
    }

    async fn fetch(&self, exchange: Exchange) -> Result<Option<ExchangeReply>> {
        let reply = call!(self, "Fetch", fetch, pb::ExchangeRequest::from(exchange))?;
        reply.reply.map(read).transpose()
    }

    async fn close_session(&self, session: SessionId) -> Result<()> {
        self.wakes.forget(session);
        let request = pb::CloseSessionRequest { session: session.to_string() };
        call!(self, "CloseSession", close_session, request).map(drop)
    }

    async fn sweep(&self) -> Result<Swept> {
        call!(self, "Sweep", sweep, pb::SweepRequest {}).map(Swept::from)
    }

    async fn work(&self, session: SessionId, claim: Claim) -> Result<Work> {
        let seen = self.wakes.work_seen();
        let request = pb::WorkRequest { session: session.to_string(), claim: Some(claim.into()) };
        let reply = call!(self, "Work", work, request)?;
        self.tells_changes.store(reply.tells_changes, Ordering::Release);
        let work = reply.seen(seen);
        if !work.now {
            self.wakes.listen(Some(session));
        }
        Ok(work)
    }

    async fn changed(&self, seen: Option<u64>) -> Result<u64> {
        match seen {
            None => Ok(self.wakes.any_seen()),
            Some(seen) => Ok(self.wakes.past(seen).await),
        }
    }

    fn is_served(&self) -> bool {
        true
    }

    fn tells_changes(&self) -> bool {
        self.tells_changes.load(Ordering::Acquire) && self.wakes.hears()
    }

    fn renewals_cost(&self) -> bool {
        self.handshake.renewals_cost
    }

    fn coarseness(&self) -> Duration {
        Duration::from_millis(self.handshake.coarseness_ms)
    }

    fn told_of_jobs(&self, seen: u64) -> bool {
        self.wakes.told_of_jobs(seen)
    }

    async fn keep_log(&self, token: FenceToken, log: String) -> Result<()> {
        // What would be cut there need not travel.
        let cut = log.ceil_char_boundary(log.len().saturating_sub(caps::LOG_BYTES));
        let request = pb::KeepLogRequest { token: token.0, log: log[cut..].to_owned() };
        call!(self, "KeepLog", keep_log, request).map(drop)
    }

    async fn log(&self, token: FenceToken) -> Result<Option<String>> {
        Ok(call!(self, "GetLog", get_log, pb::LogRequest { token: token.0 })?.log)
    }
}
