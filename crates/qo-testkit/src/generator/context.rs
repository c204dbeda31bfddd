//! What a script has seen so far, and so what its symbols mean.

use super::step::{
    self, ExchangeStep, JobSpec, Number, OutcomeSpec, Pick, SessionSpec, Step, TaskSpec, Whose,
};
use qo_core::{
    Answer, Claim, Command, Configuration, ErrorKind, Exchange, FenceToken, GroupRef, JobId, Json, Key,
};
use qo_core::{NewJob, NewSession, Outcome, Result, RetryPolicy, SessionId, Settle, TaskOptions, Time};
use uuid::Uuid;

/// Jobs, sessions and tokens of the past.
#[derive(Default)]
pub(super) struct Context {
    pub jobs: Vec<NewJob>,
    sessions: Vec<Known>,
    tokens: Vec<(JobId, FenceToken)>,
    ids: u128,
}

struct Known {
    new: NewSession,
    number: u64,
    held: Vec<(JobId, FenceToken)>,
    ended: bool,
}

fn pick<T>(list: &[T], k: Pick) -> Option<&T> {
    list.get(usize::from(k) % list.len().max(1))
}

impl Context {
    /// What a step means now; `None` if it is not a command but time that passes.
    pub fn command(&mut self, step: &Step, now: Time) -> Option<Command> {
        Some(match step {
            Step::Advance(_) => return None,
            Step::Submit(jobs) => Command::Submit(jobs.iter().map(|job| self.job(job, now)).collect()),
            Step::SubmitAgain(k) => Command::Submit(pick(&self.jobs, *k).cloned().into_iter().collect()),
            Step::Cancel(jobs) => Command::Cancel(jobs.iter().map(|&k| self.old_job(k)).collect()),
            Step::Register(tasks) => Command::Register(tasks.iter().map(registration).collect()),
            Step::Configure(limits, priorities) => Command::Configure(Configuration {
                limits: limits.iter().map(|&(k, limit)| (step::limited(k), limit)).collect(),
                queue_priorities: priorities
                    .iter()
                    .map(|&(k, priority)| (step::queue(k), priority))
                    .collect(),
                ..Configuration::default()
            }),
            Step::SetLimit(group, limit) => Command::SetLimit(step::limited(*group), *limit),
            Step::UnsetLimit(group) => Command::UnsetLimit(step::limited(*group)),
            Step::Pause(queue, paused) => Command::PauseQueue(step::queue(*queue), *paused),
            Step::Open(session) => Command::OpenSession(self.new_session(session)),
            Step::OpenAgain(k) => match pick(&self.sessions, *k) {
                Some(known) => Command::OpenSession(known.new.clone()),
                None => Command::Sweep,
            },
            Step::Exchange(exchange) => Command::Exchange(self.exchange(exchange)),
            Step::Close(k) => Command::CloseSession(self.session(*k)),
            Step::ReleaseSlot(group, k) => Command::ReleaseSlot(step::limited(*group), self.token(*k).1),
            Step::ReleaseOwnSlot(k) => {
                let (job, token) = self.token(*k);
                Command::ReleaseSlot(self.group_of(job), token)
            }
            Step::Sweep => Command::Sweep,
        })
    }

    fn new_id(&mut self) -> Uuid {
        self.ids += 1;
        Uuid::from_u128(self.ids)
    }

    fn job(&mut self, spec: &JobSpec, now: Time) -> NewJob {
        let from_now = |ms: i64| Time::from_millis(now.as_millis() + ms);
        let fresh = JobId(self.new_id());
        let id = spec.old_id.and_then(|k| pick(&self.jobs, k)).map_or(fresh, |job| job.id);
        let job = NewJob {
            payload: Json::parse("payload", &spec.payload.to_string()).expect("a number is JSON"),
            queue: step::queue(spec.queue),
            priority: spec.priority,
            run_at: spec.run_at.map(from_now),
            good_until: spec.good_until.map(from_now),
            max_attempts: spec.max_attempts,
            timeout_ms: spec.timeout_ms,
            group: spec.group.map(step::group),
            key: spec.key.map(step::key),
            cost: spec.cost,
            limits: spec.extras.iter().map(|&(k, slots)| (step::extra(k), slots)).collect(),
            limit: spec.limit,
            idempotency_key: spec.idempotency.map(idempotency_key),
            on_limit: spec.on_limit,
            ..NewJob::new(id, step::task(spec.task))
        };
        self.jobs.push(job.clone());
        job
    }

