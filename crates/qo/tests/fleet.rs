//! Whole fleets on simulated time: the real client, the real worker runtime and the real log, over objects that fail,
//! answer wrongly and stall by dice. The judge (`qo_judge`) reads the handlers' own records. Then all faults end, and
//! every job must end.

use async_trait::async_trait;
use object_store::ObjectStore;
use qo::core::{Answer, Command, Error, ErrorKind, JobFilter, JobId, JobState, Key, Name, NewJob};
use qo::{Client, Context, Failure, Result, Store, Worker};
use qo_judge::{Case, Job, Limit, OpenRuns, Verdict, What};
use qo_object::{Host, LogStore, Options, Traffic};
use qo_testkit::generator::call;
use qo_testkit::intercept::{Intercept, Intercepted};
use qo_testkit::random::Random;
use qo_testkit::{DateLies, DatedObjects, FaultyObjects, ObjectFaults};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(4);
/// The highest limits that are ever in force.
const LIMITS: [(&str, u32); 4] = [("api", 4), ("cluster", 6), ("queue:slow", 2), ("user/*", 1)];

/// What the handlers recorded. Many things happen at one simulated moment, so lines are numbered instead of dated.
#[derive(Default)]
struct Diary {
    lines: u64,
    book: qo_judge::Diary,
}

/// A handler that is running, until this is dropped.
struct Presence {
    diary: Arc<Mutex<Diary>>,
    context: Context,
    worker: Arc<str>,
    end: qo_judge::End,
}

impl Presence {
    fn new(diary: &Arc<Mutex<Diary>>, worker: &Arc<str>, context: &Context) -> Self {
        let (diary, worker, end) = (Arc::clone(diary), Arc::clone(worker), qo_judge::End::Stopped);
        let presence = Self { diary, context: context.clone(), worker, end };
        presence.write(What::Began);
        presence
    }

    fn end(mut self, end: qo_judge::End) {
        self.end = end;
    }

    fn write(&self, what: What) {
        let mut diary = self.diary.lock().expect("no panic while writing");
        diary.lines += 1;
        let job: Arc<str> = self.context.job().to_string().into();
        let line = qo_judge::Line {
            what,
            at_ns: diary.lines,
            worker: Arc::clone(&self.worker),
            token: self.context.fence_token().0,
            planned: Arc::clone(&job),
            job,
            says: "".into(),
        };
        diary.book.add(line);
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.write(What::Ended(self.end));
    }
}

/// Runs for a while, as the dice say, and then succeeds, fails or panics.
async fn work(
    presence: Presence,
    dice: Arc<Mutex<Random>>,
    longest_ms: u64,
    context: Context,
) -> Result<u32, Failure> {
    let (ms, fate) = {
        let mut dice = dice.lock().expect("no panic with the dice");
        // Some take longer than a lease: a worker that cannot renew it has to stop them.
        let lease_ms = LEASE.as_millis() as u64;
        let ms =
            if dice.percent(8) { dice.within(lease_ms..=3 * lease_ms) } else { dice.within(5..=longest_ms) };
        (ms, dice.within(0..=99))
    };
    tokio::select! {
        () = sleep(Duration::from_millis(ms)) => {}
        _ = context.cancelled() => {
            presence.end(qo_judge::End::Stopped);
            return Err(Failure::retry("told to stop"));
        }
    }
    presence.end(if fate < 14 { qo_judge::End::Retry } else { qo_judge::End::Done });
    match fate {
        0..8 => Err(Failure::retry("the dice say no")),
        8..11 => panic!("the dice say panic"),
        11..14 => Err(Failure::snooze(Duration::from_millis(50))),
        _ => Ok(context.attempt()),
    }
}

/// A step of a workflow.
async fn step(presence: Presence, context: Context) -> Result<(), Failure> {
    tokio::select! {
        () = sleep(Duration::from_millis(30)) => {}
        _ = context.cancelled() => return Err(Failure::retry("told to stop")),
    }
    presence.end(qo_judge::End::Done);
    Ok(())
}

/// A process's connection to its store, which ends with the process.
struct Line {
    store: LogStore,
    cut: AtomicBool,
}

/// The process's end of it.
struct End(Arc<Line>);

#[async_trait]
impl Intercept for End {
    async fn command(&self, command: Command) -> Result<Answer> {
        if self.0.cut.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        call(&self.0.store, command).await
    }

    fn look(&self) -> Result<&dyn Store> {
        match self.0.cut.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::Unavailable, "the process is dead")),
            false => Ok(&self.0.store),
        }
    }
}

/// A worker process.
struct Process {
    line: Arc<Line>,
    run: JoinHandle<Result<()>>,
}

