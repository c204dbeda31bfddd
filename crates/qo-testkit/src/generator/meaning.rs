//! The meaning of specs that do not depend on the script's past.

use super::pool;
use super::step::{ConfigurationSpec, OutcomeSpec, Owner, Pick, ScheduleSpec, TaskSpec, TokenSpec};
use qo_core::{
    Configuration, Json, Key, Missed, Outcome, PartialRetention, RetryPolicy, Schedule, TaskOptions, Time,
};
use qo_core::{NewSession, NewToken, Scope, TokenHash};

/// The secret is that of the id, so that a token that is created again is mostly the same one.
pub(super) fn new_token(spec: &TokenSpec, now: Time) -> NewToken {
    NewToken {
        id: pool::token(spec.id),
        name: pool::worker(spec.name),
        hash: TokenHash::of(pool::token(spec.id).as_str()),
        scopes: [Scope::Read, Scope::Work].into(),
        queues: spec.queues.as_ref().map(|queues| queues.iter().map(|&k| pool::queue(k)).collect()),
        app: spec.app.map(pool::app),
        expires_at: spec.expires_at.map(|ms| Time::from_millis(now.as_millis() + ms)),
    }
}

pub(super) fn opened_by(session: NewSession, owner: Owner) -> NewSession {
    match owner {
        Owner::Same => session,
        Owner::Other(token) => NewSession { owner: token.map(pool::token), ..session },
    }
}

pub(super) fn registration(spec: &TaskSpec) -> TaskOptions {
    TaskOptions {
        app: pool::app(spec.app),
        group: spec.group.map(pool::group),
        max_concurrent: spec.limit,
        timeout_ms: spec.timeout_ms,
        retry: spec.retry_base_ms.map(|base_ms| RetryPolicy { base_ms, ..RetryPolicy::default() }),
        ..TaskOptions::new(pool::task(spec.task))
    }
}

pub(super) fn configuration(spec: &ConfigurationSpec) -> Configuration {
    let [succeeded_ms, failed_ms, cancelled_ms, expired_ms] = spec.retention;
    Configuration {
        app: pool::app(spec.app),
        limits: spec.limits.iter().map(|&(k, limit)| (pool::limited(k), limit)).collect(),
        queue_priorities: spec.priorities.iter().map(|&(k, priority)| (pool::queue(k), priority)).collect(),
        schedules: spec
            .schedules
            .iter()
            .map(|spec| (pool::schedule(spec.schedule), schedule(spec)))
            .collect(),
        retention: PartialRetention { succeeded_ms, failed_ms, cancelled_ms, expired_ms },
    }
}

fn schedule(spec: &ScheduleSpec) -> Schedule {
    Schedule {
        payload: Json::parse("payload", &spec.payload.to_string()).expect("a number is JSON"),
        missed: spec.missed,
        overlap: spec.overlap,
        ..pool::ticking(spec.ticks, spec.missed == Missed::All, pool::task(spec.task))
    }
}

/// One of a few keys; or the one that the next tick of a schedule will have, so that its job is there already.
pub(super) fn idempotency_key(k: Pick, now: Time) -> Key {
    if k < 3 {
        return Key::parse("idempotency_key", &format!("once-{k}")).expect("a key");
    }
    let often = pool::ticking(0, false, pool::task(0));
    let tick = often.first_after(now).expect("a good expression").unwrap_or(now);
    let job = often.job(&pool::schedule(k), tick).expect("a good schedule");
    job.idempotency_key.expect("a tick has a key")
}

pub(super) fn outcome(spec: OutcomeSpec) -> Outcome {
    match spec {
        OutcomeSpec::Succeed => Outcome::Succeed { output: Json::null() },
        OutcomeSpec::Retry(delay_ms) => Outcome::Retry { error: "try again".into(), delay_ms },
        OutcomeSpec::Fail => Outcome::Fail { error: "given up".into() },
        OutcomeSpec::Snooze(delay_ms) => Outcome::Snooze { delay_ms },
        OutcomeSpec::Release => Outcome::Release,
        OutcomeSpec::Cancelled => Outcome::Cancelled,
    }
}
