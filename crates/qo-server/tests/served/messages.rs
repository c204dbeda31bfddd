//! Messages and the types of qo-core: there and back without loss.

use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use qo_core::{
    Attempt, AttemptOutcome, Cause, Granted, GroupRef, Reason, Started, Submitted, TaskOptions, Time,
    Traceparent,
};
use qo_core::{Claim, Error, ErrorKind, Exchange, ExchangeReply, FenceToken, JobId, Json, Key, Name, NewJob};
use qo_core::{
    ClaimedJob, JobState, OnFailure, OnLimit, Outcome, Prefetch, Progress, RetryPolicy, SessionId,
};
use qo_core::{
    Configuration, Missed, PartialRetention, PrefetchedJob, Schedule, Settle, Start, Stop, StopReason,
};
use qo_wire::pb;
use uuid::Uuid;

fn names() -> impl Strategy<Value = Name> {
    "[a-z][a-z0-9_.-]{0,12}".prop_filter_map("a name", |text| Name::parse("name", &text).ok())
}

fn keys() -> impl Strategy<Value = Key> {
    ".{1,12}".prop_filter_map("a key", |text| Key::parse("key", &text).ok())
}

fn groups() -> impl Strategy<Value = GroupRef> {
    prop_oneof![
        Just(GroupRef::Cluster),
        names().prop_map(GroupRef::Queue),
        names().prop_map(GroupRef::Group),
        (names(), keys()).prop_map(|(group, key)| GroupRef::Key(group, key)),
        names().prop_map(GroupRef::EveryKey),
    ]
}

fn ids() -> impl Strategy<Value = JobId> {
    any::<u128>().prop_map(|id| JobId(Uuid::from_u128(id)))
}

fn texts() -> impl Strategy<Value = Json> {
    // A text that is stored need not be JSON.
    prop_oneof![Just(Json::null()), ".{0,20}".prop_map(|text| Json::as_stored(&text))]
}

fn times() -> impl Strategy<Value = Time> {
    any::<i64>().prop_map(Time::from_millis)
}

fn tokens() -> impl Strategy<Value = FenceToken> {
    any::<u64>().prop_map(FenceToken)
}

fn retries() -> impl Strategy<Value = RetryPolicy> {
    prop_oneof![
        Just(RetryPolicy::default()),
        (any::<u64>(), any::<u32>(), any::<u64>(), any::<u32>()).prop_map(
            |(base_ms, factor_percent, max_ms, jitter_percent)| RetryPolicy {
                base_ms,
                factor_percent,
                max_ms,
                jitter_percent
            }
        ),
    ]
}

fn errors() -> impl Strategy<Value = Error> {
    let kinds = prop::sample::select(vec![
        ErrorKind::Invalid,
        ErrorKind::NotFound,
        ErrorKind::Conflict,
        ErrorKind::LimitReached,
        ErrorKind::Fenced,
        ErrorKind::Unavailable,
        ErrorKind::Unknown,
        ErrorKind::Data,
        ErrorKind::Internal,
    ]);
    let causes = of(prop::sample::select(vec![
        Cause::NoNamespace,
        Cause::MustNotCreate,
        Cause::OtherNamespace,
        Cause::OtherFormat,
        Cause::Refused,
    ]));
    (kinds, ".{0,20}", of("[a-z]{1,5}"), of(".{0,9}"), of(any::<usize>()), causes).prop_map(
        |(kind, rule, path, value, item, cause)| {
            let mut error =
                Error::from_parts(kind, path.as_deref().unwrap_or_default(), value.as_deref(), &rule);
            if let Some(index) = item {
                error = error.at_item("jobs", index).found_in("a.toml:3");
            }
            cause.into_iter().fold(error, Error::with_cause)
        },
    )
}

fn states() -> impl Strategy<Value = JobState> {
    prop::sample::select(vec![
        JobState::Pending,
        JobState::Claimed,
        JobState::Running,
        JobState::Succeeded,
        JobState::Failed,
        JobState::Cancelled,
        JobState::Expired,
    ])
}

fn traces() -> impl Strategy<Value = Traceparent> {
    (1..=u128::MAX, 1..=u64::MAX, any::<u8>()).prop_map(|(trace, span, flags)| {
        let text = format!("00-{trace:032x}-{span:016x}-{flags:02x}");
        Traceparent::parse("traceparent", &text).expect("it keeps the format")
    })
}

