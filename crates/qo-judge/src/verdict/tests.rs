//! A case that breaks no rule, and the same case with one thing changed: the judge must find each change.

use super::*;
use crate::case::{Change, Claimed, Job, Limit, OpenRuns, Promise, Reach};
use crate::line::{Line, What};

const MS: u64 = 1_000_000;

/// A job's part of a story, in milliseconds. Without an end it never records one.
#[derive(Clone, Copy)]
struct Part {
    job: u64,
    token: u64,
    worker: &'static str,
    from: u64,
    to: Option<u64>,
    end: End,
}

fn part(job: u64, token: u64, worker: &'static str, from: u64, to: u64) -> Part {
    Part { job, token, worker, from, to: Some(to), end: End::Done }
}

impl Part {
    fn line(&self, what: What, at: u64) -> Line {
        let job: Arc<str> = self.job.to_string().into();
        let (worker, token, planned) = (self.worker.into(), self.token, Arc::clone(&job));
        Line { what, at_ns: at * MS, worker, token, job, planned, says: says(self.job).into() }
    }
}

fn says(job: u64) -> String {
    let task = match job {
        1..=4 => "call",
        5..=7 => "sync",
        8..=10 => "order",
        _ => "charge",
    };
    task.to_owned()
}

fn diary(parts: &[Part]) -> Diary {
    let mut diary = Diary::default();
    for part in parts {
        diary.add(part.line(What::Began, part.from));
        if let Some(to) = part.to {
            diary.add(part.line(What::Ended(part.end), to));
        }
    }
    diary
}

/// Two workers. `call` may run twice, then once (from token 6 on); `sync` once for each user; `charge` once. Jobs 8 to
/// 10 are the steps of a workflow. Worker b is killed at 450 ms while it runs job 4, which begins again on a.
fn parts() -> Vec<Part> {
    vec![
        part(1, 1, "a", 0, 100),
        part(2, 2, "b", 10, 200),
        part(3, 7, "a", 210, 400),
        Part { to: None, ..part(4, 8, "b", 410, 0) },
        part(4, 20, "a", 2_400, 2_500),
        part(5, 9, "a", 0, 300),
        part(6, 10, "b", 310, 440),
        part(7, 11, "a", 0, 300),
        part(8, 12, "a", 0, 100),
        part(9, 13, "b", 110, 200),
        part(10, 14, "a", 210, 300),
        part(11, 15, "a", 0, 100),
        part(12, 16, "b", 105, 200),
    ]
}

fn limit(group: &str, limit: u32) -> Limit {
    Limit { group: group.to_owned(), limit, changes: Vec::new() }
}

fn case() -> Case {
    let job = |number: u64| {
        let mut needs = vec![("cluster".to_owned(), 1)];
        needs.extend(match number {
            1..=4 => vec![("call".to_owned(), 1)],
            5 | 6 => vec![("sync".to_owned(), 1), ("sync/ann".to_owned(), 1)],
            7 => vec![("sync".to_owned(), 1), ("sync/bob".to_owned(), 1)],
            8..=10 => Vec::new(),
            _ => vec![("queue:stripe".to_owned(), 1)],
        });
        let step = (8..=10).contains(&number).then(|| ("order-1".to_owned(), number - 7));
        (number.to_string(), Job { needs, step, says: Some(says(number)), ..Job::default() })
    };
    // No claim up to token 3 was under the new limit; every claim from token 6 on was.
    let changes = vec![Change { limit: 1, from: 4, until: 6 }];
    Case {
        lease_ns: 2_000 * MS,
        jobs: (1..=12).map(job).collect(),
        limits: vec![
            limit("cluster", 6),
            limit("queue:stripe", 1),
            Limit { changes, ..limit("call", 2) },
            limit("sync/*", 1),
        ],
        kills: [("b".to_owned(), 450 * MS)].into(),
        is_over: true,
        reach: Reach::Full,
        done_once: true,
        recovered_within_ns: Some(8_000 * MS),
        ..Case::default()
    }
}

impl Verdict {
    fn said(&self) -> Vec<String> {
        self.violations.iter().map(ToString::to_string).collect()
    }
}

/// What the judge says about changed parts; it must object.
fn caught(tamper: impl FnOnce(&mut Vec<Part>)) -> Vec<String> {
    let mut parts = parts();
    tamper(&mut parts);
    let verdict = Verdict::of(&case(), &diary(&parts));
    assert!(!verdict.holds());
    verdict.said()
}

