//! The figures of the rule book, printed as a table: `make bench`.
//!
//! A ratio compares two runs inside this one process, taken in turns: the median of several pairs. No test asserts any
//! of these figures.
#![allow(clippy::print_stdout, reason = "printing the table is what this program is for")]

use futures::executor::block_on;
use qo_core::{Claim, Command, Configuration, Exchange, FenceToken, JobId, Json, Key, MemoryStore, Name};
use qo_core::{NewJob, NewSession, Outcome, Prefetch, SessionId, Settle, Start, State, Store, SystemClock};
use qo_core::{TaskOptions, Time, decide};
use std::time::{Duration, Instant};
use uuid::Uuid;

const BATCH: u32 = 100;
const ROUNDS: usize = 7;

fn main() {
    // First, while the process is still small.
    let memory_own_key = memory_per_pending_job(|i| job(i, "work").keyed(&format!("{i:016}")), false);
    let memory_own_key_limited = memory_per_pending_job(|i| job(i, "work").keyed(&format!("{i:016}")), true);
    let memory_shared_keys =
        memory_per_pending_job(|i| job(i, "work").keyed(&format!("{:016}", i % 1_000)), true);

    println!("\n{:<78} {:>14}   {:<14}", "figure", "measured", "bar");
    println!("{}", "-".repeat(110));
    throughput();
    backlog_size();
    parked();
    all_limits();
    workflows();
    prefetch();
    row(
        "memory per pending job, a 16-byte key of its own, no limit",
        format!("{memory_own_key} B"),
        "<= 400 B",
    );
    row("  the same with a limit on every key", format!("{memory_own_key_limited} B"), "<= 400 B");
    row("  the same with 1,000 keys shared by all jobs", format!("{memory_shared_keys} B"), "<= 400 B");
    speculation();
}

fn row(figure: &str, measured: String, bar: &str) {
    println!("{figure:<78} {measured:>14}   {bar:<14}");
}

fn throughput() {
    let rate = best(|| {
        let mut bench = Bench::new(&["work"]);
        bench.limit("work", 1_000);
        bench.submit(200_000, |i| job(i, "work"));
        bench.drain(200_000)
    });
    row(
        "claim + settle, batches of 100, a task limit on every job",
        per_second(200_000, rate),
        ">= 300,000/s",
    );
}

fn backlog_size() {
    let ratio = relative(
        || {
            let mut bench = Bench::new(&["work"]);
            bench.limit("work", 1_000);
            (0..100).map(|_| bench.refill(1_000)).sum()
        },
        || {
            let mut bench = Bench::new(&["work"]);
            bench.limit("work", 1_000);
            bench.submit(1_000_000, |i| job(i, "work"));
            bench.drain(100_000)
        },
        3,
    );
    row("cost of a claim with 1,000,000 pending, relative to 1,000", format!("{ratio:.2} x"), "<= 2 x");
}

fn parked() {
    const JOBS: u64 = 100_000;
    let ahead = |i| NewJob { priority: -1, ..job(i, "work") };
    type Setup<'a> = (&'a str, &'a dyn Fn(&mut Bench));
    let step = |i: u64| NewJob { workflow: Some(name(&format!("flow{i}"))), ..ahead(i) };
    let setups: [Setup<'_>; 6] = [
        ("behind 1,000 full groups", &|bench| {
            let group = |i: u64| format!("full{}", i % 1_000);
            for i in 0..1_000 {
                bench.limit(&group(i), 1);
            }
            bench.submit(1_000, |i| NewJob { group: Some(name(&group(i))), ..ahead(i) });
            bench.hold(1_000);
            bench.submit(JOBS, |i| NewJob { group: Some(name(&group(i))), ..ahead(i) });
        }),
        ("in 1,000 full queues", &|bench| {
            let queue = |i: u64| name(&format!("full{}", i % 1_000));
            for i in 0..1_000 {
                bench.limit(&format!("queue:{}", queue(i)), 1);
            }
            bench.submit(1_000, |i| NewJob { queue: queue(i), group: Some(name("queued")), ..ahead(i) });
            bench.hold(1_000);
            bench.submit(JOBS, |i| NewJob { queue: queue(i), group: Some(name("queued")), ..ahead(i) });
        }),
        ("of a task the worker lacks", &|bench| {
            bench.submit(JOBS, |i| NewJob { priority: -1, ..job(i, "lacking") })
        }),
        ("for tomorrow", &|bench| {
            let tomorrow = block_on(bench.store.now()).expect("time").plus_ms(86_400_000);
            bench.submit(JOBS, |i| NewJob { run_at: Some(tomorrow), ..ahead(i) });
        }),
        ("in 100,000 halted workflows", &|bench| {
            bench.submit(JOBS, step);
            bench.fail(JOBS);
            bench.submit(JOBS, step);
        }),
        ("in 100,000 workflows that wait for a first step", &|bench| {
            let tomorrow = block_on(bench.store.now()).expect("time").plus_ms(86_400_000);
            bench.submit(JOBS, |i| NewJob { run_at: Some(tomorrow), ..step(i) });
            bench.submit(JOBS, step);
        }),
    ];
    for (what, setup) in setups {
        let run = |parked: bool| {
            let mut bench = Bench::new(&["work"]);
            bench.limit("work", 1_000);
            if parked {
                setup(&mut bench);
            }
            // As many as in the first figure. With fewer the share is lower: see docs/adr/0003.
            bench.submit(200_000, |i| job(i, "work"));
            bench.drain(200_000)
        };
        let share = 100.0 / relative(|| run(false), || run(true), 2 * ROUNDS);
        row(&format!("rate with 100,000 jobs parked ahead {what}"), format!("{share:.0} %"), ">= 95 %");
    }
}