fn jobs() -> impl Strategy<Value = NewJob> {
    let on_limit = prop::sample::select(vec![OnLimit::Wait, OnLimit::Reject, OnLimit::Skip]);
    let on_failure = of(prop::sample::select(vec![OnFailure::Halt, OnFailure::Continue]));
    let what = (ids(), names(), texts(), names(), any::<i32>(), of(times()), of(times()), any::<u32>());
    let how = (of(retries()), of(any::<u64>()), of(names()), of(keys()), any::<u32>());
    let limits = (of(any::<u32>()), any::<bool>());
    let rest = (btree_map(groups(), any::<u32>(), 0..4), limits, of(keys()), on_limit);
    let last = (of(names()), on_failure, of(traces()));
    (what, how, rest, last).prop_map(|(what, how, rest, (workflow, on_failure, traceparent))| NewJob {
        id: what.0,
        task: what.1,
        payload: what.2,
        queue: what.3,
        priority: what.4,
        run_at: what.5,
        good_until: what.6,
        max_attempts: what.7,
        retry: how.0,
        timeout_ms: how.1,
        group: how.2,
        key: how.3,
        cost: how.4,
        limits: rest.0,
        limit: rest.1.0,
        clear_limit: rest.1.1,
        idempotency_key: rest.2,
        on_limit: rest.3,
        workflow,
        on_failure,
        traceparent,
    })
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        texts().prop_map(|output| Outcome::Succeed { output }),
        (".{0,9}", any::<u64>())
            .prop_map(|(error, delay_ms)| Outcome::Retry { error: error.into(), delay_ms }),
        ".{0,9}".prop_map(|error| Outcome::Fail { error: error.into() }),
        any::<u64>().prop_map(|delay_ms| Outcome::Snooze { delay_ms }),
        Just(Outcome::Release),
        Just(Outcome::Cancelled),
    ]
}

fn exchanges() -> impl Strategy<Value = Exchange> {
    let settle =
        (ids(), tokens(), outcomes()).prop_map(|(job, token, outcome)| Settle { job, token, outcome });
    let start = (ids(), tokens()).prop_map(|(job, token)| Start { job, token });
    let progress = (ids(), tokens(), any::<u8>(), ".{0,9}")
        .prop_map(|(job, token, percent, note)| Progress { job, token, percent, note: note.into() });
    let prefetch =
        of((any::<u32>(), any::<u64>()).prop_map(|(buffer, lease_ms)| Prefetch { buffer, lease_ms }));
    let claim = (any::<u32>(), of(any::<u32>()), prefetch)
        .prop_map(|(max, max_claim_batch, prefetch)| Claim { max, max_claim_batch, prefetch });
    let lists = (vec(settle, 0..4), vec(start, 0..4), vec(progress, 0..4));
    (any::<(u128, u64, u32, bool)>(), lists, claim, of(any::<u64>()), of(any::<u8>())).prop_map(
        |(plain, lists, claim, idle_ms, memory_percent)| Exchange {
            session: SessionId(Uuid::from_u128(plain.0)),
            number: plain.1,
            settles: lists.0,
            starts: lists.1,
            progress: lists.2,
            claim,
            free_permits: plain.2,
            draining: plain.3,
            memory_percent,
            idle_ms,
        },
    )
}

fn claimed() -> impl Strategy<Value = ClaimedJob> {
    let what = (ids(), tokens(), any::<u32>(), any::<u32>(), names(), names(), names());
    (what, of(keys()), texts(), (of(any::<u64>()), of(traces()), of(times())), retries()).prop_map(
        |(what, key, payload, (timeout_ms, traceparent, due_at), retry)| ClaimedJob {
            id: what.0,
            token: what.1,
            attempt: what.2,
            max_attempts: what.3,
            queue: what.4,
            task: what.5,
            group: what.6,
            key,
            payload,
            timeout_ms,
            retry,
            traceparent,
            due_at,
        },
    )
}

fn replies() -> impl Strategy<Value = ExchangeReply> {
    let settled = prop_oneof![states().prop_map(Ok), errors().prop_map(Err)];
    let granted = (tokens(), of(any::<u64>()), retries()).prop_map(|(token, timeout_ms, retry)| Granted {
        token,
        timeout_ms,
        retry,
    });
    let started = prop_oneof![
        (states(), of(granted)).prop_map(|(then, run)| Ok(Started { then, run })),
        errors().prop_map(Err)
    ];
    let prefetched = (claimed(), times()).prop_map(|(job, claim_until)| PrefetchedJob { job, claim_until });
    let reason = prop::sample::select(vec![StopReason::Cancelled, StopReason::LeaseEnded]);
    let stop = (ids(), tokens(), reason).prop_map(|(job, token, reason)| Stop { job, token, reason });
    let lists = (vec(settled, 0..4), vec(started, 0..4), vec(claimed(), 0..3), vec(prefetched, 0..3));
    (any::<u64>(), lists, vec(stop, 0..3), times(), times()).prop_map(
        |(number, lists, stop, now, lease_until)| ExchangeReply {
            number,
            settled: lists.0,
            started: lists.1,
            claimed: lists.2,
            prefetched: lists.3,
            stop,
            now,
            lease_until,
        },
    )
}