impl Process {
    /// Kills it at once: it closes no session.
    fn kill(self) {
        self.line.cut.store(true, Ordering::SeqCst);
        self.run.abort();
    }
}

/// What every seed shares: the options of the namespace, and the faults.
#[derive(Clone)]
struct Ground {
    options: Options,
    faults: ObjectFaults,
    /// The longest that most jobs take.
    job_ms: u64,
    /// Whether answers carry dates, as a bucket's do, and which of them are wrong.
    dates: Option<WrongDates>,
}

/// Which dates are wrong, each by an hour.
#[derive(Debug, Clone, Copy)]
enum WrongDates {
    /// One answer to each process, which the dice choose.
    OneAnswer,
    /// Every answer to every third process.
    OneProcess,
    /// This many in a hundred.
    Sometimes(u32),
}

const HOUR_MS: i64 = 3_600_000;

impl WrongDates {
    /// The dates that the process with this number gets.
    fn of(self, process: u64, dice: &mut Random) -> DateLies {
        let wrong_ms = if dice.percent(50) { HOUR_MS } else { -HOUR_MS };
        match self {
            Self::OneAnswer => DateLies::once(dice.within(0..=60), wrong_ms),
            Self::OneProcess if process % 3 == 1 => DateLies::always(wrong_ms),
            Self::OneProcess => DateLies::default(),
            Self::Sometimes(percent) => DateLies::sometimes(percent, HOUR_MS),
        }
    }
}

/// The results of some seeds.
#[derive(Default)]
struct Sum {
    /// Limits that were reached.
    reached: usize,
    /// Faults, by name.
    happened: BTreeMap<&'static str, u64>,
}

struct Fleet {
    ground: Ground,
    objects: FaultyObjects,
    diary: Arc<Mutex<Diary>>,
    dice: Arc<Mutex<Random>>,
    started: u64,
}

impl Fleet {
    async fn open(&self) -> LogStore {
        let shared: Arc<dyn ObjectStore> = Arc::new(self.objects.clone());
        for _ in 0..10_000 {
            let opened = match self.ground.dates {
                None => LogStore::open_objects(Arc::clone(&shared), self.ground.options.clone()).await,
                Some(wrong) => self.open_dated(wrong).await,
            };
            match opened {
                Ok(store) => return store,
                Err(error) => assert!(is_passing(&error), "{error}"),
            }
        }
        panic!("the namespace cannot be opened")
    }

    /// Opens the namespace through a gateway of its own.
    async fn open_dated(&self, wrong: WrongDates) -> Result<LogStore> {
        let (lies, dice) = {
            let mut dice = self.dice.lock().expect("no panic with the dice");
            (wrong.of(self.started, &mut dice), dice.fork())
        };
        let traffic = Arc::new(Traffic::default());
        let told = Arc::clone(&traffic);
        let tell = Arc::new(move |date, sent| told.answered(date, sent));
        let objects = DatedObjects::new(self.objects.clone(), lies, dice, tell);
        LogStore::open_dated(Arc::new(objects), traffic, self.ground.options.clone()).await
    }

    async fn start(&mut self) -> Process {
        self.started += 1;
        let line = Arc::new(Line { store: self.open().await, cut: AtomicBool::new(false) });
        let (dice, longest_ms) = (Arc::clone(&self.dice), self.ground.job_ms);
        let (diary, name) = (Arc::clone(&self.diary), Arc::from(format!("w{}", self.started)));
        let begin = move |context: &Context| Presence::new(&diary, &name, context);
        let begin_step = begin.clone();
        let handler = move |(): (), context| work(begin(&context), Arc::clone(&dice), longest_ms, context);
        let steps = move |_: (u64, u64), context| step(begin_step(&context), context);
        let worker = Worker::builder(Arc::new(Intercepted(End(Arc::clone(&line)))))
            .name(&format!("w{}", self.started))
            .own_threads(false)
            .seed(self.started)
            .lease(LEASE)
            .max_concurrent_tasks(4)
            .task("api", handler.clone())
            .task("user", handler.clone())
            .task("plain", handler)
            .task("step", steps)
            .build()
            .expect("a worker");
        Process { line, run: tokio::spawn(worker.run()) }
    }

    fn roll(&self, range: std::ops::RangeInclusive<u64>) -> u64 {
        self.dice.lock().expect("no panic with the dice").within(range)
    }
}

/// Errors of broken connections, which pass.
fn is_passing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unavailable)
}