/// What the judge says if a part is missing.
fn caught_without(index: usize) -> Vec<String> {
    caught(|parts| {
        parts.remove(index);
    })
}

/// What the judge says about the same records in a changed case.
fn caught_in(tamper: impl FnOnce(&mut Case)) -> Vec<String> {
    let mut case = case();
    tamper(&mut case);
    let verdict = Verdict::of(&case, &diary(&parts()));
    assert!(!verdict.holds());
    verdict.said()
}

#[track_caller]
fn assert_says(violations: &[String], parts: &[&str]) {
    let says = |violation: &String| parts.iter().all(|part| violation.contains(part));
    assert!(violations.iter().any(says), "{violations:#?}");
}

#[test]
fn the_judge_finds_nothing_wrong_with_true_records() {
    let verdict = Verdict::of(&case(), &diary(&parts()));
    assert_eq!(verdict.said(), Vec::<String>::new());
    let kept: Vec<_> =
        verdict.limits.iter().map(|kept| (kept.phase, kept.limit, kept.reached, kept.keys)).collect();
    let due = [
        (Phase::First, 6, 6, None),
        (Phase::First, 1, 1, None),
        (Phase::First, 2, 2, None),
        (Phase::Lowered, 1, 1, None),
        (Phase::First, 1, 1, Some(2)),
    ];
    assert_eq!(kept, due);
    assert_eq!(verdict.workflows, Workflows { count: 1, steps: 3, across_workers: 1, disorder: 0 });
    let Recovery { held, again, all_ms, .. } = verdict.recovery;
    assert_eq!((held, again, all_ms), (1, 1, 1_950));
    assert_eq!(verdict.jobs, Jobs { all: 12, acknowledged: 12, once: 11, again: 1, ..Jobs::default() });
    assert_eq!((verdict.workers, verdict.runs, verdict.takeovers), (2, 13, 1));
}

#[test]
fn the_judge_finds_one_run_too_many_in_every_kind_of_group() {
    let overlap = |job: u64, from: u64| {
        caught(|parts| parts.iter_mut().filter(|part| part.job == job).for_each(|part| part.from = from))
    };
    assert_says(&overlap(12, 99), &["queue:stripe", "2 at once where 1 may"]);
    assert_says(&overlap(6, 299), &["sync/*", "2 of sync/ann at once where 1 may"]);
    assert_says(&overlap(12, 50), &["cluster", "7 at once where 6 may"]);
    let third = caught(|parts| parts.push(part(3, 3, "a", 50, 60)));
    assert_says(&third, &["call", "3 at once where 2 may"]);
}

#[test]
fn the_judge_counts_slots_and_not_jobs() {
    let mut case = case();
    let needs = |case: &mut Case, job: &str, slots| {
        case.jobs.get_mut(job).expect("a job").needs = vec![("gpu".to_owned(), slots)];
    };
    case.limits = vec![limit("gpu", 4)];
    needs(&mut case, "1", 2);
    needs(&mut case, "2", 2);
    let fine = Verdict::of(&case, &diary(&parts()));
    assert!(fine.holds(), "{fine}");
    needs(&mut case, "2", 3);
    let over = Verdict::of(&case, &diary(&parts()));
    assert_eq!((over.over_limit, over.limits[0].peak), (1, 5), "{over}");
    assert!(over.to_string().contains("token 1 on a"), "the others are named: {over}");
}

#[test]
fn a_run_that_was_killed_at_once_counts_for_its_moment_alone() {
    // The runs of job 1 and 3 leave one slot of two.
    let mut case = case();
    case.limits = vec![limit("call", 2)];
    let moment = |at| Part { end: End::Stopped, ..part(2, 3, "a", at, at) };
    let mut fine = vec![part(1, 1, "a", 0, 100), moment(50), part(3, 4, "a", 60, 90)];
    let rest: Vec<Part> = parts().into_iter().filter(|part| part.job > 3).collect();
    fine.extend(rest);
    fine.push(part(2, 30, "a", 2_600, 2_700));
    let verdict = Verdict::of(&case, &diary(&fine));
    assert!(verdict.holds(), "{verdict}");
    fine[1] = moment(70);
    assert_eq!(Verdict::of(&case, &diary(&fine)).over_limit, 1);
}

