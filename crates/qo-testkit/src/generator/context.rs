//! What a script has seen so far: gives its symbols their meaning.

use super::meaning::{configuration, idempotency_key, new_token, opened_by, outcome, registration};
use super::pool;
use super::step::{BulkSpec, ExchangeStep, JobSpec, Number, Pick, ProgramPick, SessionSpec, SlotSpec, Step};
use super::step::{SettleSpec, Whose};
use qo_core::{Answer, Claim, Command, Cursor, ErrorKind, Exchange, FenceToken, GroupRef, JobId, Json};
use qo_core::{Deed, Time};
use qo_core::{
    LeaseId, NewJob, NewSession, Outcome, Prefetch, Progress, Result, SessionId, Settle, SlotRequest, Start,
};
use uuid::Uuid;

/// Jobs, sessions, tokens and programs of the past.
#[derive(Default)]
pub(super) struct Context {
    jobs: Vec<NewJob>,
    /// Every job that is known: submitted by the script, or of a schedule and claimed.
    pub known_jobs: Vec<JobId>,
    sessions: Vec<Known>,
    tokens: Vec<Grant>,
    requests: Vec<SlotRequest>,
    programs: Vec<(LeaseId, FenceToken, GroupRef)>,
    cursor: Option<Cursor>,
    ids: u128,
}

/// A job and a token that owned or claimed it.
type Grant = (JobId, FenceToken);

struct Known {
    new: NewSession,
    number: u64,
    /// What it runs.
    held: Vec<Grant>,
    /// What it has claimed ahead of time.
    claimed: Vec<Grant>,
    ended: bool,
}

fn pick<T>(list: &[T], k: Pick) -> Option<&T> {
    list.get(usize::from(k) % list.len().max(1))
}

impl Context {
    /// The command that a step means now; `None` if the step is time that passes.
    pub fn command(&mut self, step: &Step, now: Time) -> Option<Command> {
        Some(match step {
            Step::Advance(_) => return None,
            Step::Submit(jobs) => Command::Submit(jobs.iter().map(|job| self.job(job, now)).collect()),
            Step::SubmitAgain(k) => Command::Submit(pick(&self.jobs, *k).cloned().into_iter().collect()),
            Step::Cancel(jobs) => Command::Cancel(jobs.iter().map(|&k| self.old_job(k)).collect()),
            Step::Retry(jobs) => Command::Retry(jobs.iter().map(|&k| self.old_step(k)).collect()),
            Step::ChangeMatching(bulk) => self.bulk(bulk),
            Step::Register(tasks) => Command::Register(tasks.iter().map(registration).collect()),
            Step::Configure(spec) => Command::Configure(configuration(spec)),
            Step::SetLimit(group, limit) => Command::SetLimit(pool::limited(*group), *limit),
            Step::UnsetLimit(group) => Command::UnsetLimit(pool::limited(*group)),
            Step::Pause(queue, paused) => Command::PauseQueue(pool::queue(*queue), *paused),
            Step::Open(session) => Command::OpenSession(self.new_session(session)),
            Step::OpenAgain(k, owner) => match pick(&self.sessions, *k) {
                Some(known) => Command::OpenSession(opened_by(known.new.clone(), *owner)),
                None => Command::Sweep,
            },
            Step::Exchange(exchange) => Command::Exchange(self.exchange(exchange)),
            Step::Close(k) => Command::CloseSession(self.session(*k)),
            Step::ReleaseSlot(group, k) => Command::ReleaseSlot(pool::limited(*group), self.token(*k).1),
            Step::ReleaseOwnSlot(k) => self.release_own(*k),
            Step::Sweep => Command::Sweep,
            Step::Steer(workflow, steer) => Command::SteerWorkflow(pool::workflow(*workflow), *steer),
            Step::Acquire(spec) => Command::AcquireSlots(self.request(spec)),
            Step::Extend(whose, lease_ms) => {
                let (lease, token) = self.program(*whose);
                Command::ExtendSlots { lease, token, lease_ms: *lease_ms }
            }
            Step::Return(whose) => {
                let (lease, token) = self.program(*whose);
                Command::ReturnSlots(lease, token)
            }
            Step::Enable(schedule, enabled) => Command::EnableSchedule(pool::schedule(*schedule), *enabled),
            Step::Trigger(schedule, old) => {
                let fresh = JobId(self.new_id());
                let id = old.map_or(fresh, |k| self.old_job(k));
                self.hear_of(id);
                Command::TriggerSchedule(pool::schedule(*schedule), id)
            }
            Step::CreateToken(spec) => Command::CreateToken(new_token(spec, now), pool::operator(spec.name)),
            Step::RevokeToken(token) => Command::RevokeToken(pool::token(*token), pool::operator(*token)),
            Step::Record(k) => Command::Record(Deed::new(pool::operator(*k), "set limit", "api")),
        })
    }

    /// Ids do not sort in the order in which they are made: no rule may depend on that.
    fn new_id(&mut self) -> Uuid {
        self.ids += 1;
        Uuid::from_u128((self.ids ^ 5) + 16)
    }

