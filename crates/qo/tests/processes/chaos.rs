//! Four worker processes, one of them killed every 300 ms; what the jobs themselves wrote down is the judge.

use crate::stage::{Process, Stage, now_us};
use qo::core::{JobFilter, JobState, NewJob};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;
use tokio::time::{interval, timeout};

const JOBS: u64 = 4_000;
const KEYS: u64 = 60;
const LIMIT: usize = 12;
const KILLS: usize = 40;
const LEASE_MS: u64 = 1_000;

/// A handler ran, from when to when.
#[derive(Debug)]
struct Run {
    key: String,
    from: u64,
    to: u64,
}

pub async fn workers_killed_every_300_ms_exceed_nothing_lose_nothing_and_leave_nothing_stuck() {
    let stage = Stage::new().await;
    let set = async |group: &str, limit| {
        stage.store.set_limit(group.parse().expect("a group"), limit).await.expect("set");
    };
    set("chaos", LIMIT as u32).await;
    set("chaos/*", 1).await;
    let job = |number: u64| -> NewJob {
        let key = format!("k{}", number % KEYS);
        stage.client.submit("chaos", &()).key(&key).max_attempts(500).into_job().expect("a job")
    };
    stage.client.submit_many((0..JOBS).map(job).collect()).await.expect("accepted");

    let mut workers: Vec<Process> = (0..4).map(|_| stage.worker(LEASE_MS)).collect();
    let mut killed = BTreeMap::new();
    let mut every = interval(Duration::from_millis(300));
    every.tick().await;
    while killed.len() < KILLS {
        every.tick().await;
        let victim = workers.remove(0);
        let pid = victim.id();
        victim.signal(Signal::KILL);
        victim.end().await;
        // Dead by now: whatever it was doing ended before.
        killed.insert(pid, now_us());
        workers.push(stage.worker(LEASE_MS));
    }
    let all_done = async {
        let mut every = interval(Duration::from_millis(50));
        let done = JobFilter { states: vec![JobState::Succeeded], ..JobFilter::default() };
        loop {
            every.tick().await;
            let queues = stage.store.queues().await.expect("it answers");
            let left: u64 = queues.iter().map(|queue| queue.running + queue.due + queue.scheduled).sum();
            if left == 0 {
                return count(&stage, &done).await;
            }
        }
    };
    let done = timeout(Duration::from_secs(120), all_done).await.expect("nothing is stuck");
    assert_eq!(done, JOBS, "{} jobs are lost", JOBS - done);

    let runs = diaries(&stage, &killed);
    let highest = most_at_once(runs.iter());
    assert!(highest <= LIMIT, "{highest} at once, the limit is {LIMIT}");
    assert_eq!(highest, LIMIT, "the limit was never reached");
    for number in 0..KEYS {
        let key = format!("k{number}");
        let most = most_at_once(runs.iter().filter(|run| run.key == key));
        assert_eq!(most, 1, "{most} of {key} at once");
    }
    assert!(runs.len() as u64 > JOBS, "nobody was killed at work");
    let group = stage.store.group("chaos".parse().expect("a group")).await.expect("it has a limit");
    assert_eq!(group.status.used, 0, "a slot is held by nobody");
}

async fn count(stage: &Stage, filter: &JobFilter) -> u64 {
    let (mut after, mut jobs) = (None, 0);
    loop {
        let page = stage.store.jobs(filter.clone(), after, 1_000).await.expect("it answers");
        jobs += page.jobs.len() as u64;
        after = page.next;
        if after.is_none() {
            return jobs;
        }
    }
}

/// What the handlers wrote: a line when one starts, a line when it ends. One that was killed ended with its process.
fn diaries(stage: &Stage, killed: &BTreeMap<u32, u64>) -> Vec<Run> {
    let mut runs = Vec::new();
    for entry in fs::read_dir(stage.path("")).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let Some(pid) = name.strip_prefix("chaos-").and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        let mut open = BTreeMap::new();
        let text = fs::read_to_string(&path).expect("a diary");
        // The last line may have been cut short by the kill.
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [what, at, token, key] = words[..] else { panic!("a strange line: {line}") };
            let at: u64 = at.parse().expect("a time");
            if what == "start" {
                open.insert(token.to_owned(), Run { key: key.to_owned(), from: at, to: u64::MAX });
            } else if let Some(run) = open.remove(token) {
                runs.push(Run { to: at, ..run });
            }
        }
        let died = killed.get(&pid).copied().unwrap_or(u64::MAX);
        runs.extend(open.into_values().map(|run| Run { to: died, ..run }));
    }
    runs
}

fn most_at_once<'a>(runs: impl Iterator<Item = &'a Run>) -> usize {
    // At the same moment, ends come before starts: an end that was noted is over.
    let mut moments: Vec<(u64, i32)> = runs.flat_map(|run| [(run.from, 1), (run.to, -1)]).collect();
    moments.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, change) in moments {
        now += change;
        most = most.max(now);
    }
    usize::try_from(most).expect("more starts than ends")
}