fn all_limits() {
    const JOBS: u64 = 100_000;
    let keyed = |i: u64| job(i, "work").keyed(&format!("customer{:08}", i % 1_000));
    let limited = || {
        let mut bench = Bench::new(&["work"]);
        for (group, limit) in [("cluster", 5_000), ("queue:default", 4_000), ("work", 3_000), ("work/*", 50)]
        {
            bench.limit(group, limit);
        }
        bench.submit(JOBS, keyed);
        bench.drain(JOBS)
    };
    let run = |make: &dyn Fn(u64) -> NewJob| {
        let mut bench = Bench::new(&["work"]);
        bench.submit(JOBS, make);
        bench.drain(JOBS)
    };
    let share = 100.0 / relative(|| run(&keyed), limited, ROUNDS);
    row(
        "rate with cluster + queue + task + key limits, relative to the same jobs without",
        format!("{share:.0} %"),
        ">= 60 %",
    );
    let share = 100.0 / relative(|| run(&|i| job(i, "work")), limited, ROUNDS);
    row("  relative to jobs without limits and without keys", format!("{share:.0} %"), "");
}

fn workflows() {
    const WORKFLOWS: u64 = 10_000;
    const STEPS: u64 = 10;
    let took = best(|| {
        let mut bench = Bench::new(&["work"]);
        for _ in 0..STEPS {
            bench.submit(WORKFLOWS, |i| NewJob {
                workflow: Some(name(&format!("flow{i}"))),
                ..job(i, "work")
            });
        }
        bench.drain(WORKFLOWS * STEPS)
    });
    row(
        "steps of 10,000 workflows of 10 steps each, nothing else",
        per_second(WORKFLOWS * STEPS, took),
        ">= 100,000/s",
    );
}

/// Two workers that could run 200 jobs at once, and a limit of 150.
fn prefetch() {
    const JOBS: u64 = 100_000;
    let run = |prefetch: Option<Prefetch>| {
        let mut bench = Bench::new(&["work"]);
        bench.limit("work", 150);
        bench.submit(JOBS, |i| job(i, "work"));
        let mut workers = [1, 2].map(|id| Worker { id, number: 0, running: Vec::new(), buffer: Vec::new() });
        let (start, mut done, mut exchanges) = (Instant::now(), 0, 0);
        while done < JOBS {
            for worker in &mut workers {
                done += worker.exchange(&bench.store, prefetch);
                exchanges += 1;
            }
        }
        (start.elapsed(), exchanges)
    };
    let ahead = Some(Prefetch { buffer: 50, lease_ms: 60_000 });
    let share = 100.0 / relative(|| run(None).0, || run(ahead).0, 2 * ROUNDS);
    row("rate with prefetch, relative to without, a limit that binds", format!("{share:.0} %"), ">= 100 %");
    let share = 100.0 * f64::from(run(None).1) / f64::from(run(ahead).1);
    row("  the same, jobs per exchange", format!("{share:.0} %"), ">= 100 %");
}

/// A worker with 100 permits, each of whose jobs ends before the next exchange.
struct Worker {
    id: u64,
    number: u64,
    running: Vec<Settle>,
    buffer: Vec<(JobId, FenceToken, Json)>,
}