fn jobs() -> Vec<NewJob> {
    let name = |text: &str| Name::parse("name", text).expect("a name");
    let new = move |number: u128, task: &str| NewJob {
        max_attempts: 50,
        ..NewJob::new(JobId(Uuid::from_u128(number)), name(task))
    };
    let api = (0..25).map(|number| new(1_000 + number, "api"));
    let user = (0..20_u128).map(|number| NewJob {
        key: Some(Key::parse("key", ["k", "l", "m"][number as usize % 3]).expect("a key")),
        ..new(2_000 + number, "user")
    });
    let plain = (0..15).map(|number| NewJob { queue: name("slow"), ..new(3_000 + number, "plain") });
    let steps = (0..2_u64).flat_map(|workflow| (1..=5_u64).map(move |number| (workflow, number)));
    let steps = steps.map(|(workflow, number)| NewJob {
        workflow: Some(name(&format!("flow{workflow}"))),
        payload: qo::core::Json::parse("payload", &format!("[{workflow},{number}]")).expect("JSON"),
        ..new(u128::from(4_000 + workflow * 100 + number), "step")
    });
    api.chain(user).chain(plain).chain(steps).collect()
}

/// What the judge compares the records with.
fn case() -> Case {
    let limit = |(group, limit): (&str, u32)| Limit { group: group.to_owned(), limit, changes: Vec::new() };
    let judged = |job: NewJob| {
        let (group, number) = (job.task.to_string(), job.id.0.as_u128() % 100);
        let mut needs =
            vec![("cluster".to_owned(), 1), (format!("queue:{}", job.queue), 1), (group.clone(), 1)];
        needs.extend(job.key.map(|key| (format!("{group}/{key}"), 1)));
        let step = job.workflow.map(|workflow| (workflow.to_string(), number as u64));
        (job.id.to_string(), Job { needs, step, ..Job::default() })
    };
    Case {
        jobs: jobs().into_iter().map(judged).collect(),
        limits: LIMITS.into_iter().map(limit).collect(),
        // Handlers of a killed process are dropped, and record that.
        open: OpenRuns::GoOn,
        is_over: true,
        ..Case::default()
    }
}

/// Runs a fleet, and returns how many limits it reached and which faults happened.
async fn simulate(seed: u64, ground: Ground) -> (usize, BTreeMap<&'static str, u64>) {
    let faults = ground.faults;
    let objects = FaultyObjects::new(seed, ObjectFaults::default());
    let dice = Arc::new(Mutex::new(Random::new(seed ^ 0x5eed)));
    let mut fleet = Fleet { ground, objects, diary: Arc::default(), dice, started: 0 };
    let client = Client::new(Arc::new(fleet.open().await)).deadline(Duration::from_secs(600));
    for (group, limit) in LIMITS {
        // Wrong dates may make a record look late, and then its outcome is unknown. Setting the same limit again
        // changes nothing.
        while let Err(error) = client.store().set_limit(group.parse().expect("a group"), limit).await {
            assert!(is_passing(&error), "{error}");
        }
    }
    fleet.objects.set_faults(faults);
    for batch in jobs().chunks(10) {
        client.submit_many(batch.to_vec()).await.expect("accepted");
    }
    let mut processes = Vec::new();
    for _ in 0..3 {
        processes.push(fleet.start().await);
    }
    for _ in 0..12 {
        sleep(Duration::from_millis(fleet.roll(50..=1_500))).await;
        match fleet.roll(0..=9) {
            0..4 => {
                let victim = fleet.roll(0..=processes.len() as u64 - 1) as usize;
                processes.swap_remove(victim).kill();
                processes.push(fleet.start().await);
            }
            // The next record hangs for longer than leases, or than the sweep age.
            4 => fleet.objects.hold_next_record(Duration::from_secs(fleet.roll(1..=90))),
            5..7 => {
                let limit = fleet.roll(1..=4) as u32;
                let set = client.store().set_limit("api".parse().expect("a group"), limit).await;
                assert!(set.as_ref().err().is_none_or(is_passing), "{set:?}");
            }
            _ => {}
        }
    }
    fleet.objects.set_faults(ObjectFaults::default());
    let reached = finish(seed, &fleet, &client, processes).await;
    (reached, fleet.objects.happened())
}

