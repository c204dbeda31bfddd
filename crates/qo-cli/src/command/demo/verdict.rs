//! The demo as a case for the judge, and its records as a diary.

use super::evidence::{Declared, Evidence, Expected, Records};
use super::record::{Event, Record};
use qo::core::{Key, Name};
use qo_judge::{Case, Change, Diary, End, Job, Limit, Line, Reach, Verdict, What};
use std::collections::BTreeMap;

/// How long beyond its lease a dead worker may hold its slots: a sweep, and a poll of a worker that was not woken up
/// (G5).
const BEYOND_LEASE_MS: u64 = 6_000;
const MS: u64 = 1_000_000;

/// Judges the records.
pub fn judge(evidence: &Evidence, records: &Records) -> Verdict {
    let mut diary = Diary::default();
    for (worker, records) in records {
        records.iter().for_each(|record| diary.add(line(worker, record)));
    }
    Verdict::of(&case(evidence), &diary)
}

fn case(evidence: &Evidence) -> Case {
    let kill = evidence.kill.iter().map(|kill| (kill.worker.clone(), kill.at_ns));
    let complaint = (!evidence.finished).then(|| "not all jobs had ended when the time was up".to_owned());
    Case {
        began_ns: evidence.began_ns,
        lease_ns: evidence.lease_ms * MS,
        jobs: evidence.jobs.iter().map(|job| (job.id.to_string(), expected(job))).collect(),
        limits: evidence.limits.iter().map(limit).collect(),
        kills: kill.collect::<BTreeMap<_, _>>(),
        is_over: true,
        reach: Reach::Full,
        done_once: true,
        recovered_within_ns: Some((evidence.lease_ms + BEYOND_LEASE_MS) * MS),
        complaints: complaint.into_iter().collect(),
        ..Case::default()
    }
}

/// A job takes a slot of each group that the demo limits. Its group is its task.
fn expected(job: &Expected) -> Job {
    let mut needs =
        vec![("cluster".to_owned(), 1), (format!("queue:{}", job.queue), 1), (job.task.to_string(), 1)];
    needs.extend(job.key.iter().map(|key| (format!("{}/{key}", job.task), 1)));
    let step = job.workflow.as_ref().zip(job.step);
    let says = says(&job.task, &job.queue, &job.task, job.key.as_ref(), job.workflow.as_ref(), job.step);
    Job {
        needs,
        step: step.map(|(workflow, step)| (workflow.to_string(), step.into())),
        says: Some(says),
        ..Job::default()
    }
}

/// Changes are marked with fence tokens.
fn limit(declared: &Declared) -> Limit {
    let changes = declared.changes.iter();
    let change = |change: &super::evidence::Change| Change {
        limit: change.limit,
        from: change.before.0 + 1,
        until: change.after.0,
    };
    Limit { group: declared.group.to_string(), limit: declared.limit, changes: changes.map(change).collect() }
}

fn line(worker: &str, record: &Record) -> Line {
    let Record { at_ns, event, job, token, task, queue, group, key, workflow, step, .. } = record;
    let what = match event {
        Event::Began => What::Began,
        Event::Done => What::Ended(End::Done),
        Event::Stopped => What::Ended(End::Stopped),
    };
    let job = job.to_string();
    let says = says(task, queue, group, key.as_ref(), workflow.as_ref(), *step);
    Line {
        what,
        at_ns: *at_ns,
        worker: worker.into(),
        token: token.0,
        planned: job.as_str().into(),
        job: job.into(),
        says: says.into(),
    }
}

