//! Each method of the trait: what it needs, then the call.

use super::Guarded;
use super::hide;
use async_trait::async_trait;
use qo_core::Scope::{Admin, Read, Submit, Work as Works};
use qo_core::{AuditEntry, AuditText, Deed, NewToken, Store, Token, TokenId};
use qo_core::{Change, Changed, Claim, Configuration, Cursor, Error, ErrorKind, Exchange, ExchangeReply};
use qo_core::{
    Explanation, FenceToken, GroupDetail, GroupPage, GroupRef, JobDetail, JobFilter, JobId, JobPage,
};
use qo_core::{JobState, LeaseId, Name, NewJob, NewSession, OpenedSession, Over, Push, Pushed, QueueStatus};
use qo_core::{Result, ScheduleStatus, SessionId, SlotLease, SlotRequest, Start, Steer, Submitted, Swept};
use qo_core::{TaskOptions, Time, Work, WorkerStatus, WorkflowPage, WorkflowStatus};
use std::time::Duration;

#[async_trait]
impl Store for Guarded {
    async fn now(&self) -> Result<Time> {
        self.rights.known()?;
        self.told(self.store.now().await)
    }

    async fn submit(&self, jobs: Vec<NewJob>) -> Result<Vec<Result<Submitted>>> {
        self.rights.need(Submit)?;
        self.need_queues_of(&jobs)?;
        self.told_each(self.store.submit(jobs).await)
    }

    async fn cancel(&self, jobs: Vec<JobId>) -> Result<Vec<Result<JobState>>> {
        self.rights.need(Admin)?;
        self.changed(Change::Cancel, jobs).await
    }

    async fn retry(&self, jobs: Vec<JobId>) -> Result<Vec<Result<JobState>>> {
        self.rights.need(Admin)?;
        self.changed(Change::Retry, jobs).await
    }