fn configurations() -> impl Strategy<Value = Configuration> {
    let missed = prop::sample::select(vec![Missed::Latest, Missed::All, Missed::Skip]);
    let plain = any::<(i32, u32, bool)>();
    let schedule = (".{0,9}", ".{0,9}", names(), texts(), names(), plain, of(any::<u64>()), missed).prop_map(
        |(cron, timezone, task, payload, queue, plain, timeout_ms, missed)| Schedule {
            cron,
            timezone,
            task,
            payload,
            queue,
            priority: plain.0,
            max_attempts: plain.1,
            timeout_ms,
            missed,
            overlap: plain.2,
        },
    );
    let retention = any::<[Option<u64>; 4]>().prop_map(|ms| PartialRetention {
        succeeded_ms: ms[0],
        failed_ms: ms[1],
        cancelled_ms: ms[2],
        expired_ms: ms[3],
    });
    let maps = (
        btree_map(groups(), any::<u32>(), 0..4),
        btree_map(names(), any::<u32>(), 0..4),
        btree_map(names(), schedule, 0..3),
    );
    (names(), maps, retention).prop_map(|(app, maps, retention)| Configuration {
        app,
        limits: maps.0,
        queue_priorities: maps.1,
        schedules: maps.2,
        retention,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_job_comes_back_as_it_was(job in jobs()) {
        prop_assert_eq!(NewJob::try_from(pb::NewJob::from(job.clone())), Ok(job));
    }

    #[test]
    fn an_exchange_comes_back_as_it_was(exchange in exchanges()) {
        let message = pb::ExchangeRequest::from(exchange.clone());
        prop_assert_eq!(Exchange::try_from(message), Ok(exchange));
    }

    #[test]
    fn the_reply_to_an_exchange_comes_back_as_it_was(reply in replies()) {
        let message = pb::ExchangeReply::from(reply.clone());
        prop_assert_eq!(ExchangeReply::try_from(message), Ok(reply));
    }

    #[test]
    fn a_configuration_comes_back_as_it_was(configuration in configurations()) {
        let message = pb::Configuration::from(configuration.clone());
        prop_assert_eq!(Configuration::try_from(message), Ok(configuration));
    }

    #[test]
    fn an_error_comes_back_with_all_its_parts(errors in vec(errors(), 1..4)) {
        let sent = Error::all(errors).expect_err("mistakes");
        let read = Error::from(pb::Error::from(&sent));
        prop_assert_eq!((read.rule(), read.path(), read.value()), (sent.rule(), sent.path(), sent.value()));
        prop_assert_eq!((read.cause(), read.origin(), read.mistakes()), (sent.cause(), sent.origin(), sent.mistakes()));
        prop_assert_eq!((read.item("jobs"), &read), (sent.item("jobs"), &sent));
    }

    #[test]
    fn tasks_and_outcomes_come_back_as_they_were(
        task in names(), group in of(names()), limit in of(any::<u32>()), retry in of(retries()), id in ids(), error in errors()
    ) {
        let options = TaskOptions { group, max_concurrent: limit, retry, ..TaskOptions::new(task) };
        prop_assert_eq!(TaskOptions::try_from(pb::TaskOptions::from(options.clone())), Ok(options));
        for outcome in [Ok(Submitted::Accepted(id)), Ok(Submitted::Existing(id)), Ok(Submitted::Skipped), Err(error)] {
            let message = pb::SubmitOutcome::from(outcome.clone());
            prop_assert_eq!(Result::<Submitted, Error>::try_from(message), Ok(outcome));
        }
    }
}

/// Enumerations of qo-core that may grow: each of their values has one in the protocol.
#[test]
fn every_outcome_of_an_attempt_and_every_reason_has_a_message() {
    let outcomes = [
        AttemptOutcome::Succeeded,
        AttemptOutcome::Retried,
        AttemptOutcome::Failed,
        AttemptOutcome::Snoozed,
        AttemptOutcome::Released,
        AttemptOutcome::Cancelled,
        AttemptOutcome::LeaseEnded,
        AttemptOutcome::TimedOut,
        AttemptOutcome::ReleasedByOperator,
    ];
    let worker = Name::parse("worker", "w").expect("a name");
    for outcome in outcomes {
        let attempt = Attempt {
            number: 1,
            token: FenceToken(7),
            worker: worker.clone(),
            session: SessionId(Uuid::from_u128(3)),
            started_at: Time::from_millis(1),
            ended_at: Time::from_millis(2),
            outcome,
            error: Some("why".into()),
            then: JobState::Failed,
        };
        assert_eq!(Attempt::try_from(pb::Attempt::from(attempt.clone())), Ok(attempt));
    }
    // Serde lists the reasons when it meets one that it does not know.
    let unknown =
        serde_json::from_value::<Reason>(serde_json::json!({ "reason": "?" })).expect_err("no such reason");
    let known = unknown.to_string().matches('`').count() / 2 - 1;
    let oneof = pb::DESCRIPTORS;
    let set = <prost_types::FileDescriptorSet as prost::Message>::decode(oneof).expect("descriptors");
    let mut all = set.file.iter().flat_map(|file| &file.message_type);
    let reason = all.find(|message| message.name() == "Reason").expect("it is there");
    assert_eq!(reason.field.len(), known, "{unknown}");
}
