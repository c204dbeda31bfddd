//! Chaos on PostgreSQL with real processes: workers are killed and stopped, connections are cut, the server crashes
//! under load, and limits change meanwhile. Two judges decide: `qo_judge`, which reads the records of the jobs themselves, and
//! the simulator's checkers, which read the calls that the store and the processes recorded.
//!
//! This file is the test and the worker processes that it starts: it starts itself again, and the first argument says
//! which part to play. `QO_SEED=17` rolls other dice.

mod call;
mod fault;
mod fleet;
mod history;
mod journal;
mod operator;
mod plan;
mod server;
mod verdict;
mod worker;

use fault::Chaos;
use plan::Plan;
use qo::core::{Error, ErrorKind, JobFilter, JobView, Time};
use qo::{Client, Store};
use qo_postgres::{Options, PostgresStore, Url};
use qo_testkit::history::Audit;
use server::Server;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{interval, timeout};
use verdict::{Found, Verdict};

const NAME: &str = "chaos_on_postgresql_exceeds_no_limit_and_loses_no_job";
const SCHEMA: &str = "chaos";
/// Longest that the last job may take once the faults are over.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "worker") {
        return worker::main(&arguments[1..]);
    }
    if arguments.iter().any(|argument| argument == "--list") {
        say(format_args!("{NAME}: test"));
        return ExitCode::SUCCESS;
    }
    let mut filters = arguments.iter().filter(|argument| !argument.starts_with('-')).peekable();
    if filters.peek().is_some() && !filters.any(|filter| NAME.contains(filter.as_str())) {
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let verdict = runtime.expect("a runtime").block_on(chaos());
    say(format_args!("{verdict}"));
    say(format_args!("test {NAME} ... {}", if verdict.holds() { "ok" } else { "FAILED" }));
    if verdict.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn say(line: std::fmt::Arguments<'_>) {
    writeln!(std::io::stdout(), "{line}").expect("written");
}

async fn chaos() -> Verdict {
    let seed = std::env::var("QO_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(5);
    say(format_args!("seed {seed}"));
    let server = Server::from_environment().await;
    let url = server.namespace(SCHEMA).await;
    journal::begin(&server, SCHEMA).await;
    let place = Url::parse(&url).expect("a url");
    let store = Arc::new(PostgresStore::open(&place, Options::default()).await.expect("it opens"));
    let folder = tempfile::tempdir().expect("a folder");
    let own = call::written_down(Arc::clone(&store) as Arc<dyn Store>, &call::path(folder.path(), 0));
    for (group, limit) in plan::LIMITS {
        own.set_limit(group.parse().expect("a group"), limit).await.expect("it is set");
    }
    let plan = Plan::new(seed);
    let client = Client::new(Arc::clone(&own)).deadline(PATIENCE);

    let mut submitting = plan.submit(&client);
    submitting.first_half().await;
    let mut chaos = Chaos::begin(seed, &url, folder.path());
    let rest = submitting.rest_in_pieces(fault::LENGTH);
    tokio::join!(chaos.rage(&server), rest, operator::operate(&*own, fault::LENGTH));

    let (healed_ns, healed_clock_us) = (qo_judge::now_ns(), call::clock_us());
    let ended = timeout(PATIENCE, all_ended(&store)).await.is_ok();
    let jobs = all_jobs(&store).await;
    if !ended {
        for job in jobs.iter().filter(|job| !job.state.is_terminal()).take(3) {
            let why = store.explain(job.id).await;
            say(format_args!("stuck: {job:?}: {why:?}"));
        }
    }
    let (faults, workers) = chaos.end().await;
    let (audited, audit) = audit(&store).await;
    let journal = journal::read(&server, SCHEMA).await;
    let processes = std::iter::once(0).chain(workers.keys().copied());
    let calls: Vec<_> = processes.flat_map(|process| call::read(folder.path(), process)).collect();
    let bound_ms = worker::BOUND.as_millis() as u64;
    let end = history::End { healed_us: healed_clock_us, bound_ms, audited, audit };
    let groups = again(async || store.groups(None, 1_000).await).await.groups;
    let found = Found {
        jobs,
        drift: again(async || store.drift().await).await,
        slots_left: groups.into_iter().filter(|group| group.used > 0).map(|group| group.group).collect(),
        deadlocks: server.deadlocks().await,
        healed_ns,
        history: history::check(&journal, &calls, end),
    };
    Verdict::of(&plan, &workers, folder.path(), faults, found)
}

/// Makes a call again while its store cannot be reached.
async fn again<T>(mut call: impl AsyncFnMut() -> Result<T, Error>) -> T {
    let mut every = interval(Duration::from_millis(50));
    loop {
        every.tick().await;
        match call().await {
            Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown) => {}
            answer => return answer.expect("it answers"),
        }
    }
}

/// Waits until no job is left that is to be run.
async fn all_ended(store: &PostgresStore) {
    let mut every = interval(Duration::from_millis(50));
    loop {
        every.tick().await;
        let queues = again(async || store.queues().await).await;
        let left = queues
            .iter()
            .map(|queue| queue.running + queue.claimed + queue.due + queue.scheduled + queue.waiting);
        if left.sum::<u64>() == 0 {
            return;
        }
    }
}

/// All that the store says about itself, and at what store time.
async fn audit(store: &Arc<PostgresStore>) -> (Time, Audit) {
    let now = again(async || store.now().await).await;
    let store = Arc::clone(store);
    // It blocks on each answer.
    let audit = spawn_blocking(move || qo_testkit::simulation::audit(&*store, true));
    (now, audit.await.expect("it is all told"))
}

async fn all_jobs(store: &PostgresStore) -> Vec<JobView> {
    let (mut after, mut jobs) = (None, Vec::new());
    loop {
        let page = again(async || store.jobs(JobFilter::default(), after, 1_000).await).await;
        jobs.extend(page.jobs);
        after = page.next;
        if after.is_none() {
            return jobs;
        }
    }
}