    fn old_job(&self, k: Pick) -> JobId {
        pick(&self.jobs, k).map_or(JobId(Uuid::max()), |job| job.id)
    }

    /// A group that a job was surely submitted to: its key's, else its queue's.
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
            worker: step::worker(spec.worker),
            queues: spec.queues.iter().map(|&k| step::queue(k)).collect(),
            tasks: spec.tasks.iter().map(|&k| step::task(k)).collect(),
            lease_ms: spec.lease_ms,
            permits: spec.permits,
        };
        self.sessions.push(Known { new: new.clone(), number: 0, held: Vec::new(), ended: false });
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

    fn token(&self, k: Pick) -> (JobId, FenceToken) {
        pick(&self.tokens, k).copied().unwrap_or((JobId(Uuid::max()), FenceToken(0)))
    }

    fn exchange(&self, spec: &ExchangeStep) -> Exchange {
        let known = self.known(spec.session);
        let last = known.map_or(0, |known| known.number);
        let held = known.map_or(&[][..], |known| &known.held);
        let number = match spec.number {
            Number::Next => last + 1,
            Number::Last => last.max(1),
            Number::Old => last.saturating_sub(1).max(1),
            Number::Ahead => last + 3,
        };
        let settles = spec.settles.iter().filter_map(|settle| {
            let (job, token) = match settle.whose {
                Whose::Held(k) => *pick(held, k)?,
                Whose::Any(k) => self.token(k),
                Whose::Mixed(job, token) => (self.token(job).0, self.token(token).1),
            };
            Some(Settle { job, token, outcome: outcome(settle.outcome) })
        });
        Exchange {
            session: self.session(spec.session),
            number,
            settles: settles.collect(),
            starts: Vec::new(),
            claim: Claim { max: spec.max, max_per_queue: spec.max_per_queue, prefetch: None },
            free_permits: spec.free_permits,
            draining: spec.draining,
        }
    }

    /// Learns from an answer.
    pub fn learn(&mut self, command: &Command, answer: &Result<Answer>) {
        let Command::Exchange(exchange) = command else { return };
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
        known.held.retain(|&(_, token)| exchange.settles.iter().all(|settle| settle.token != token));
        let claimed = reply.claimed.iter().map(|claimed| (claimed.id, claimed.token));
        known.held.extend(claimed.clone());
        self.tokens.extend(claimed);
    }
}

fn registration(spec: &TaskSpec) -> TaskOptions {
    TaskOptions {
        group: spec.group.map(step::group),
        limit: spec.limit,
        timeout_ms: spec.timeout_ms,
        retry: spec.retry_base_ms.map(|base_ms| RetryPolicy { base_ms, ..RetryPolicy::default() }),
        ..TaskOptions::new(step::task(spec.task))
    }
}

fn idempotency_key(k: Pick) -> Key {
    Key::parse("idempotency_key", &format!("once-{k}")).expect("a key")
}

fn outcome(spec: OutcomeSpec) -> Outcome {
    match spec {
        OutcomeSpec::Succeed => Outcome::Succeed { output: Json::null() },
        OutcomeSpec::Retry(delay_ms) => Outcome::Retry { error: "try again".into(), delay_ms },
        OutcomeSpec::Fail => Outcome::Fail { error: "given up".into() },
        OutcomeSpec::Snooze(delay_ms) => Outcome::Snooze { delay_ms },
        OutcomeSpec::Release => Outcome::Release,
        OutcomeSpec::Cancelled => Outcome::Cancelled,
    }
}
