//! Each call of the protocol as a call of the store.

use crate::caller::Caller;
use crate::metrics::Counts;
use crate::wake::Wakes;
use qo_core::{
    Claim, Cursor, Error, Exchange, ExchangeReply, FenceToken, JobFilter, JobId, NewJob, NewSession,
};
use qo_core::{Result, SlotRequest, Steer, Store, Submitted, TaskOptions};
use qo_wire::pb::queue_server::Queue;
use qo_wire::served::{change, group, group_parts, job_id, lease_id, name, over_items, session_id, token_id};
use qo_wire::{LEVEL, LEVEL_MIN, limits, pb, status};
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, iter};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

/// Wake-ups that wait for a slow client. More of them say nothing new.
const WAKE_UPS: usize = 1;

/// The service. Each call uses the store of its caller.
#[derive(Clone)]
pub(crate) struct Service {
    wakes: Arc<Wakes>,
    counts: Counts,
    ending: watch::Receiver<bool>,
}

type Answer<T> = std::result::Result<Response<T>, Status>;
type Items<T> = Pin<Box<dyn Stream<Item = std::result::Result<T, Status>> + Send>>;

/// A list as a stream.
fn stream<T: Send + 'static>(items: impl Iterator<Item = T> + Send + 'static) -> Items<T> {
    Box::pin(iter(items.map(Ok)))
}

fn most(headers: &MetadataMap) -> usize {
    let asked = headers.get(limits::ERROR_BYTES_HEADER).and_then(|bytes| bytes.to_str().ok()?.parse().ok());
    asked.unwrap_or(limits::ERROR_BYTES).clamp(limits::ERROR_BYTES, limits::ERROR_BYTES_MOST)
}

