//! Records that prove everything, and the same records falsified: the verdict must find each change.

use super::*;
use crate::command::demo::evidence::{Change, Declared, Expected, Kill};
use crate::command::demo::record::{Event, Record};
use qo::core::{FenceToken, GroupRef, JobId, Key, Name};
use uuid::Uuid;

const MS: u64 = 1_000_000;

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

/// A made-up run in which no rule is broken.
struct Story {
    evidence: Evidence,
    records: Records,
}

/// A job's part of a story.
#[derive(Clone, Copy)]
struct Part {
    job: u128,
    token: u64,
    worker: &'static str,
    task: &'static str,
    key: Option<&'static str>,
    step: Option<u32>,
    from_ms: u64,
    to_ms: Option<u64>,
}

impl Part {
    fn of(job: u128, token: u64, worker: &'static str, task: &'static str, from_ms: u64, to_ms: u64) -> Self {
        Self { job, token, worker, task, key: None, step: None, from_ms, to_ms: Some(to_ms) }
    }

    fn record(&self, event: Event, at_ms: u64) -> Record {
        Record {
            at_ns: at_ms * MS,
            event,
            job: JobId(Uuid::from_u128(self.job)),
            attempt: 1,
            token: FenceToken(self.token),
            task: name(self.task),
            queue: name(if self.task == "charge" { "stripe" } else { "default" }),
            group: name(self.task),
            key: self.key.map(|key| Key::parse("key", key).expect("a key")),
            workflow: self.step.map(|_| name("order-1")),
            step: self.step,
        }
    }
}

/// Two workers. call-api may run twice, then once (from token 5 on); sync-user once for each user; charge once. Worker b is
/// killed at 450 ms while it runs job 4, which begins again on a.
fn parts() -> Vec<Part> {
    let call = |job, token, worker, from_ms, to_ms| Part::of(job, token, worker, "call-api", from_ms, to_ms);
    vec![
        call(1, 1, "a", 0, 100),
        call(2, 2, "b", 10, 200),
        // Tokens 3 and 6 are the marks of the change.
        call(3, 7, "a", 210, 400),
        Part { to_ms: None, ..call(4, 8, "b", 410, 0) },
        call(4, 20, "a", 2_400, 2_500),
        Part { key: Some("ann"), ..Part::of(5, 9, "a", "sync-user", 0, 300) },
        Part { key: Some("ann"), ..Part::of(6, 10, "b", "sync-user", 310, 440) },
        Part { key: Some("bob"), ..Part::of(7, 11, "a", "sync-user", 0, 300) },
        Part { step: Some(1), ..Part::of(8, 12, "a", "order", 0, 100) },
        Part { step: Some(2), ..Part::of(9, 13, "b", "order", 110, 200) },
        Part { step: Some(3), ..Part::of(10, 14, "a", "order", 210, 300) },
        Part::of(11, 15, "a", "charge", 0, 100),
        Part::of(12, 16, "b", "charge", 105, 200),
    ]
}

impl Story {
    fn of(parts: &[Part]) -> Self {
        let mut records = Records::from([("a".to_owned(), Vec::new()), ("b".to_owned(), Vec::new())]);
        let mut jobs: Vec<Expected> = Vec::new();
        for part in parts {
            let of_worker = records.get_mut(part.worker).expect("a worker");
            let record = part.record(Event::Began, part.from_ms);
            if jobs.iter().all(|job| job.id != record.job) {
                let Record { job: id, task, queue, key, workflow, .. } = record.clone();
                jobs.push(Expected { id, task, queue, key, workflow });
            }
            of_worker.push(record);
            of_worker.extend(part.to_ms.map(|to_ms| part.record(Event::Done, to_ms)));
        }
        let limit = |group, limit| Declared { group, limit, changes: Vec::new() };
        let change = Change { limit: 1, before: FenceToken(3), after: FenceToken(6) };
        let limits = vec![
            limit(GroupRef::Cluster, 6),
            limit(GroupRef::Queue(name("stripe")), 1),
            Declared { changes: vec![change], ..limit(GroupRef::Group(name("call-api")), 2) },
            limit(GroupRef::EveryKey(name("sync-user")), 1),
        ];
        let kill = Some(Kill { worker: "b".into(), at_ns: 450 * MS });
        let evidence = Evidence {
            prefix: String::new(),
            began_ns: 0,
            lease_ms: 2_000,
            jobs,
            limits,
            kill,
            finished: true,
        };
        Self { evidence, records }
    }