impl Worker {
    /// Settles what runs, starts what is claimed, claims more; returns how many were settled.
    fn exchange(&mut self, store: &MemoryStore, prefetch: Option<Prefetch>) -> u64 {
        self.number += 1;
        let settles = std::mem::take(&mut self.running);
        let buffer = std::mem::take(&mut self.buffer);
        let starts = buffer.iter().map(|&(job, token, _)| Start { job, token }).collect::<Vec<_>>();
        let done = settles.len() as u64;
        let max = BATCH - starts.len() as u32;
        let sent = Exchange { starts, ..exchange(self.id, self.number, settles, max) };
        let sent = Exchange { claim: Claim { prefetch, ..sent.claim }, ..sent };
        let reply = block_on(store.exchange(sent)).expect("exchanges");
        self.running = reply.claimed.iter().map(succeed).collect();
        for (started, (job, _, payload)) in reply.started.iter().zip(buffer) {
            if let Some(run) = started.as_ref().ok().and_then(|started| started.run) {
                let outcome = Outcome::Succeed { output: payload };
                self.running.push(Settle { job, token: run.token, outcome });
            }
        }
        let claimed = reply.prefetched.into_iter();
        self.buffer = claimed.map(|ahead| (ahead.job.id, ahead.job.token, ahead.job.payload)).collect();
        done
    }
}

/// The cost of a speculation, and of taking it back.
fn speculation() {
    const JOBS: u64 = 50_000;
    let run = |speculate: bool, take_back: bool| {
        let (mut state, now) = (State::new(), Time::from_millis(1_000));
        let mut decide_now = |command: &Command| {
            let start = Instant::now();
            if speculate {
                state.speculate();
                let decision = decide(&mut state, now, command).expect("decides");
                if take_back {
                    state.take_back();
                    decide(&mut state, now, command).expect("decides again");
                } else {
                    state.keep();
                }
                return (start.elapsed(), decision.answer);
            }
            let answer = decide(&mut state, now, command).expect("decides").answer;
            (start.elapsed(), answer)
        };
        decide_now(&Command::OpenSession(session(1, &["work"])));
        for from in (0..JOBS).step_by(10_000) {
            decide_now(&Command::Submit((from..from + 10_000).map(|i| job(i, "work")).collect()));
        }
        let (mut spent, mut settles) = (Duration::ZERO, Vec::new());
        for number in 1..=JOBS / u64::from(BATCH) {
            let command = Command::Exchange(exchange(1, number, std::mem::take(&mut settles), BATCH));
            let (elapsed, answer) = decide_now(&command);
            spent += elapsed;
            let qo_core::Answer::Exchanged(reply) = answer else { unreachable!("an exchange is answered") };
            settles = reply.claimed.iter().map(succeed).collect();
        }
        spent
    };
    let cost = relative(|| run(false, false), || run(true, false), ROUNDS);
    row("speculation: decide and keep, relative to decide", format!("{cost:.2} x"), "");
    let cost = relative(|| run(false, false), || run(true, true), ROUNDS);
    row("speculation: decide, take back, decide again, relative to decide", format!("{cost:.2} x"), "");
}

fn memory_per_pending_job(make: impl Fn(u64) -> NewJob, limited: bool) -> u64 {
    const JOBS: u64 = 1_000_000;
    let mut bench = Bench::new(&["work"]);
    if limited {
        bench.limit("work/*", 1);
    }
    // A first job initialises everything, because memory that the process took before may be reused.
    bench.submit(1, &make);
    let before = resident_bytes();
    let null = Json::null();
    bench.submit(JOBS, |i| NewJob { payload: null.clone(), ..make(i) });
    let used = resident_bytes().saturating_sub(before) / JOBS;
    // Leaked on purpose: the next measurement would reuse freed memory and show too little.
    std::mem::forget(bench);
    used
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("this measurement needs Linux");
    let pages: u64 =
        statm.split(' ').nth(1).and_then(|field| field.parse().ok()).expect("statm has a second field");
    pages * 4096
}

/// A store, one worker, and the jobs that it holds.
struct Bench {
    store: MemoryStore,
    submitted: u64,
    number: u64,
    settles: Vec<Settle>,
}

impl Bench {
    fn new(tasks: &[&str]) -> Self {
        let store = MemoryStore::with_clock(std::sync::Arc::new(SystemClock::new()));
        for worker in 1..=2 {
            block_on(store.open_session(session(worker, tasks))).expect("opens");
        }
        block_on(store.register(tasks.iter().map(|task| TaskOptions::new(name(task))).collect()))
            .expect("registers");
        block_on(store.configure(Configuration::default())).expect("configures");
        Self { store, submitted: 0, number: 0, settles: Vec::new() }
    }

    fn limit(&self, group: &str, limit: u32) {
        block_on(self.store.set_limit(group.parse().expect("a group"), limit)).expect("sets");
    }