    async fn change_matching(
        &self,
        change: Change,
        filter: JobFilter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Changed> {
        self.rights.need(Admin)?;
        self.changed_matching(change, filter, after, limit).await
    }

    async fn job(&self, job: JobId) -> Result<JobDetail> {
        self.rights.need_one_of(&[Read, Submit])?;
        self.seen(job).await
    }

    async fn jobs(&self, filter: JobFilter, after: Option<Cursor>, limit: usize) -> Result<JobPage> {
        self.rights.need(Read)?;
        self.listed(filter, after, limit).await
    }

    async fn explain(&self, job: JobId) -> Result<Explanation> {
        self.rights.need_one_of(&[Read, Submit])?;
        if self.rights.queues().is_some() {
            self.seen(job).await?;
        }
        let mut told = self.told(self.store.explain(job).await)?;
        hide::explanation(&self.rights, &mut told);
        Ok(told)
    }

    async fn workflows(&self, after: Option<Name>, limit: usize) -> Result<WorkflowPage> {
        self.rights.need(Read)?;
        self.rights.need_every_queue("a list of workflows")?;
        self.told(self.store.workflows(after, limit).await)
    }

    async fn workflow(&self, workflow: Name) -> Result<WorkflowStatus> {
        self.rights.need(Read)?;
        self.rights.need_every_queue("a workflow")?;
        self.told(self.store.workflow(workflow).await)
    }

    async fn steer_workflow(&self, workflow: Name, steer: Steer) -> Result<()> {
        self.rights.need(Admin)?;
        self.rights.need_every_queue("a workflow")?;
        self.told(self.operator().steer_workflow(workflow, steer).await)
    }

    async fn register(&self, tasks: Vec<TaskOptions>) -> Result<Pushed> {
        self.rights.need(Works)?;
        tasks.iter().try_for_each(|task| self.rights.need_app(&task.app))?;
        self.told(self.store.register(tasks).await)
    }

    async fn configure(&self, configuration: Configuration) -> Result<Pushed> {
        self.rights.need(Works)?;
        self.need_own(&configuration)?;
        self.told(self.operator().configure(configuration).await)
    }

    async fn configurations(&self) -> Result<Vec<Configuration>> {
        self.rights.need(Read)?;
        self.rights.need_every_queue("a list of configurations")?;
        self.told(self.store.configurations().await)
    }

    async fn pushes(&self) -> Result<Vec<Push>> {
        self.rights.need(Read)?;
        self.rights.need_every_queue("a list of pushes")?;
        self.told(self.store.pushes().await)
    }

    async fn set_limit(&self, group: GroupRef, limit: u32) -> Result<()> {
        self.rights.need(Admin)?;
        self.need_group(&group)?;
        self.told(self.operator().set_limit(group, limit).await)
    }

    async fn unset_limit(&self, group: GroupRef) -> Result<()> {
        self.rights.need(Admin)?;
        self.need_group(&group)?;
        self.told(self.operator().unset_limit(group).await)
    }

    async fn pause_queue(&self, queue: Name, paused: bool) -> Result<()> {
        self.rights.need(Admin)?;
        self.rights.need_queue("queue", &queue)?;
        self.told(self.operator().pause_queue(queue, paused).await)
    }

    async fn groups(&self, after: Option<GroupRef>, limit: usize) -> Result<GroupPage> {
        self.rights.need(Read)?;
        self.rights.need_every_queue("a list of groups")?;
        self.told(self.store.groups(after, limit).await)
    }

    async fn group(&self, group: GroupRef) -> Result<GroupDetail> {
        self.rights.need(Read)?;
        self.need_group(&group)?;
        let mut detail = self.told(self.store.group(group).await)?;
        hide::holders(&self.rights, &mut detail.holders);
        Ok(detail)
    }

    async fn release_slot(&self, group: GroupRef, slot: FenceToken) -> Result<()> {
        self.rights.need(Admin)?;
        self.need_group(&group)?;
        self.told(self.operator().release_slot(group, slot).await)
    }

    async fn acquire_slots(&self, request: SlotRequest) -> Result<Option<SlotLease>> {
        self.rights.need(Works)?;
        self.need_slots(&request.group)?;
        self.told(self.store.acquire_slots(request).await)
    }

    async fn extend_slots(&self, lease: LeaseId, token: FenceToken, lease_ms: u64) -> Result<SlotLease> {
        self.rights.need(Works)?;
        self.told(self.store.extend_slots(lease, token, lease_ms).await)
    }

    async fn return_slots(&self, lease: LeaseId, token: FenceToken) -> Result<()> {
        self.rights.need(Works)?;
        self.told(self.store.return_slots(lease, token).await)
    }

    async fn schedules(&self) -> Result<Vec<ScheduleStatus>> {
        self.rights.need(Read)?;
        let mut all = self.told(self.store.schedules().await)?;
        all.retain(|status| self.rights.sees(&status.spec.queue));
        Ok(all)
    }

    async fn enable_schedule(&self, schedule: Name, enabled: bool) -> Result<()> {
        self.rights.need(Admin)?;
        self.rights.need_every_queue("a schedule")?;
        self.told(self.operator().enable_schedule(schedule, enabled).await)
    }

    async fn trigger_schedule(&self, schedule: Name, job: JobId) -> Result<Submitted> {
        self.rights.need(Admin)?;
        self.rights.need_every_queue("a schedule")?;
        self.told(self.operator().trigger_schedule(schedule, job).await)
    }

    async fn create_token(&self, token: NewToken, by: AuditText) -> Result<()> {
        self.need_all()?;
        let created = self.store.create_token(token, self.named(by)).await;
        self.read_tokens().await;
        self.told(created)
    }

    async fn revoke_token(&self, token: TokenId, by: AuditText) -> Result<()> {
        self.need_all()?;
        let revoked = self.store.revoke_token(token, self.named(by)).await;
        self.read_tokens().await;
        self.told(revoked)
    }

    async fn tokens(&self) -> Result<Vec<Token>> {
        self.need_all()?;
        let mut tokens = self.told(self.store.tokens().await)?;
        tokens.iter_mut().for_each(|token| token.hash = None);
        Ok(tokens)
    }

    async fn record(&self, deed: Deed) -> Result<()> {
        self.need_all()?;
        let by = self.named(deed.by);
        self.told(self.store.record(Deed { by, ..deed }).await)
    }

    async fn audit(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditEntry>> {
        self.need_all()?;
        self.told(self.store.audit(before, limit).await)
    }

    async fn queues(&self) -> Result<Vec<QueueStatus>> {
        self.rights.need(Read)?;
        let mut all = self.told(self.store.queues().await)?;
        all.retain(|status| self.rights.sees(&status.queue));
        Ok(all)
    }

    async fn workers(&self) -> Result<Vec<WorkerStatus>> {
        self.rights.need(Read)?;
        let mut all = self.told(self.store.workers().await)?;
        all.retain(|worker| hide::is_shown(&self.rights, worker));
        Ok(all)
    }

    async fn over(&self) -> Result<Over> {
        self.rights.need(Read)?;
        self.rights.need_every_queue("what is over")?;
        let mut over = self.told(self.store.over().await)?;
        for lease in &mut over.leases {
            hide::holders(&self.rights, std::slice::from_mut(&mut lease.holder));
        }
        Ok(over)
    }

    async fn open_session(&self, session: NewSession) -> Result<OpenedSession> {
        self.rights.need(Works)?;
        self.need_served(&session)?;
        let owner = self.rights.token().or(session.owner);
        let (id, session) = (session.id, NewSession { owner, ..session });
        let opened = self.told(self.store.open_session(session).await)?;
        self.owners.opened(id, owner);
        Ok(opened)
    }

    async fn exchange(&self, exchange: Exchange) -> Result<ExchangeReply> {
        self.rights.need(Works)?;
        self.need_session(exchange.session).await?;
        let (session, starts) = (exchange.session, exchange.starts.clone());
        let reply = self.told(self.store.exchange(exchange).await)?;
        self.granted(session, &starts, &reply);
        Ok(reply)
    }

    async fn fetch(&self, exchange: Exchange) -> Result<Option<ExchangeReply>> {
        self.rights.need(Works)?;
        self.need_session(exchange.session).await?;
        let session = exchange.session;
        let reply = self.told(self.store.fetch(exchange).await)?;
        if let Some(reply) = &reply {
            self.granted(session, &[], reply);
        }
        Ok(reply)
    }

    async fn close_session(&self, session: SessionId) -> Result<()> {
        self.rights.need(Works)?;
        if let Some(token) = self.rights.token()
            && self.told(self.owners.owns(token, session).await)?.is_none()
        {
            // It has ended, or never was.
            return Ok(());
        }
        self.need_session(session).await?;
        self.told(self.store.close_session(session).await)
    }

    async fn sweep(&self) -> Result<Swept> {
        self.rights.need(Works)?;
        self.told(self.store.sweep().await)
    }

    async fn work(&self, session: SessionId, claim: Claim) -> Result<Work> {
        self.rights.need(Works)?;
        self.need_session(session).await?;
        self.told(self.store.work(session, claim).await)
    }

    async fn changed(&self, seen: Option<u64>) -> Result<u64> {
        self.rights.known()?;
        self.told(self.store.changed(seen).await)
    }

    async fn identity(&self) -> Result<Option<String>> {
        self.rights.known()?;
        self.told(self.store.identity().await)
    }

    fn is_served(&self) -> bool {
        self.store.is_served()
    }

    fn tells_changes(&self) -> bool {
        self.store.tells_changes()
    }

    fn renewals_cost(&self) -> bool {
        self.store.renewals_cost()
    }

    fn coarseness(&self) -> Duration {
        self.store.coarseness()
    }

    fn told_of_jobs(&self, seen: u64) -> bool {
        self.store.told_of_jobs(seen)
    }

    async fn finish(&self) {
        self.store.finish().await;
    }

    async fn keep_log(&self, token: FenceToken, log: String) -> Result<()> {
        self.rights.need(Works)?;
        if self.rights.token().is_some() {
            let attempt = self.told(self.owners.running(token).await)?;
            let unknown = || Error::new(ErrorKind::Fenced, "no attempt of this caller has that token");
            let attempt = attempt.ok_or_else(unknown)?;
            self.need_session(attempt.session).await.map_err(|_| unknown())?;
        }
        self.told(self.store.keep_log(token, log).await)
    }

    async fn log(&self, token: FenceToken) -> Result<Option<String>> {
        self.rights.need(Read)?;
        if self.rights.queues().is_some() {
            let attempt = self.told(self.owners.running(token).await)?;
            if !attempt.is_some_and(|attempt| self.rights.sees(&attempt.queue)) {
                return Ok(None);
            }
        }
        self.told(self.store.log(token).await)
    }
}

impl Guarded {
    /// An error unless the caller may do everything, everywhere: tokens and the audit log are about all queues and apps.
    fn need_all(&self) -> Result<()> {
        self.rights.need(Admin)?;
        self.rights.need_every_queue("this")?;
        self.rights.need_every_app()
    }

    /// Remembers whose attempts were granted. Without tokens any caller may use them.
    fn granted(&self, session: SessionId, starts: &[Start], reply: &ExchangeReply) {
        if self.rights.token().is_some() {
            self.owners.granted(session, starts, reply);
        }
    }

    /// Who did something: the token's name. A local caller says it itself.
    fn named(&self, by: AuditText) -> AuditText {
        if self.rights.token().is_some() { self.rights.by() } else { by }
    }

    /// What this server has just changed counts here at once.
    async fn read_tokens(&self) {
        if let Err(error) = self.tokens.read().await {
            tracing::warn!("the tokens cannot be read: {error}");
        }
    }
}