    fn hear_of(&mut self, job: JobId) {
        if !self.known_jobs.contains(&job) {
            self.known_jobs.push(job);
        }
    }

    fn job(&mut self, spec: &JobSpec, now: Time) -> NewJob {
        let from_now = |ms: i64| Time::from_millis(now.as_millis() + ms);
        let fresh = JobId(self.new_id());
        let id = spec.old_id.and_then(|k| pick(&self.jobs, k)).map_or(fresh, |job| job.id);
        let job = NewJob {
            payload: Json::parse("payload", &spec.payload.to_string()).expect("a number is JSON"),
            queue: pool::queue(spec.queue),
            priority: spec.priority,
            run_at: spec.run_at.map(from_now),
            good_until: spec.good_until.map(from_now),
            max_attempts: spec.max_attempts,
            timeout_ms: spec.timeout_ms,
            group: spec.group.map(pool::group),
            key: spec.key.map(pool::key),
            cost: spec.cost,
            limits: spec.extras.iter().map(|&(k, slots)| (pool::extra(k), slots)).collect(),
            limit: spec.limit,
            clear_limit: spec.clear_limit && spec.limit.is_none(),
            idempotency_key: spec.idempotency.map(|k| idempotency_key(k, now)),
            on_limit: spec.on_limit,
            workflow: spec.workflow.map(pool::workflow),
            on_failure: spec.on_failure.filter(|_| spec.workflow.is_some()),
            traceparent: spec.trace.map(pool::trace),
            ..NewJob::new(id, pool::task(spec.task))
        };
        self.jobs.push(job.clone());
        self.hear_of(id);
        job
    }

    fn old_job(&self, k: Pick) -> JobId {
        pick(&self.known_jobs, k).copied().unwrap_or(JobId(Uuid::max()))
    }

    /// Half of the time a step, and rather an early one: reopened steps are where the order may break.
    fn old_step(&self, k: Pick) -> JobId {
        let steps: Vec<JobId> =
            self.jobs.iter().filter(|job| job.workflow.is_some()).map(|job| job.id).take(8).collect();
        let step = pick(&steps, k / 2).filter(|_| k.is_multiple_of(2));
        step.copied().unwrap_or_else(|| self.old_job(k))
    }

    fn bulk(&self, spec: &BulkSpec) -> Command {
        let after = self.cursor.filter(|_| spec.go_on);
        let filter = pool::filter(spec.filter);
        Command::ChangeMatching { change: spec.change, filter, after, limit: spec.limit }
    }

    fn release_own(&self, k: Pick) -> Command {
        match pick(&self.programs, k).filter(|_| k.is_multiple_of(3)) {
            Some((_, token, group)) => Command::ReleaseSlot(group.clone(), *token),
            None => {
                let (job, token) = self.token(k);
                Command::ReleaseSlot(self.group_of(job), token)
            }
        }
    }

    /// A group that a job was certainly submitted to: its key's, else its queue's.
    fn group_of(&self, job: JobId) -> GroupRef {
        let job = self.jobs.iter().find(|j| j.id == job);
        job.map_or(GroupRef::Cluster, |job| match (&job.group, &job.key) {
            (Some(group), Some(key)) => GroupRef::Key(group.clone(), key.clone()),
            (Some(group), None) => GroupRef::Group(group.clone()),
            (None, _) => GroupRef::Queue(job.queue.clone()),
        })
    }

    fn new_session(&mut self, spec: &SessionSpec) -> NewSession {
        let new = NewSession {
            id: SessionId(self.new_id()),
            worker: pool::worker(spec.worker),
            queues: spec.queues.iter().map(|&k| pool::queue(k)).collect(),
            tasks: spec.tasks.iter().map(|&k| pool::task(k)).collect(),
            lease_ms: spec.lease_ms,
            permits: spec.permits,
            owner: spec.owner.map(pool::token),
        };
        let (held, claimed) = (Vec::new(), Vec::new());
        self.sessions.push(Known { new: new.clone(), number: 0, held, claimed, ended: false });
        new
    }

    /// Mostly a session that is not known to have ended.
    fn known(&self, k: Pick) -> Option<&Known> {
        let live: Vec<&Known> = self.sessions.iter().filter(|known| !known.ended).collect();
        if k < 240 && !live.is_empty() { pick(&live, k).copied() } else { pick(&self.sessions, k) }
    }

    fn session(&self, k: Pick) -> SessionId {
        self.known(k).map_or(SessionId(Uuid::max()), |known| known.new.id)
    }

    fn token(&self, k: Pick) -> Grant {
        pick(&self.tokens, k).copied().unwrap_or((JobId(Uuid::max()), FenceToken(0)))
    }

    fn grant(&self, known: Option<&Known>, whose: Whose) -> Option<Grant> {
        match whose {
            Whose::Held(k) => pick(&known?.held, k).copied(),
            Whose::Nth(k) => known?.held.get(usize::from(k)).copied(),
            Whose::Claimed(k) => pick(&known?.claimed, k).copied(),
            Whose::Any(k) => Some(self.token(k)),
            Whose::Mixed(job, token) => Some((self.token(job).0, self.token(token).1)),
        }
    }