    fn submit(&mut self, count: u64, make: impl Fn(u64) -> NewJob) {
        for from in (0..count).step_by(10_000) {
            let jobs = (from..count.min(from + 10_000)).map(|i| {
                self.submitted += 1;
                NewJob { id: JobId(Uuid::from_u64_pair(7, self.submitted)), ..make(i) }
            });
            let jobs: Vec<_> = jobs.collect();
            for submitted in block_on(self.store.submit(jobs)).expect("submits") {
                submitted.expect("accepted");
            }
        }
    }

    /// Another worker claims and keeps that many.
    fn hold(&mut self, count: u32) {
        let reply = block_on(self.store.exchange(exchange(2, 1, Vec::new(), count))).expect("exchanges");
        assert_eq!(reply.claimed.len(), count as usize);
    }

    /// Claims and settles that many jobs, and returns how long it took.
    fn drain(&mut self, count: u64) -> Duration {
        let start = Instant::now();
        let mut claimed = 0;
        while claimed < count {
            self.number += 1;
            let settles = std::mem::take(&mut self.settles);
            let reply =
                block_on(self.store.exchange(exchange(1, self.number, settles, BATCH))).expect("exchanges");
            assert!(reply.settled.iter().all(Result::is_ok));
            assert!(!reply.claimed.is_empty(), "there is work");
            claimed += reply.claimed.len() as u64;
            self.settles = reply.claimed.iter().map(succeed).collect();
        }
        start.elapsed()
    }

    /// Another worker claims that many, and every one of them fails.
    fn fail(&mut self, count: u64) {
        let mut settles: Vec<Settle> = Vec::new();
        let mut failed = 0;
        for number in 1.. {
            failed += settles.len() as u64;
            let sent = exchange(2, number, std::mem::take(&mut settles), 1_000);
            let reply = block_on(self.store.exchange(sent)).expect("exchanges");
            if failed == count {
                break;
            }
            settles = reply
                .claimed
                .iter()
                .map(|job| Settle { outcome: Outcome::Fail { error: "no".into() }, ..succeed(job) })
                .collect();
        }
    }

    fn refill(&mut self, count: u64) -> Duration {
        self.submit(count, |i| job(i, "work"));
        self.drain(count)
    }
}

fn exchange(session: u64, number: u64, settles: Vec<Settle>, max: u32) -> Exchange {
    let claim = Claim { max, max_claim_batch: None, prefetch: None };
    Exchange {
        settles,
        claim,
        free_permits: 100,
        ..Exchange::renew(SessionId(Uuid::from_u64_pair(9, session)), number)
    }
}

fn succeed(job: &qo_core::ClaimedJob) -> Settle {
    Settle { job: job.id, token: job.token, outcome: Outcome::Succeed { output: job.payload.clone() } }
}

fn session(id: u64, tasks: &[&str]) -> NewSession {
    NewSession {
        id: SessionId(Uuid::from_u64_pair(9, id)),
        worker: name("bench"),
        queues: Vec::new(),
        tasks: tasks.iter().map(|task| name(task)).collect(),
        lease_ms: 3_600_000,
        permits: 1_000,
        owner: None,
    }
}

trait Keyed {
    fn keyed(self, key: &str) -> Self;
}

impl Keyed for NewJob {
    fn keyed(self, key: &str) -> Self {
        Self { key: Some(Key::parse("key", key).expect("a key")), ..self }
    }
}

fn job(i: u64, task: &str) -> NewJob {
    NewJob::new(JobId(Uuid::from_u64_pair(1, i)), name(task))
}

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

fn best(mut run: impl FnMut() -> Duration) -> Duration {
    (0..ROUNDS).map(|_| run()).min().expect("at least one round")
}

/// How long `b` takes relative to `a`. Both run in turns, so that other load on the machine disturbs both alike; the
/// median of the pairs ignores outliers.
fn relative(mut a: impl FnMut() -> Duration, mut b: impl FnMut() -> Duration, rounds: usize) -> f64 {
    let mut ratios: Vec<f64> = (0..rounds)
        .map(|round| {
            // The second run finds caches as the first left them, so they swap places.
            let (a, b) = if round % 2 == 0 {
                let a = a();
                (a, b())
            } else {
                let b = b();
                (a(), b)
            };
            b.as_secs_f64() / a.as_secs_f64()
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    ratios[rounds / 2]
}

fn per_second(jobs: u64, took: Duration) -> String {
    let digits = ((jobs as f64 / took.as_secs_f64()) as u64).to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    format!("{}/s", groups.join(","))
}