async fn finish(seed: u64, fleet: &Fleet, client: &Client, processes: Vec<Process>) -> usize {
    let all = async {
        for job in jobs() {
            let ended = client.wait(job.id).await.expect("it is remembered");
            assert_eq!(ended.view.state, JobState::Succeeded, "seed {seed}: {ended:?}");
        }
    };
    if timeout(Duration::from_secs(600), all).await.is_err() {
        let left = client.store().jobs(JobFilter::default(), None, 1_000).await.expect("it answers").jobs;
        let stuck: Vec<_> = left.into_iter().filter(|job| !job.state.is_terminal()).collect();
        let why = client.store().explain(stuck[0].id).await;
        panic!("seed {seed}: {} jobs are stuck, the first: {:?}: {why:?}", stuck.len(), stuck[0]);
    }
    let verdict = Verdict::of(&case(), &fleet.diary.lock().expect("no panic while writing").book);
    assert!(verdict.holds(), "seed {seed}: {verdict}");
    let reached = verdict.limits.iter().filter(|kept| kept.peak == kept.limit).count();
    for group in client.store().groups(None, 100).await.expect("it answers").groups {
        assert_eq!(group.used, 0, "seed {seed}: {} has slots without a holder", group.group);
    }
    for process in processes {
        process.run.abort();
    }
    reached
}

fn seeds(range: Range<u64>, ground: &Ground) -> Sum {
    let mut sum = Sum::default();
    for seed in range {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let (reached, happened) = runtime.expect("a runtime").block_on(simulate(seed, ground.clone()));
        sum.reached += reached;
        for (fault, times) in happened {
            *sum.happened.entry(fault).or_default() += times;
        }
    }
    sum
}

/// Runs this many fleets, unless `QO_SEED=17` asks for one.
fn fleets(ground: &Ground, count: u64, faults: &[&str]) {
    if let Some(seed) = std::env::var("QO_SEED").ok().and_then(|seed| seed.parse().ok()) {
        seeds(seed..seed + 1, ground);
        return;
    }
    let sums = std::thread::scope(|scope| {
        let halves = [0..count / 2, count / 2..count].map(|half| scope.spawn(|| seeds(half, ground)));
        halves.map(|half| half.join().expect("no guarantee is broken"))
    });
    // A limit that is never reached proves nothing.
    let all = LIMITS.len() * count as usize;
    let reached: usize = sums.iter().map(|sum| sum.reached).sum();
    assert!(reached * 10 >= all * 9, "of {all} limits only {reached} were reached");
    // Nor does a fault that never happens.
    for fault in faults {
        let times: u64 = sums.iter().filter_map(|sum| sum.happened.get(fault)).sum();
        assert!(times * 2 >= count, "{fault} happened {times} times only");
    }
}

fn ground(options: Options) -> Ground {
    Ground {
        options: Options { host: Host::Runtime, snapshot_every: 15, ..options },
        faults: ObjectFaults {
            before: 4,
            after: 4,
            undecided: 3,
            repeated: 3,
            torn: 20,
            late_ms: 400,
            delay_ms: 30,
            always_ms: 0,
        },
        job_ms: 600,
        dates: None,
    }
}

/// The faults of every fleet.
const FAULTS: [&str; 8] = ["before", "after", "undecided", "repeated", "torn", "late_ms", "delay_ms", "held"];

/// Records are swept after a minute: a writer that stalled for longer may come too late.
#[test]
fn two_hundred_fleets_keep_every_limit_and_lose_nothing() {
    fleets(&ground(Options::default()), 200, &FAULTS);
}

/// As in a bucket: writers poll less often, give up sooner on a record of unknown outcome, and requests take longer. So
/// do jobs, or no limit would be reached.
#[test]
fn two_hundred_fleets_as_in_a_bucket_keep_limits_and_lose_nothing() {
    let ground = ground(Options::bucket());
    let faults = ObjectFaults { delay_ms: 150, ..ground.faults };
    fleets(&Ground { faults, job_ms: 2_500, ..ground }, 200, &FAULTS);
}

/// Fleets in a bucket, some of whose answers bear dates that are wrong by an hour.
fn misled(wrong: WrongDates) {
    let ground = ground(Options::bucket());
    let faults = ObjectFaults { delay_ms: 150, ..ground.faults };
    let ground = Ground { faults, job_ms: 2_500, dates: Some(wrong), ..ground };
    fleets(&ground, 60, &["before", "after", "held", "wrong_date"]);
}

#[test]
fn sixty_fleets_told_a_wrong_time_once_keep_every_limit() {
    misled(WrongDates::OneAnswer);
}

#[test]
fn sixty_fleets_with_a_process_that_is_told_a_wrong_time_keep_every_limit() {
    misled(WrongDates::OneProcess);
}

#[test]
fn sixty_fleets_with_two_answers_in_a_hundred_wrong_keep_every_limit() {
    misled(WrongDates::Sometimes(2));
}

#[test]
fn sixty_fleets_with_five_answers_in_a_hundred_wrong_keep_every_limit() {
    misled(WrongDates::Sometimes(5));
}