#[test]
fn a_claim_after_a_limit_was_lowered_must_keep_to_the_new_one() {
    // Job 2 still runs: the old limit would have let job 3 begin, the new one does not.
    let early = caught(|parts| parts[2].from = 150);
    assert_says(&early, &["call", "2 at once where 1 may"]);
    // A claim from before the change may begin late, and so may one that the tokens cannot place.
    for token in [3, 5] {
        let mut late = parts();
        late[2] = Part { token, from: 150, ..late[2] };
        let verdict = Verdict::of(&Case { reach: Reach::Any, ..case() }, &diary(&late));
        assert_eq!(verdict.said(), Vec::<String>::new());
    }
}

#[test]
fn changes_that_are_known_by_their_time_hold_after_a_lease() {
    let second = 1_000 * MS;
    let change = |at: u64, limit| Change { limit, from: at * second, until: (at + 1) * second };
    let case = Case {
        jobs: [("1".to_owned(), Job { needs: vec![("gpu".to_owned(), 2)], ..Job::default() })].into(),
        limits: vec![Limit { changes: vec![change(10, 0), change(30, 4)], ..limit("gpu", 4) }],
        claimed: Claimed::Within(5 * second),
        ..Case::default()
    };
    for (from, over) in [(9_000, 0), (12_000, 0), (20_000, 1), (29_000, 1), (30_000, 0), (40_000, 0)] {
        let verdict = Verdict::of(&case, &diary(&[part(1, 1, "a", from, from + 500)]));
        assert_eq!(verdict.over_limit, over, "{from} ms: {verdict}");
    }
}

#[test]
fn the_judge_finds_a_limit_that_was_never_reached() {
    let apart = caught(|parts| (parts[1].from, parts[1].to) = (120, Some(200)));
    assert_says(&apart, &["call", "never more than 1 at once although 2 may"]);
    let idle = |case: &mut Case| case.limits.push(limit("queue:mail", 4));
    assert_says(&caught_in(idle), &["queue:mail", "never more than 0 at once"]);
    let unused = caught_in(|case| (case.reach, _) = (Reach::Used, idle(case)));
    assert_says(&unused, &["queue:mail", "no job took a slot"]);
    assert_eq!(unused.len(), 1, "a slot of each other limit was used: {unused:?}");
}

#[test]
fn the_judge_finds_a_group_that_stands_still_after_the_last_fault() {
    let healed = |ms: u64| {
        let case = Case { healed: Some((300 * MS, ms * MS)), ..case() };
        Verdict::of(&case, &diary(&parts()))
    };
    // Job 4 begins again 1,950 ms after its worker was killed.
    assert!(healed(2_000).holds());
    assert_eq!(healed(2_000).idle_ns, 1_950 * MS);
    assert_says(&healed(1_900).said(), &["call", "stood still for 1950 ms"]);
}

#[test]
fn the_judge_finds_a_step_that_begins_too_early() {
    let early = caught(|parts| parts[9].from = 90);
    assert_says(&early, &["order-1", "step 2 began at 0.090 s, before step 1"]);
    assert_says(&caught(|parts| parts[10].from = 105), &["order-1", "step 3", "before step 2"]);
    let swapped = caught(|parts| (parts[9].job, parts[10].job) = (10, 9));
    assert_says(&swapped, &["order-1", "step 3", "before step 2"]);
    let undone = caught(|parts| parts[9].end = End::Retry);
    assert_says(&undone, &["order-1", "step 3", "before step 2 was over"]);
    let never = caught_without(9);
    assert_says(&never, &["order-1", "step 3", "before step 2 was over"]);
}

#[test]
fn the_judge_finds_a_lost_job() {
    assert_says(&caught_without(5), &["jobs lost", "job 5", "never done"]);
    assert_says(&caught(|parts| parts[5].to = None), &["job 5 began on a and never ended"]);
    assert_says(&caught(|parts| parts[5].end = End::Stopped), &["jobs lost", "job 5"]);
    assert_says(&caught_without(4), &["kill -9", "1 jobs of b never began again"]);
    let failed = Verdict::of(
        &case(),
        &diary(&{
            let mut parts = parts();
            parts[5].end = End::Failed;
            parts
        }),
    );
    assert!(failed.holds(), "a job that failed for good is not lost: {failed}");
}