    fn exchange(&self, spec: &ExchangeStep) -> Exchange {
        let known = self.known(spec.session);
        let last = known.map_or(0, |known| known.number);
        let number = match spec.number {
            Number::Next => last + 1,
            Number::Last => last.max(1),
            Number::Old => last.saturating_sub(1).max(1),
            Number::Ahead => last + 3,
        };
        let settle = |settle: &SettleSpec| {
            let (job, token) = self.grant(known, settle.whose)?;
            Some(Settle { job, token, outcome: outcome(settle.outcome) })
        };
        let start = |&whose: &Whose| self.grant(known, whose).map(|(job, token)| Start { job, token });
        let report = |&(whose, said): &(Whose, Pick)| {
            let (job, token) = self.grant(known, whose)?;
            Some(Progress { job, token, percent: said % 4, note: pool::note(said) })
        };
        let prefetch = spec.prefetch.map(|(buffer, lease_ms)| Prefetch { buffer, lease_ms });
        Exchange {
            session: self.session(spec.session),
            number,
            settles: spec.settles.iter().filter_map(settle).collect(),
            starts: spec.starts.iter().filter_map(start).collect(),
            progress: spec.reports.iter().filter_map(report).collect(),
            claim: Claim { max: spec.max, max_claim_batch: spec.max_claim_batch, prefetch },
            free_permits: spec.free_permits,
            draining: spec.draining,
            memory_percent: u8::try_from(spec.free_permits % 12 * 10).ok().filter(|percent| *percent <= 100),
            idle_ms: spec.idle_ms,
        }
    }

    /// A new request; or an old one, complete or only its id.
    fn request(&mut self, spec: &SlotSpec) -> SlotRequest {
        let fresh = LeaseId(self.new_id());
        let old = spec.old_id.and_then(|k| Some((k, pick(&self.requests, k)?.clone())));
        let new = |id| SlotRequest {
            slots: spec.slots,
            limit: spec.limit,
            ..SlotRequest::new(id, pool::program(spec.group), pool::worker(spec.group), spec.lease_ms)
        };
        let request = match old {
            Some((k, old)) if k % 2 == 0 => SlotRequest { lease_ms: spec.lease_ms, ..old },
            Some((_, old)) => new(old.id),
            None => new(fresh),
        };
        self.requests.push(request.clone());
        request
    }

    fn program(&self, whose: ProgramPick) -> (LeaseId, FenceToken) {
        let program = |k| {
            let program = pick(&self.programs, k).map(|&(lease, token, _)| (lease, token));
            program.unwrap_or((LeaseId(Uuid::max()), FenceToken(0)))
        };
        match whose {
            ProgramPick::Granted(k) => program(k),
            ProgramPick::Mixed(lease, token) => (program(lease).0, program(token).1),
        }
    }

    /// Learns from an answer.
    pub fn learn(&mut self, command: &Command, answer: &Result<Answer>) {
        match (command, answer) {
            (Command::Exchange(exchange), answer) => self.learn_exchange(exchange, answer),
            (Command::AcquireSlots(request), Ok(Answer::Acquired(Some(lease)))) => {
                let program = (request.id, lease.token, request.group.clone());
                if !self.programs.contains(&program) {
                    self.programs.push(program);
                }
            }
            (_, Ok(Answer::Changed(changed))) => self.cursor = changed.next,
            _ => {}
        }
    }

    fn learn_exchange(&mut self, exchange: &Exchange, answer: &Result<Answer>) {
        let Some(known) = self.sessions.iter_mut().find(|known| known.new.id == exchange.session) else {
            return;
        };
        let reply = match answer {
            Ok(Answer::Exchanged(reply)) => reply,
            answer => {
                known.ended |= answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Fenced);
                return;
            }
        };
        if known.number == reply.number {
            return;
        }
        known.number = reply.number;
        let settles = &exchange.settles;
        known.held.retain(|&(_, token)| settles.iter().all(|settle| settle.token != token));
        let released = |token| settles.iter().any(|s| s.token == token && s.outcome == Outcome::Release);
        let started = |token| exchange.starts.iter().any(|start| start.token == token);
        let stopped = |token| reply.stop.iter().any(|stop| stop.token == token);
        known.claimed.retain(|&(_, token)| !released(token) && !started(token) && !stopped(token));
        let runs = exchange
            .starts
            .iter()
            .zip(&reply.started)
            .filter_map(|(start, started)| Some((start.job, started.as_ref().ok()?.run?.token)));
        let held: Vec<Grant> = runs.chain(reply.claimed.iter().map(|job| (job.id, job.token))).collect();
        let claimed = reply.prefetched.iter().map(|claim| (claim.job.id, claim.job.token));
        let claimed: Vec<Grant> = claimed.collect();
        known.held.extend(&held);
        known.claimed.extend(&claimed);
        for grant in held.into_iter().chain(claimed) {
            self.tokens.push(grant);
            self.hear_of(grant.0);
        }
    }
}
