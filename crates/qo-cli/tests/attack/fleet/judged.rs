//! Diaries of an attack with a broken rule: the judge is told enough to find it.

use super::diary::Book;
use super::ledger::Ledger;
use super::plan::{Job, SCRIPTS};
use qo_judge::{Change, Reach, Stop, Verdict};
use serde_json::Value;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(3);
const SECOND: u64 = 1_000_000_000;

/// A ledger with jobs 1 to 9: of group `gpu`, two slots of four each.
fn ledger() -> Ledger {
    let mut ledger = Ledger::default();
    for number in 1..=9 {
        let needs = vec![("gpu".to_owned(), 2)];
        ledger.jobs.insert(number, Job { number, needs, workflow: None, line: Value::Null });
        ledger.acknowledged.insert(number);
    }
    ledger
}

/// A diary with runs: job, token, worker, from, to, in seconds after the first minute.
fn book(runs: &[(u64, u64, u32, u64, u64)]) -> Book {
    let mut book = Book::default();
    for (job, token, worker, from, to) in runs {
        let at = |second: &u64| (second + 60) * SECOND;
        book.add(&format!("began {} {worker} {token} id-{job} {job} free -", at(from)));
        book.add(&format!("done {} {worker} {token} id-{job} {job} free -", at(to)));
    }
    book
}

fn judge(book: &Book, ledger: &Ledger) -> Verdict {
    Verdict::of(&ledger.case(LEASE, false), &book.diary)
}

/// As when all is over, except that not every limit is used.
fn judge_ends(book: &Book, ledger: &Ledger) -> Verdict {
    Verdict::of(&qo_judge::Case { reach: Reach::Any, ..ledger.case(LEASE, true) }, &book.diary)
}

fn peak(verdict: &Verdict, group: &str) -> u32 {
    verdict.limits.iter().filter(|kept| kept.group == group).map(|kept| kept.peak).max().expect("a limit")
}

#[test]
fn the_judge_finds_a_limit_that_was_exceeded() {
    let fine = judge(&book(&[(1, 1, 1, 0, 5), (2, 2, 1, 0, 5), (3, 3, 1, 5, 9)]), &ledger());
    assert!(fine.holds(), "{fine}");
    assert_eq!(peak(&fine, "gpu"), 4);
    let over = judge(&book(&[(1, 1, 1, 0, 5), (2, 2, 1, 0, 5), (3, 3, 2, 4, 9)]), &ledger());
    assert_eq!((over.over_limit, peak(&over, "gpu")), (1, 6), "{over}");
    assert!(over.to_string().contains("gpu: 6 at once where 4 may"), "{over}");
}

#[test]
fn the_judge_finds_a_start_under_a_limit_that_was_lowered() {
    let mut ledger = ledger();
    let set = |asked: u64, limit| Change { from: (asked + 60) * SECOND, until: (asked + 61) * SECOND, limit };
    ledger.changes.insert("gpu".to_owned(), vec![set(10, 0), set(30, 4)]);
    // The claim came before the change, the start a little later.
    let fine = judge(&book(&[(1, 1, 1, 12, 13), (2, 2, 1, 30, 31)]), &ledger);
    assert!(fine.holds(), "{fine}");
    let over = judge(&book(&[(1, 1, 1, 20, 21)]), &ledger);
    assert_eq!(over.over_limit, 1, "{over}");
}

#[test]
fn the_judge_finds_attempts_that_overlap_unless_all_stood_still() {
    let runs = book(&[(1, 1, 1, 0, 5), (1, 2, 2, 4, 9)]);
    let mut ledger = ledger();
    assert_eq!(judge(&runs, &ledger).overlaps, 1);
    ledger.stops.push(Stop { worker: "1".to_owned(), at_ns: 62 * SECOND, until_ns: None, writes: None });
    assert!(judge(&runs, &ledger).holds());
}

#[test]
fn the_judge_finds_steps_out_of_order_and_jobs_that_are_there_twice() {
    let mut ledger = ledger();
    for number in [1, 2] {
        ledger.jobs.get_mut(&number).expect("a job").workflow = Some("flow".to_owned());
    }
    assert!(judge(&book(&[(1, 1, 1, 0, 5), (2, 2, 1, 5, 6)]), &ledger).holds());
    assert_eq!(judge(&book(&[(1, 1, 1, 0, 5), (2, 2, 1, 4, 6)]), &ledger).workflows.disorder, 1);
    let mut twice = book(&[(3, 1, 1, 0, 5)]);
    twice.add("began 70000000000 1 2 other 3 free -");
    assert_eq!(judge(&twice, &ledger).jobs.there_twice, 1);
    ledger.refused.insert(4);
    assert!(!judge(&book(&[(4, 1, 1, 0, 1)]), &ledger).holds(), "it was refused");
}

#[test]
fn the_judge_finds_what_is_lost_and_lines_that_cannot_be() {
    let mut ledger = ledger();
    ledger.acknowledged = [1, 2].into();
    let mut half = book(&[(1, 1, 1, 0, 5)]);
    assert_eq!(judge_ends(&half, &ledger).jobs.lost, 1, "the second never ran");
    half.add("began 70000000000 1 2 id-2 2 free -");
    assert_eq!(judge_ends(&half, &ledger).jobs.lost, 1, "the second never ended");
    half.add("done 71000000000 1 2 id-2 2 free -");
    assert!(judge_ends(&half, &ledger).holds());
    assert_eq!(half.done, [1, 2].into());
    let unused = Verdict::of(&ledger.case(LEASE, true), &half.diary);
    assert!(unused.to_string().contains("db: no job took a slot"), "{unused}");
    half.add("beat 72000000000 1 2 id-2 2 free -");
    assert_eq!(half.diary.contradictions().len(), 1, "it lives after its end");
}

#[test]
fn a_killed_script_and_a_job_of_a_schedule_need_not_end() {
    let mut ledger = ledger();
    ledger.acknowledged.clear();
    let script = Job { number: SCRIPTS + 1, needs: Vec::new(), workflow: None, line: Value::Null };
    ledger.jobs.insert(script.number, script);
    let mut half = Book::default();
    half.add(&format!("began 1 0 1 script {} - -", SCRIPTS + 1));
    half.add("began 2 1 2 tick-1 0 tick tick");
    half.add("began 3 1 3 tick-2 0 tick tick");
    let verdict = judge_ends(&half, &ledger);
    assert!(verdict.holds(), "{verdict}");
    half.add("began 4 1 4 id-1 1 free -");
    assert_eq!(judge_ends(&half, &ledger).jobs.lost, 1, "its answer was lost, and it began");
}