#[test]
fn a_job_whose_answer_was_lost_must_end_only_if_it_begins() {
    let mut case = case();
    let mut promise = |job: &str, promise| case.jobs.get_mut(job).expect("a job").promise = promise;
    promise("11", Promise::EndsIfBegun);
    promise("12", Promise::EndsIfBegun);
    case.limits.clear();
    let mut parts: Vec<Part> = parts().into_iter().filter(|part| part.job < 12).collect();
    let verdict = Verdict::of(&case, &diary(&parts));
    assert_eq!((verdict.said(), verdict.jobs.acknowledged), (Vec::new(), 10));
    parts.push(Part { end: End::Retry, ..part(12, 40, "a", 105, 200) });
    assert_says(&Verdict::of(&case, &diary(&parts)).said(), &["jobs lost", "job 12"]);
    case.is_over = false;
    assert!(Verdict::of(&case, &diary(&parts)).holds(), "it may still end");
    case.jobs.get_mut("12").expect("a job").promise = Promise::Nothing;
    case.is_over = true;
    assert!(Verdict::of(&case, &diary(&parts)).holds(), "its end does not matter");
}

#[test]
fn the_judge_finds_a_job_that_was_refused_and_ran() {
    let refused = caught_in(|case| case.jobs.get_mut("11").expect("a job").promise = Promise::NeverBegins);
    assert_says(&refused, &["job 11 was refused and ran"]);
}

#[test]
fn the_judge_finds_a_job_that_is_done_twice_or_by_two_at_once() {
    let again = caught(|parts| parts.push(part(1, 30, "a", 2_600, 2_700)));
    assert_says(&again, &["was done again although it had been done"]);
    let both = caught(|parts| parts.push(part(1, 30, "b", 50, 90)));
    assert_says(&both, &["one owner", "ran on a and on b at once"]);
    let stale = caught(|parts| parts[4].token = 4);
    assert_says(&stale, &["fence", "its token did not grow"]);
    let same = caught(|parts| parts[1].token = 1);
    assert_says(&same, &["records: token 1 owns"]);
    let stranger = caught(|parts| parts.push(part(99, 30, "a", 2_600, 2_700)));
    assert_says(&stranger, &["job 99, which was never submitted"]);
}

#[test]
fn the_judge_finds_a_job_that_the_store_holds_twice() {
    let lines = |diary: &mut Diary| {
        for (word, at) in [("began", 2_600), ("done", 2_700)] {
            diary.add_text(&format!("{word} {} a 30 other-id 11 charge", at * MS));
        }
    };
    let mut twice = diary(&parts());
    lines(&mut twice);
    let verdict = Verdict::of(&case(), &twice);
    assert_says(&verdict.said(), &["job 11 was submitted once and is there twice"]);
    assert_eq!(verdict.jobs.there_twice, 1);
    let mut case = case();
    case.jobs.get_mut("11").expect("a job").is_many = true;
    assert!(Verdict::of(&case, &twice).holds(), "a schedule makes many");
}

#[test]
fn the_judge_finds_a_job_that_ran_as_another() {
    let other = caught_in(|case| case.jobs.get_mut("11").expect("a job").says = Some("mail".to_owned()));
    assert_says(&other, &["job 11 did not run as it was submitted", "charge"]);
}

#[test]
fn a_job_done_just_before_its_worker_was_killed_may_be_done_again() {
    let mut parts = parts();
    parts[3].to = Some(449);
    parts.push(Part { to: None, ..part(12, 18, "b", 440, 0) });
    parts.push(part(12, 19, "a", 2_600, 2_700));
    let verdict = Verdict::of(&case(), &diary(&parts));
    assert_eq!((verdict.said(), verdict.jobs.again), (Vec::new(), 2));
    assert_eq!((verdict.recovery.held, verdict.recovery.unsettled), (3, 2));
}

#[test]
fn the_judge_finds_a_kill_that_proves_nothing_and_a_slow_recovery() {
    let idle = caught_without(3);
    assert_says(&idle, &["b held no job"]);
    let late = caught(|parts| (parts[4].from, parts[4].to) = (9_000, Some(9_100)));
    assert_says(&late, &["kill -9", "came back after 8550 ms, not 8000 ms"]);
    assert_says(&caught_in(|case| case.kills.clear()), &["no worker was killed"]);
}

#[test]
fn a_job_that_its_worker_gave_back_is_not_done_twice() {
    let mut parts = parts();
    parts[11].end = End::Stopped;
    parts.push(part(11, 40, "a", 2_600, 2_700));
    let verdict = Verdict::of(&case(), &diary(&parts));
    assert_eq!((verdict.said(), verdict.jobs.given_back), (Vec::new(), 1));
}

