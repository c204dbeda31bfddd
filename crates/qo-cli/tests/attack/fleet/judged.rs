//! Diaries with a broken rule: the judge must find it.

use super::diary::Book;
use super::ledger::{Change, Excuse, Ledger};
use super::plan::Job;
use super::verdict::Verdict;
use serde_json::Value;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(3);
const SECOND: u64 = 1_000_000;

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
        book.add(&format!("start {} {worker} {job} id-{job} 1 {token} free -", at(from)));
        book.add(&format!("done {} {worker} {job} id-{job} 1 {token} free -", at(to)));
    }
    book
}

fn judge(book: &Book, ledger: &Ledger) -> Verdict {
    Verdict::of(book, ledger, LEASE, false)
}

#[test]
fn the_judge_finds_a_limit_that_was_exceeded() {
    let fine = judge(&book(&[(1, 1, 1, 0, 5), (2, 2, 1, 0, 5), (3, 3, 1, 5, 9)]), &ledger());
    assert!(fine.holds(), "{fine}");
    assert_eq!(fine.peaks["gpu"], 4);
    let over = judge(&book(&[(1, 1, 1, 0, 5), (2, 2, 1, 0, 5), (3, 3, 2, 4, 9)]), &ledger());
    assert_eq!((over.over_limit, over.peaks["gpu"]), (1, 6), "{over}");
    assert!(over.to_string().contains("gpu: 6 slots of 4"), "{over}");
}

#[test]
fn a_run_that_was_killed_at_once_counts_for_its_moment_alone() {
    let once = [(1, 1, 1, 0, 9), (2, 2, 1, 1, 1), (3, 3, 1, 2, 5), (4, 4, 1, 5, 9)];
    let fine = judge(&book(&once), &ledger());
    assert!(fine.holds(), "{fine}");
    let over = judge(&book(&[&once[..], &[(5, 5, 1, 6, 6)]].concat()), &ledger());
    assert_eq!(over.over_limit, 1, "{over}");
}

#[test]
fn the_judge_finds_a_start_under_a_limit_that_was_lowered() {
    let mut ledger = ledger();
    let set = |asked: u64, limit| Change {
        asked_us: (asked + 60) * SECOND,
        acknowledged_us: (asked + 61) * SECOND,
        limit,
    };
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
    ledger.excuses.push(Excuse { worker: 1, since_us: 62 * SECOND });
    assert!(judge(&runs, &ledger).holds());
}

#[test]
fn the_judge_finds_steps_out_of_order_and_jobs_that_are_there_twice() {
    let mut ledger = ledger();
    for number in [1, 2] {
        ledger.jobs.get_mut(&number).expect("a job").workflow = Some("flow".to_owned());
    }
    assert!(judge(&book(&[(1, 1, 1, 0, 5), (2, 2, 1, 5, 6)]), &ledger).holds());
    assert_eq!(judge(&book(&[(1, 1, 1, 0, 5), (2, 2, 1, 4, 6)]), &ledger).disorder, 1);
    let mut twice = book(&[(3, 1, 1, 0, 5)]);
    twice.add("start 70000000 1 3 other 1 2 free -");
    assert_eq!(judge(&twice, &ledger).twice, 1);
    ledger.refused.insert(4);
    assert!(!judge(&book(&[(4, 1, 1, 0, 1)]), &ledger).holds(), "it was refused");
}

#[test]
fn the_judge_finds_what_is_lost_and_lines_that_cannot_be() {
    let mut ledger = ledger();
    ledger.acknowledged = [1, 2].into();
    let mut half = book(&[(1, 1, 1, 0, 5)]);
    assert_eq!(Verdict::of(&half, &ledger, LEASE, true).lost, 1, "the second never ran");
    half.add("start 70000000 1 2 id-2 1 2 free -");
    assert_eq!(Verdict::of(&half, &ledger, LEASE, true).lost, 1, "the second never ended");
    half.add("done 71000000 1 2 id-2 1 2 free -");
    assert!(Verdict::of(&half, &ledger, LEASE, true).holds());
    half.add("beat 72000000 1 2 id-2 1 2 free -");
    assert_eq!(half.strange.len(), 1, "it lives after its end");
}