    fn verdict(&self) -> Verdict {
        Verdict::of(&self.evidence, &self.records)
    }
}

/// The violations that the verdict finds in tampered parts.
fn caught(tamper: impl FnOnce(&mut Vec<Part>)) -> Vec<String> {
    let mut parts = parts();
    tamper(&mut parts);
    // What was submitted does not depend on what was recorded.
    let mut story = Story::of(&parts);
    story.evidence.jobs = Story::of(&self::parts()).evidence.jobs;
    let verdict = story.verdict();
    assert!(!verdict.holds());
    verdict.said()
}

impl Verdict {
    fn said(&self) -> Vec<String> {
        self.violations.iter().map(Violation::to_string).collect()
    }
}

#[track_caller]
fn assert_says(violations: &[String], parts: &[&str]) {
    let says = |violation: &String| parts.iter().all(|part| violation.contains(part));
    assert!(violations.iter().any(says), "{violations:#?}");
}

#[test]
fn true_records_prove_everything() {
    let verdict = Story::of(&parts()).verdict();
    assert_eq!(verdict.said(), Vec::<String>::new());
    let kept: Vec<_> =
        verdict.limits.iter().map(|kept| (kept.phase, kept.limit, kept.reached, kept.keys)).collect();
    assert_eq!(
        kept,
        [
            (Phase::First, 6, 6, None),
            (Phase::First, 1, 1, None),
            (Phase::First, 2, 2, None),
            (Phase::Lowered, 1, 1, None),
            (Phase::First, 1, 1, Some(2)),
        ]
    );
    assert_eq!(verdict.workflows, Workflows { count: 1, steps: 3, across_workers: 1, disorder: 0 });
    let Recovery { held, again, all_ms, .. } = verdict.recovery;
    assert_eq!((held, again, all_ms), (1, 1, 1_950));
    assert_eq!(verdict.jobs, Jobs { all: 12, once: 11, again: 1, ..Jobs::default() });
}

#[test]
fn one_too_many_at_once_is_caught_in_every_kind_of_group() {
    let overlap = |job: u128, from_ms: u64| {
        caught(|parts| {
            parts.iter_mut().filter(|part| part.job == job).for_each(|part| part.from_ms = from_ms)
        })
    };
    assert_says(&overlap(12, 99), &["queue:stripe", "2 at once where 1 may"]);
    assert_says(&overlap(6, 299), &["sync-user/*", "2 at once where 1 may"]);
    assert_says(&overlap(12, 50), &["cluster", "7 at once where 6 may"]);
    let third = caught(|parts| parts.push(Part { token: 3, ..Part::of(3, 3, "a", "call-api", 50, 60) }));
    assert_says(&third, &["call-api", "3 at once where 2 may"]);
}

#[test]
fn a_claim_after_the_limit_was_lowered_must_keep_to_the_new_one() {
    // Job 2 still runs: the old limit would have let it begin, the new one does not.
    let early = caught(|parts| parts[2].from_ms = 150);
    assert_says(&early, &["call-api", "2 at once where 1 may"]);
    // A claim from before the change may begin late.
    let mut late = parts();
    late[2] = Part { token: 3, from_ms: 150, ..late[2] };
    late.push(Part::of(13, 17, "a", "call-api", 2_600, 2_700));
    assert_eq!(Story::of(&late).verdict().said(), Vec::<String>::new());
}

#[test]
fn a_limit_that_was_never_reached_is_caught() {
    let apart = caught(|parts| (parts[1].from_ms, parts[1].to_ms) = (120, Some(200)));
    assert_says(&apart, &["call-api", "never more than 1 at once although 2 may"]);
    let mut story = Story::of(&parts());
    story.evidence.limits.push(Declared {
        group: GroupRef::Queue(name("mail")),
        limit: 4,
        changes: Vec::new(),
    });
    assert_says(&story.verdict().said(), &["queue:mail", "never more than 0 at once"]);
}