#[test]
fn runs_of_a_stopped_worker_count_until_it_was_stopped() {
    // Worker c is stopped at 2,650 ms while it runs job 1, which a takes over. Both record that they are done.
    let mut parts = parts();
    parts[0].end = End::Retry;
    parts.push(part(1, 30, "c", 2_600, 6_000));
    parts.push(part(1, 31, "a", 5_000, 5_500));
    // And what c claims after it went on counts.
    parts.push(Part { end: End::Stopped, ..part(11, 32, "c", 6_100, 6_200) });
    parts.push(part(11, 33, "a", 6_300, 6_400));
    let stop =
        Stop { worker: "c".to_owned(), at_ns: 2_650 * MS, until_ns: Some(5_900 * MS), writes: Some(1) };
    let judge = |stops: &[Stop], parts: &[Part]| {
        Verdict::of(&Case { stops: stops.to_vec(), done_once: false, ..case() }, &diary(parts))
    };
    assert_says(&judge(&[], &parts).said(), &["one owner", "ran on c and on a at once"]);
    let fine = judge(std::slice::from_ref(&stop), &parts);
    assert_eq!((fine.said(), fine.written_after_stops), (Vec::new(), 1));
    let mute = Stop { writes: Some(0), ..stop.clone() };
    assert_says(&judge(&[mute], &parts).said(), &["stop: runs of c wrote 1 lines after it was stopped"]);
    parts.push(part(12, 34, "c", 6_150, 6_300));
    assert_says(
        &judge(std::slice::from_ref(&stop), &parts).said(),
        &["queue:stripe", "2 at once where 1 may"],
    );
    let forever = Stop { until_ns: None, writes: None, ..stop };
    assert!(judge(&[forever], &parts).holds(), "none of its later runs count");
}

#[test]
fn runs_that_beat_need_no_dates_of_kills() {
    let mut diary = Diary::default();
    for text in ["began 0 a 1 id-1 1 ", "beat 50 a 1 id-1 1 ", "began 60 b 2 id-1 1 ", "done 90 b 2 id-1 1 "]
    {
        diary.add_text(text);
    }
    let jobs = [("1".to_owned(), Job::default())].into();
    let mut case = Case { jobs, open: OpenRuns::EndWithTheirLastLine, is_over: true, ..Case::default() };
    assert!(Verdict::of(&case, &diary).holds());
    case.open = OpenRuns::GoOn;
    assert_says(&Verdict::of(&case, &diary).said(), &["one owner"]);
}

#[test]
fn the_judge_finds_lines_that_cannot_be() {
    for (text, complaint) in [
        ("done 9000000000 a 99 5 5 sync", "never began there"),
        ("done 9000000000 b 9 5 5 sync", "never began there"),
        ("beat 9000000000 a 9 5 5 sync", "goes on after its end"),
        ("slept 9000000000", "no line of a diary: slept"),
    ] {
        let mut diary = diary(&parts());
        diary.add_text(text);
        assert_says(&Verdict::of(&case(), &diary).said(), &["records", complaint]);
    }
}

#[test]
fn the_judge_passes_on_what_others_saw() {
    let said =
        caught_in(|case| (case.stuck, case.complaints) = (vec!["3".into()], vec!["a slot is held".into()]));
    assert_says(&said, &["jobs stuck", "job 3 had not ended"]);
    assert_says(&said, &["seen: a slot is held"]);
}

#[test]
fn a_pen_writes_what_a_diary_reads() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("diary");
    let pen = crate::Pen::open(&path, "a").expect("a pen");
    let mut running = pen.begin(1, "id", "1", "call").expect("written");
    running.beat().expect("written");
    running.end(End::Done).expect("written");
    drop(pen.begin(2, "id", "1", "call").expect("written"));
    // A kill in the middle of a line.
    let text = std::fs::read_to_string(&path).expect("a diary");
    std::fs::write(&path, format!("{text}began 17 a 3 i")).expect("written");
    let mut diary = Diary::default();
    diary.add_file(&path).expect("read");
    let runs: Vec<_> = diary.runs().map(|run| (run.token, run.end, run.beats.len(), &*run.says)).collect();
    assert_eq!(runs, [(1, End::Done, 1, "call"), (2, End::Stopped, 0, "call")]);
    assert_eq!(diary.contradictions(), Vec::<String>::new());
}