/// A page's length. Every `usize` of this platform holds a `u32`.
fn page(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Whether a worker holds jobs by this reply. Starts and prefetched jobs count, too.
fn got_jobs(reply: &ExchangeReply) -> bool {
    !(reply.claimed.is_empty() && reply.prefetched.is_empty() && reply.started.is_empty())
}

impl Service {
    pub fn new(wakes: Arc<Wakes>, counts: Counts, ending: watch::Receiver<bool>) -> Self {
        Self { wakes, counts, ending }
    }

    /// Answers a call from its caller's store, unless the server is about to end.
    async fn answer<Q, R, F>(
        &self,
        request: Request<Q>,
        call: impl FnOnce(Arc<dyn Store>, Q) -> F,
    ) -> Answer<R>
    where
        F: Future<Output = Result<R>>,
    {
        if *self.ending.borrow() {
            return Err(status::ending());
        }
        let most = most(request.metadata());
        let caller = request.extensions().get::<Caller>().cloned();
        let Caller { store, .. } = caller.ok_or_else(|| Status::internal("the caller is not known"))?;
        call(store, request.into_inner())
            .await
            .map(Response::new)
            .map_err(|error| status::status(&error, most))
    }

    async fn exchanged(&self, store: Arc<dyn Store>, exchange: Exchange) -> Result<ExchangeReply> {
        let (session, free_permits) = (exchange.session, exchange.free_permits);
        self.wakes.is_busy(session);
        let reply = store.exchange(exchange).await?;
        self.wakes.exchanged(session, free_permits, got_jobs(&reply));
        self.counts.exchanged(session, &reply);
        Ok(reply)
    }

    /// Wakes a stream whenever a counter grows.
    fn watch(
        &self,
        mut counter: watch::Receiver<u64>,
        session: Option<qo_core::SessionId>,
    ) -> Items<pb::WakeUp> {
        let (sender, receiver) = mpsc::channel(WAKE_UPS);
        let (wakes, mut ending) = (Arc::clone(&self.wakes), self.ending.clone());
        let (counts, open) = (self.counts.clone(), self.counts.stream());
        tokio::spawn(async move {
            let _open = open;
            let woken = async {
                while counter.changed().await.is_ok() {
                    if sender.send(Ok(pb::WakeUp { jobs: session.is_some() })).await.is_err() {
                        return;
                    }
                    counts.woke();
                    if session.is_none() {
                        sleep(Wakes::gap()).await;
                    }
                }
            };
            tokio::select! {
                () = woken => {}
                () = sender.closed() => {}
                _ = ending.wait_for(|ending| *ending) => {}
            }
            drop(counter);
            if let Some(session) = session {
                wakes.left(session);
            }
        });
        Box::pin(ReceiverStream::new(receiver))
    }
}

#[tonic::async_trait]
impl Queue for Service {
    type WatchStream = Items<pb::WakeUp>;
    type GetGroupStream = Items<pb::GroupPart>;
    type ListQueuesStream = Items<pb::QueueStatus>;
    type ListWorkersStream = Items<pb::WorkerStatus>;
    type ListOverStream = Items<pb::OverItem>;
    type ListConfigurationsStream = Items<pb::Configuration>;
    type ListSchedulesStream = Items<pb::ScheduleStatus>;
    type ListTokensStream = Items<pb::Token>;
    type ListAuditStream = Items<pb::AuditEntry>;

    async fn handshake(&self, request: Request<pb::HandshakeRequest>) -> Answer<pb::HandshakeReply> {
        self.answer(request, |store, hello| async move {
            tracing::debug!(level = hello.level, version = %hello.version, "a client");
            Ok(pb::HandshakeReply {
                version: env!("CARGO_PKG_VERSION").into(),
                level_min: LEVEL_MIN,
                level_max: LEVEL,
                tells_changes: store.tells_changes(),
                renewals_cost: store.renewals_cost(),
                coarseness_ms: qo_core::millis(store.coarseness()),
            })
        })
        .await
    }

    async fn now(&self, request: Request<pb::NowRequest>) -> Answer<pb::NowReply> {
        let now = |store: Arc<dyn Store>, _| async move {
            Ok(pb::NowReply { now_ms: store.now().await?.as_millis() })
        };
        self.answer(request, now).await
    }

    async fn submit(&self, request: Request<pb::SubmitRequest>) -> Answer<pb::SubmitReply> {
        self.answer(request, |store, request| async move {
            let jobs = Vec::<NewJob>::try_from(request)?;
            Ok(store.submit(jobs).await?.into())
        })
        .await
    }

    async fn cancel(&self, request: Request<pb::JobIds>) -> Answer<pb::StateOutcomes> {
        self.answer(request, |store, request| async move {
            Ok(store.cancel(Vec::<JobId>::try_from(request)?).await?.into())
        })
        .await
    }

    async fn retry(&self, request: Request<pb::JobIds>) -> Answer<pb::StateOutcomes> {
        self.answer(request, |store, request| async move {
            Ok(store.retry(Vec::<JobId>::try_from(request)?).await?.into())
        })
        .await
    }

    async fn change_matching(
        &self,
        request: Request<pb::ChangeMatchingRequest>,
    ) -> Answer<pb::ChangeMatchingReply> {
        self.answer(request, |store, request| async move {
            let filter = JobFilter::try_from(request.filter.unwrap_or_default())?;
            let (change, after) = (change(request.change)?, request.after.map(Cursor));
            Ok(store.change_matching(change, filter, after, page(request.limit)).await?.into())
        })
        .await
    }

    async fn get_job(&self, request: Request<pb::JobRequest>) -> Answer<pb::JobDetail> {
        self.answer(request, |store, request| async move {
            Ok(store.job(job_id("job", &request.job)?).await?.into())
        })
        .await
    }

    async fn list_jobs(&self, request: Request<pb::ListJobsRequest>) -> Answer<pb::JobPage> {
        self.answer(request, |store, request| async move {
            let filter = JobFilter::try_from(request.filter.unwrap_or_default())?;
            Ok(store.jobs(filter, request.after.map(Cursor), page(request.limit)).await?.into())
        })
        .await
    }

    async fn explain(&self, request: Request<pb::JobRequest>) -> Answer<pb::Explanation> {
        self.answer(request, |store, request| async move {
            Ok(store.explain(job_id("job", &request.job)?).await?.into())
        })
        .await
    }

    async fn open_session(&self, request: Request<pb::OpenSessionRequest>) -> Answer<pb::OpenSessionReply> {
        self.answer(request, |store, request| async move {
            let session = NewSession::try_from(request)?;
            let opened = store.open_session(session.clone()).await?;
            self.wakes.opened(&session);
            Ok(opened.into())
        })
        .await
    }

    async fn exchange(&self, request: Request<pb::ExchangeRequest>) -> Answer<pb::ExchangeReply> {
        self.answer(request, |store, request| async move {
            Ok(self.exchanged(store, Exchange::try_from(request)?).await?.into())
        })
        .await
    }

    async fn fetch(&self, request: Request<pb::ExchangeRequest>) -> Answer<pb::FetchReply> {
        self.answer(request, |store, request| async move {
            let exchange = Exchange::try_from(request)?;
            let (session, free_permits) = (exchange.session, exchange.free_permits);
            self.wakes.is_busy(session);
            let reply = store.fetch(exchange).await?;
            if let Some(reply) = &reply {
                self.wakes.exchanged(session, free_permits, got_jobs(reply));
                self.counts.exchanged(session, reply);
            }
            Ok(pb::FetchReply { reply: reply.map(pb::ExchangeReply::from) })
        })
        .await
    }

    async fn work(&self, request: Request<pb::WorkRequest>) -> Answer<pb::WorkReply> {
        self.answer(request, |store, request| async move {
            let session = session_id("session", &request.session)?;
            let claim = request.claim.map(Claim::from).unwrap_or_default();
            let seen = self.wakes.newest();
            let work = store.work(session, claim).await?;
            match work.now {
                true => self.wakes.is_busy(session),
                false => self.wakes.waits(session, claim, seen),
            }
            Ok(pb::WorkReply::of(work, store.tells_changes()))
        })
        .await
    }

    async fn heartbeat(&self, request: Request<pb::HeartbeatRequest>) -> Answer<pb::HeartbeatReply> {
        self.answer(request, |store, request| async move {
            let session = session_id("session", &request.session)?;
            let asked = request.task_id.map(|job| job_id("task_id", &job)).transpose()?;
            let percent = request.memory_usage.map(memory_percent).transpose()?;
            let renewal = Exchange { memory_percent: percent, ..Exchange::renew(session, request.number) };
            let reply = self
                .exchanged(store, Exchange { free_permits: request.available_capacity, ..renewal })
                .await?;
            Ok(pb::HeartbeatReply {
                must_stop: reply.stop.iter().any(|stop| Some(stop.job) == asked),
                stop: reply.stop.into_iter().map(pb::Stop::from).collect(),
                now_ms: reply.now.as_millis(),
                lease_until_ms: reply.lease_until.as_millis(),
            })
        })
        .await
    }

    async fn close_session(&self, request: Request<pb::CloseSessionRequest>) -> Answer<pb::Done> {
        self.answer(request, |store, request| async move {
            let session = session_id("session", &request.session)?;
            self.wakes.closed(session);
            self.counts.closed(session);
            store.close_session(session).await.map(|()| pb::Done {})
        })
        .await
    }

    async fn watch(&self, request: Request<pb::WatchRequest>) -> Answer<Self::WatchStream> {
        self.answer(request, |_, request| async move {
            Ok(match request.session {
                Some(session) => {
                    let session = session_id("session", &session)?;
                    Service::watch(self, self.wakes.of_session(session), Some(session))
                }
                None => Service::watch(self, self.wakes.of_all(), None),
            })
        })
        .await
    }

    async fn sweep(&self, request: Request<pb::SweepRequest>) -> Answer<pb::SweepReply> {
        self.answer(request, |store, _| async move { Ok(store.sweep().await?.into()) }).await
    }

    async fn keep_log(&self, request: Request<pb::KeepLogRequest>) -> Answer<pb::Done> {
        self.answer(request, |store, request| async move {
            store.keep_log(FenceToken(request.token), request.log).await.map(|()| pb::Done {})
        })
        .await
    }

    async fn get_log(&self, request: Request<pb::LogRequest>) -> Answer<pb::LogReply> {
        self.answer(request, |store, request| async move {
            Ok(pb::LogReply { log: store.log(FenceToken(request.token)).await? })
        })
        .await
    }

    async fn set_limit(&self, request: Request<pb::SetLimitRequest>) -> Answer<pb::Done> {
        self.answer(request, |store, request| async move {
            let group = group("group", &request.group)?;
            store.set_limit(group, request.limit).await.map(|()| pb::Done {})
        })
        .await
    }

    async fn unset_limit(&self, request: Request<pb::GroupRequest>) -> Answer<pb::Done> {
        self.answer(request, |store, request| async move {
            store.unset_limit(group("group", &request.group)?).await.map(|()| pb::Done {})
        })
        .await
    }

    async fn pause_queue(&self, request: Request<pb::PauseQueueRequest>) -> Answer<pb::Done> {
        self.answer(request, |store, request| async move {
            let queue = name("queue", &request.queue)?;
            store.pause_queue(queue, request.paused).await.map(|()| pb::Done {})
        })
        .await
    }

    async fn list_groups(&self, request: Request<pb::ListGroupsRequest>) -> Answer<pb::GroupPage> {
        self.answer(request, |store, request| async move {
            let after = request.after.map(|after| group("after", &after)).transpose()?;
            Ok(store.groups(after, page(request.limit)).await?.into())
        })
        .await
    }

    async fn get_group(&self, request: Request<pb::GroupRequest>) -> Answer<Self::GetGroupStream> {
        self.answer(request, |store, request| async move {
            let detail = store.group(group("group", &request.group)?).await?;
            Ok(stream(group_parts(detail)))
        })
        .await
    }

    async fn release_slot(&self, request: Request<pb::ReleaseSlotRequest>) -> Answer<pb::Done> {
        self.answer(request, |store, request| async move {
            let group = group("group", &request.group)?;
            store.release_slot(group, FenceToken(request.slot)).await.map(|()| pb::Done {})
        })
        .await
    }

    async fn list_queues(&self, request: Request<pb::ListQueuesRequest>) -> Answer<Self::ListQueuesStream> {
        self.answer(request, |store, _| async move {
            Ok(stream(store.queues().await?.into_iter().map(pb::QueueStatus::from)))
        })
        .await
    }

    async fn list_workers(
        &self,
        request: Request<pb::ListWorkersRequest>,
    ) -> Answer<Self::ListWorkersStream> {
        self.answer(request, |store, _| async move {
            Ok(stream(store.workers().await?.into_iter().map(pb::WorkerStatus::from)))
        })
        .await
    }

    async fn list_over(&self, request: Request<pb::ListOverRequest>) -> Answer<Self::ListOverStream> {
        self.answer(request, |store, _| async move { Ok(stream(over_items(store.over().await?))) }).await
    }

    async fn acquire_slots(
        &self,
        request: Request<pb::AcquireSlotsRequest>,
    ) -> Answer<pb::AcquireSlotsReply> {
        self.answer(request, |store, request| async move {
            let lease = store.acquire_slots(SlotRequest::try_from(request)?).await?;
            Ok(pb::AcquireSlotsReply { lease: lease.map(pb::SlotLease::from) })
        })
        .await
    }

    async fn extend_slots(&self, request: Request<pb::ExtendSlotsRequest>) -> Answer<pb::SlotLease> {
        self.answer(request, |store, request| async move {
            let lease = lease_id("lease", &request.lease)?;
            Ok(store.extend_slots(lease, FenceToken(request.token), request.lease_ms).await?.into())
        })
        .await
    }

    async fn return_slots(&self, request: Request<pb::ReturnSlotsRequest>) -> Answer<pb::Done> {
        self.answer(request, |store, request| async move {
            let lease = lease_id("lease", &request.lease)?;
            store.return_slots(lease, FenceToken(request.token)).await.map(|()| pb::Done {})
        })
        .await
    }

    async fn register(&self, request: Request<pb::RegisterRequest>) -> Answer<pb::Pushed> {
        self.answer(request, |store, request| async move {
            Ok(store.register(Vec::<TaskOptions>::try_from(request)?).await?.into())
        })
        .await
    }

    async fn configure(&self, request: Request<pb::Configuration>) -> Answer<pb::Pushed> {
        self.answer(request, |store, request| async move {
            Ok(store.configure(request.try_into()?).await?.into())
        })
        .await
    }

    async fn list_configurations(
        &self,
        request: Request<pb::ListConfigurationsRequest>,
    ) -> Answer<Self::ListConfigurationsStream> {
        self.answer(request, |store, _| async move {
            Ok(stream(store.configurations().await?.into_iter().map(pb::Configuration::from)))
        })
        .await
    }

    async fn list_pushes(&self, request: Request<pb::ListPushesRequest>) -> Answer<pb::Pushes> {
        self.answer(request, |store, _| async move {
            let pushes = store.pushes().await?.into_iter().map(pb::Push::from).collect();
            Ok(pb::Pushes { pushes })
        })
        .await
    }

    async fn get_workflow(&self, request: Request<pb::WorkflowRequest>) -> Answer<pb::WorkflowStatus> {
        self.answer(request, |store, request| async move {
            Ok(store.workflow(name("workflow", &request.workflow)?).await?.into())
        })
        .await
    }

    async fn list_workflows(&self, request: Request<pb::ListWorkflowsRequest>) -> Answer<pb::WorkflowPage> {
        self.answer(request, |store, request| async move {
            let after = request.after.map(|after| name("after", &after)).transpose()?;
            Ok(store.workflows(after, page(request.limit)).await?.into())
        })
        .await
    }

    async fn steer_workflow(&self, request: Request<pb::SteerWorkflowRequest>) -> Answer<pb::Done> {
        self.answer(request, |store, request| async move {
            let workflow = name("workflow", &request.workflow)?;
            store.steer_workflow(workflow, Steer::try_from(&request)?).await.map(|()| pb::Done {})
        })
        .await
    }

    async fn list_schedules(
        &self,
        request: Request<pb::ListSchedulesRequest>,
    ) -> Answer<Self::ListSchedulesStream> {
        self.answer(request, |store, _| async move {
            Ok(stream(store.schedules().await?.into_iter().map(pb::ScheduleStatus::from)))
        })
        .await
    }

    async fn enable_schedule(&self, request: Request<pb::EnableScheduleRequest>) -> Answer<pb::Done> {
        self.answer(request, |store, request| async move {
            let schedule = name("schedule", &request.schedule)?;
            store.enable_schedule(schedule, request.enabled).await.map(|()| pb::Done {})
        })
        .await
    }

    async fn create_token(&self, request: Request<pb::CreateTokenRequest>) -> Answer<pb::Done> {
        self.answer(request, |store, request| async move {
            let (token, by) = request.try_into()?;
            store.create_token(token, by).await.map(|()| pb::Done {})
        })
        .await
    }

    async fn revoke_token(&self, request: Request<pb::RevokeTokenRequest>) -> Answer<pb::Done> {
        self.answer(request, |store, request| async move {
            let token = token_id("token", &request.token)?;
            store.revoke_token(token, request.by.into()).await.map(|()| pb::Done {})
        })
        .await
    }

    async fn list_tokens(&self, request: Request<pb::ListTokensRequest>) -> Answer<Self::ListTokensStream> {
        self.answer(request, |store, _| async move {
            Ok(stream(store.tokens().await?.into_iter().map(pb::Token::from)))
        })
        .await
    }

    async fn record(&self, request: Request<pb::Deed>) -> Answer<pb::Done> {
        self.answer(
            request,
            |store, deed| async move { store.record(deed.into()).await.map(|()| pb::Done {}) },
        )
        .await
    }

    async fn list_audit(&self, request: Request<pb::ListAuditRequest>) -> Answer<Self::ListAuditStream> {
        self.answer(request, |store, request| async move {
            let entries = store.audit(request.before, page(request.limit)).await?;
            Ok(stream(entries.into_iter().map(pb::AuditEntry::from)))
        })
        .await
    }

    async fn trigger_schedule(
        &self,
        request: Request<pb::TriggerScheduleRequest>,
    ) -> Answer<pb::SubmitOutcome> {
        self.answer(request, |store, request| async move {
            let (schedule, job) = (name("schedule", &request.schedule)?, job_id("job", &request.job)?);
            let submitted: Submitted = store.trigger_schedule(schedule, job).await?;
            Ok(Ok(submitted).into())
        })
        .await
    }
}

/// A share as a percentage.
fn memory_percent(share: f32) -> Result<u8> {
    if (0.0..=1.0).contains(&share) {
        Ok((share * 100.0).round() as u8)
    } else {
        Err(Error::invalid("memory_usage", share, "must be a share from 0 to 1"))
    }
}