#[test]
fn a_step_that_begins_before_the_one_before_it_is_over_is_caught() {
    assert_says(
        &caught(|parts| parts[9].from_ms = 90),
        &["order-1", "step 2 began at 0.090 s, before step 1"],
    );
    assert_says(&caught(|parts| parts[10].from_ms = 105), &["order-1", "step 3", "before step 2"]);
    let swapped = caught(|parts| (parts[9].step, parts[10].step) = (Some(3), Some(2)));
    assert_says(&swapped, &["order-1", "step 3", "before step 2"]);
}

#[test]
fn a_lost_job_is_caught() {
    assert_says(
        &caught(|parts| {
            parts.remove(5);
        }),
        &["jobs lost", "never done"],
    );
    assert_says(&caught(|parts| parts[5].to_ms = None), &["began on a and never ended"]);
    assert_says(
        &caught(|parts| {
            parts.remove(4);
        }),
        &["kill -9", "1 jobs of b never began again"],
    );
}

#[test]
fn a_job_that_is_done_twice_or_by_two_at_once_is_caught() {
    let again = caught(|parts| parts.push(Part::of(1, 30, "a", "call-api", 2_600, 2_700)));
    assert_says(&again, &["was done again although it had been done"]);
    let both = caught(|parts| parts.push(Part::of(1, 30, "b", "call-api", 50, 90)));
    assert_says(&both, &["one owner", "ran on a and on b at once"]);
    let stale = caught(|parts| parts[4].token = 4);
    assert_says(&stale, &["fence", "its token did not grow"]);
    let same = caught(|parts| parts[1].token = 1);
    assert_says(&same, &["records: token 1 owns"]);
    let stranger = caught(|parts| parts.push(Part::of(99, 30, "a", "charge", 2_600, 2_700)));
    assert_says(&stranger, &["which was never submitted"]);
}

#[test]
fn a_job_that_was_done_just_before_its_worker_was_killed_may_be_done_again() {
    let mut parts = parts();
    parts[3].to_ms = Some(449);
    parts.push(Part { to_ms: None, ..Part::of(13, 18, "b", "resize", 440, 0) });
    parts.push(Part::of(13, 19, "a", "resize", 2_600, 2_700));
    let verdict = Story::of(&parts).verdict();
    assert_eq!((verdict.said(), verdict.jobs.again), (Vec::new(), 2));
    assert_eq!((verdict.recovery.held, verdict.recovery.unsaid), (2, 1));
}

#[test]
fn a_kill_that_hit_nobody_or_a_recovery_that_took_too_long_is_caught() {
    assert_says(
        &caught(|parts| {
            parts.remove(3);
        }),
        &["held no job"],
    );
    let late = caught(|parts| (parts[4].from_ms, parts[4].to_ms) = (9_000, Some(9_100)));
    assert_says(&late, &["kill -9", "came back after 8550 ms"]);
    let mut story = Story::of(&parts());
    story.evidence.kill = None;
    assert_says(&story.verdict().said(), &["no worker was killed"]);
}

#[test]
fn a_job_that_its_worker_gave_back_is_told_apart_from_one_that_was_done_twice() {
    let mut story = Story::of(&parts());
    let records = story.records.get_mut("a").expect("a worker");
    let done = records.iter_mut().find(|record| record.event == Event::Done && record.task == name("charge"));
    done.expect("it was done").event = Event::Stopped;
    assert_says(&story.verdict().said(), &["jobs lost"]);
    let again = Part::of(11, 40, "a", "charge", 2_600, 2_700);
    let records = story.records.get_mut("a").expect("a worker");
    records.extend([again.record(Event::Began, 2_600), again.record(Event::Done, 2_700)]);
    let verdict = story.verdict();
    assert_eq!((verdict.said(), verdict.jobs.given_back), (Vec::new(), 1));
}