/// What a job says about itself, to be compared with what was submitted.
fn says(
    task: &Name,
    queue: &Name,
    group: &Name,
    key: Option<&Key>,
    workflow: Option<&Name>,
    step: Option<u32>,
) -> String {
    let mut says = format!("task {task} queue {queue} group {group}");
    if let Some(key) = key {
        says.push_str(&format!(" key {key}"));
    }
    if let (Some(workflow), Some(step)) = (workflow, step) {
        says.push_str(&format!(" step {step} of {workflow}"));
    }
    says
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::demo::evidence::{self, Kill};
    use crate::command::demo::plan::{LEASE_MS, Names, Task};
    use qo::core::{FenceToken, GroupRef, NewJob};

    /// A run of every planned job, one after another. The first worker is killed in the middle of the first job.
    fn run(names: &Names) -> (Evidence, Records) {
        let jobs = names.jobs().expect("a plan");
        let mut records = Records::from([("a".to_owned(), Vec::new()), ("b".to_owned(), Vec::new())]);
        let mut write = |worker: &str, job: &NewJob, at: usize, events: &[Event]| {
            let expected = Expected::from(job);
            for (late, event) in events.iter().enumerate() {
                records.get_mut(worker).expect("a worker").push(Record {
                    at_ns: (at * 10 + late) as u64,
                    event: *event,
                    job: job.id,
                    attempt: 1,
                    token: FenceToken(at as u64 + 1),
                    task: job.task.clone(),
                    queue: job.queue.clone(),
                    group: job.task.clone(),
                    key: job.key.clone(),
                    workflow: job.workflow.clone(),
                    step: expected.step,
                });
            }
        };
        write("a", &jobs[0], 0, &[Event::Began]);
        for (index, job) in jobs.iter().enumerate() {
            write("b", job, index + 1, &[Event::Began, Event::Done]);
        }
        let limit = |group| Declared { group, limit: 1, changes: Vec::new() };
        let change = evidence::Change { limit: 1, before: FenceToken(9), after: FenceToken(11) };
        let limits = vec![
            limit(GroupRef::Cluster),
            limit(GroupRef::Queue(names.limited_queue().expect("a queue"))),
            Declared { changes: vec![change], ..limit(names.changed_group().expect("a group")) },
            limit(GroupRef::EveryKey(names.task(Task::SyncUser).expect("a task"))),
        ];
        let evidence = Evidence {
            prefix: names.prefix().to_owned(),
            began_ns: 0,
            lease_ms: LEASE_MS,
            jobs: jobs.iter().map(Expected::from).collect(),
            limits,
            kill: Some(Kill { worker: "a".into(), at_ns: 5 }),
            finished: true,
        };
        (evidence, records)
    }

    fn said(evidence: &Evidence, records: &Records) -> Vec<String> {
        judge(evidence, records).violations.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_judge_is_told_all_that_the_demo_recorded() {
        let (evidence, records) = run(&Names::plain());
        let verdict = judge(&evidence, &records);
        assert_eq!(said(&evidence, &records), Vec::<String>::new());
        let reached: Vec<_> = verdict.limits.iter().map(|kept| (kept.reached, kept.keys)).collect();
        assert_eq!(reached, [(1, None), (1, None), (1, None), (1, None), (1, Some(5))]);
        assert_eq!((verdict.workflows.count, verdict.workflows.steps), (5, 30));
        assert_eq!((verdict.recovery.held, verdict.jobs.again), (1, 1));
    }

    #[test]
    fn the_judge_finds_records_that_differ_from_what_was_submitted() {
        let (evidence, records) = run(&Names::plain());
        let caught = |tamper: &dyn Fn(&mut Record)| {
            let mut records = records.clone();
            records.get_mut("b").expect("a worker").iter_mut().for_each(tamper);
            said(&evidence, &records)
        };
        let step: &dyn Fn(&mut Record) = &|record| record.step = record.step.map(|step| step % 6 + 1);
        let key: &dyn Fn(&mut Record) = &|record| record.key = None;
        let queue: &dyn Fn(&mut Record) = &|record| record.queue = record.task.clone();
        for tamper in [step, key, queue] {
            let said = caught(tamper);
            assert!(said.iter().any(|said| said.contains("did not run as it was submitted")), "{said:?}");
        }
    }

    #[test]
    fn the_judge_is_told_when_the_time_was_up() {
        let (evidence, records) = run(&Names::plain());
        let said = said(&Evidence { finished: false, ..evidence }, &records);
        assert_eq!(said, ["seen: not all jobs had ended when the time was up"]);
    }
}
