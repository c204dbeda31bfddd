//! The rules of the log, one by one: write order, sweeping and the late writer, light clients, store time, formats,
//! waking up.

use futures::future::join_all;
use object_store::{ObjectStore, ObjectStoreExt, path::Path};
use qo_core::{
    Claim, ClaimedJob, ErrorKind, Exchange, JobId, JobState, Json, Name, NewJob, NewSession, Outcome,
};
use qo_core::{SessionId, Settle, Store};
use qo_object::log::{Created, Log};
use qo_object::record::Record;
use qo_object::{Host, LogStore, Options};
use qo_testkit::{FaultyObjects, ObjectFaults, START};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

fn options() -> Options {
    Options { host: Host::Runtime, snapshot_every: 10, ..Options::default() }
}

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

fn job(number: u128) -> NewJob {
    NewJob::new(JobId(Uuid::from_u128(number)), name("work"))
}

fn objects(delay_ms: u64) -> (FaultyObjects, Arc<dyn ObjectStore>) {
    let objects = FaultyObjects::new(7, ObjectFaults { delay_ms, ..ObjectFaults::default() });
    (objects.clone(), Arc::new(objects))
}

async fn open(objects: &Arc<dyn ObjectStore>) -> LogStore {
    LogStore::open_objects(Arc::clone(objects), options()).await.expect("it opens")
}

async fn due(store: &LogStore) -> u64 {
    store.queues().await.expect("it answers").first().map_or(0, |queue| queue.due)
}

/// Writers that always have something to write all get their turn: once all of them write, none waits longer than three
/// rounds.
#[tokio::test(start_paused = true)]
async fn every_writer_commits_within_three_rounds_of_all_writers() {
    for (seed, writers) in (1..=20).flat_map(|seed| [(seed, 2), (seed, 6), (seed, 9)]) {
        let by = written_by(seed, writers).await;
        let mut all = by.clone();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), writers);
        // A newcomer to a busy writer may have to ask for room first. At the end some writers are done before others.
        let first =
            all.iter().filter_map(|writer| by.iter().position(|by| by == writer)).max().expect("all wrote");
        for writer in &all {
            let places: Vec<_> = (first..by.len()).filter(|&at| by[at] == *writer).collect();
            let longest = places.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
            assert!(longest <= 3 * writers, "seed {seed}: one of {writers} waited for {longest} records");
        }
    }
}

/// The writer of each record, if so many writers always have something to write. The first records may have been swept.
async fn written_by(seed: u64, writers: usize) -> Vec<Uuid> {
    let faults = ObjectFaults { delay_ms: 20, ..ObjectFaults::default() };
    let objects = FaultyObjects::new(seed, faults);
    let shared: Arc<dyn ObjectStore> = Arc::new(objects.clone());
    let each = (0..writers as u128).map(|writer| {
        let shared = Arc::clone(&shared);
        async move {
            let store = open(&shared).await;
            for number in 0..40 {
                store.submit(vec![job(writer * 1_000 + number + 1)]).await.expect("accepted");
            }
        }
    });
    join_all(each).await;
    let log = Log::new(shared);
    let mut by = Vec::new();
    for number in 1..=objects.names("log").await.len() as u64 + 100 {
        by.extend(log.read(number).await.expect("readable").map(|record| record.writer));
    }
    assert!(by.len() >= 20 * writers, "{} records", by.len());
    by
}

/// A writer that is alone leaves no pause, and every request takes equally long: by the time a newcomer has read the
/// last record the next one is there. The newcomer asks for room, and gets it; so does a light client.
#[tokio::test(start_paused = true)]
async fn a_busy_writer_yields_to_newcomers() {
    let objects = FaultyObjects::new(7, ObjectFaults { always_ms: 60, ..ObjectFaults::default() });
    let shared: Arc<dyn ObjectStore> = Arc::new(objects.clone());
    let busy = open(&shared).await;
    let writes = tokio::spawn(async move {
        for number in 1.. {
            busy.submit(vec![job(number)]).await.expect("accepted");
        }
    });
    for is_light in [false, true] {
        let newcomer = match is_light {
            true => LogStore::open_objects_to_submit(Arc::clone(&shared), options()).await.expect("it opens"),
            false => open(&shared).await,
        };
        let came = Instant::now();
        newcomer.submit(vec![job(1_000_000 + u128::from(is_light))]).await.expect("accepted");
        assert!(came.elapsed() < Duration::from_secs(4), "it took {:?}", came.elapsed());
    }
    assert!(!writes.is_finished(), "it writes on");
}

/// Six writers, each with more to write than goes into one record, all finish. (Time passes here only while every task
/// waits: a writer that spun until its turn came would do so for ever.)
#[tokio::test(start_paused = true)]
async fn writers_with_full_records_all_get_their_turn() {
    let objects = FaultyObjects::new(7, ObjectFaults { always_ms: 60, ..ObjectFaults::default() });
    let shared: Arc<dyn ObjectStore> = Arc::new(objects);
    let writers = join_all((0..6).map(|_| open(&shared))).await;
    let submits = writers.iter().zip(1_u128..).flat_map(|(store, writer)| {
        (0..5_000).map(move |number| async move {
            store.submit(vec![job(writer * 100_000 + number)]).await.expect("accepted")
        })
    });
    join_all(submits).await;
    for writer in &writers {
        assert_eq!(due(writer).await, 30_000);
    }
}

/// Records are swept when two snapshots cover them and they are old enough, by the store's stamps.
#[tokio::test(start_paused = true)]
async fn old_records_are_swept_and_nothing_is_lost() {
    let (raw, shared) = objects(0);
    let store = open(&shared).await;
    for number in 1..=35 {
        store.submit(vec![job(number)]).await.expect("accepted");
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(raw.names("log").await.len(), 35, "too young to go");
    sleep(Duration::from_secs(61)).await;
    store.submit(vec![job(100)]).await.expect("accepted");
    sleep(Duration::from_secs(40)).await;
    let (records, snapshots) = (raw.names("log").await, raw.names("snapshot").await);
    assert_eq!(snapshots, ["snapshot/00000000000000000020", "snapshot/00000000000000000030"]);
    assert_eq!(records.first().map(String::as_str), Some("log/00000000000000000021"));
    assert_eq!(due(&open(&shared).await).await, 36);
    assert_eq!(due(&store).await, 36);
}

/// A writer stalls while its record is on the way; other processes write on and sweep; then the record is created in a
/// place that was swept. It is not acknowledged, and the caller's second try is read.
#[tokio::test(start_paused = true)]
async fn a_writer_stalled_past_the_sweep_age_acknowledges_nothing() {
    let (raw, shared) = objects(0);
    let sleeper = open(&shared).await;
    sleeper.submit(vec![job(1)]).await.expect("accepted");
    let others = open(&shared).await;
    raw.hold_next_record(Duration::from_secs(240));
    let late = tokio::spawn(async move { (sleeper.submit(vec![job(2)]).await, sleeper) });
    sleep(Duration::from_millis(1)).await;
    for number in 10..=50 {
        others.submit(vec![job(number)]).await.expect("accepted");
        sleep(Duration::from_secs(5)).await;
    }
    assert!(!raw.names("log").await.contains(&"log/00000000000000000002".to_owned()), "its place was swept");
    let (answer, sleeper) = late.await.expect("it ends");
    assert_eq!(answer.expect_err("no reader gets to it").kind(), ErrorKind::Unknown);
    assert!(
        raw.names("log").await.contains(&"log/00000000000000000002".to_owned()),
        "it wrote it all the same"
    );
    sleeper.submit(vec![job(2)]).await.expect("once more, with the same id");
    for store in [&sleeper, &others, &open(&shared).await] {
        assert_eq!(due(store).await, 43);
    }
}

/// A reader that has not looked for long reopens from a snapshot.
#[tokio::test(start_paused = true)]
async fn a_stalled_reader_reopens_from_a_snapshot() {
    let (raw, shared) = objects(0);
    let lazy = Options { poll_without_bell: Duration::from_secs(100_000), ..options() };
    let asleep = LogStore::open_objects(Arc::clone(&shared), lazy).await.expect("it opens");
    let busy = open(&shared).await;
    for number in 1..=60 {
        busy.submit(vec![job(number)]).await.expect("accepted");
        sleep(Duration::from_secs(5)).await;
    }
    assert!(!raw.names("log").await.contains(&"log/00000000000000000001".to_owned()), "it was swept");
    assert_eq!(due(&asleep).await, 60);
    asleep.submit(vec![job(61)]).await.expect("accepted");
    assert_eq!(due(&busy).await, 61);
}

/// A light client does not read what is stored.
#[tokio::test(start_paused = true)]
async fn a_light_client_submits_without_the_state() {
    let (raw, shared) = objects(0);
    let light = LogStore::open_objects_to_submit(Arc::clone(&shared), options()).await.expect("it opens");
    let full = open(&shared).await;
    full.set_limit("work".parse().expect("a group"), 2).await.expect("set");
    let records = raw.names("log").await.len();
    for number in 1..=3 {
        light.submit(vec![job(number), job(number + 10)]).await.expect("acknowledged");
    }
    assert_eq!(raw.names("log").await.len(), records + 3);
    assert_eq!(due(&full).await, 6);
    // The same submit again, as after a lost answer, is the same job.
    light.submit(vec![job(1)]).await.expect("acknowledged");
    assert_eq!(due(&open(&shared).await).await, 6);
    // A submit that needs the state is decided by it.
    let refused = light.submit(vec![job(49), NewJob { cost: 3, ..job(50) }]).await;
    assert_eq!(refused.expect_err("above the limit").kind(), ErrorKind::Invalid);
    let refused = light.submit(vec![NewJob { cost: 3, limit: Some(1), ..job(50) }]).await;
    assert_eq!(refused.expect_err("above its own limit").kind(), ErrorKind::Invalid);
    assert_eq!(light.jobs(Default::default(), None, 10).await.expect("it answers").jobs.len(), 6);
}

/// Many offers are admitted in records of a limited size, before commands that came later.
#[tokio::test(start_paused = true)]
async fn many_offers_are_admitted_in_several_records_and_first() {
    let (_, shared) = objects(0);
    let light = LogStore::open_objects_to_submit(Arc::clone(&shared), options()).await.expect("it opens");
    for batch in 0..2_u128 {
        let jobs = (1..=6_000).map(|number| job(batch * 10_000 + number)).collect();
        light.submit(jobs).await.expect("acknowledged");
    }
    let full = open(&shared).await;
    let last = JobId(Uuid::from_u128(16_000));
    assert_eq!(full.cancel(vec![last]).await.expect("it answers"), [Ok(JobState::Cancelled)]);
    assert_eq!(due(&full).await, 11_999);
    let log = Log::new(Arc::clone(&shared));
    for number in 3..=5 {
        let record = log.read(number).await.expect("readable").expect("there");
        assert!(record.events.len() < 6_000, "{} events in one record", record.events.len());
    }
    assert_eq!(due(&open(&shared).await).await, 11_999);
}

/// With a long backlog a light client opens the state.
#[tokio::test(start_paused = true)]
async fn light_clients_alone_build_no_endless_backlog() {
    let (raw, shared) = objects(0);
    let many = Options { snapshot_every: 1_000, ..options() };
    for round in 0..3_u128 {
        let light = LogStore::open_objects_to_submit(Arc::clone(&shared), many.clone()).await;
        let light = light.expect("it opens");
        for number in 1..=1_000 {
            light.submit(vec![job(round * 1_000 + number)]).await.expect("acknowledged");
        }
    }
    let snapshots = raw.names("snapshot").await;
    assert!(!snapshots.is_empty(), "no process wrote a snapshot");
    assert_eq!(due(&open(&shared).await).await, 3_000);
}

/// The state does not grow with every job that ever succeeded. A job that left it is found by its id, until it is
/// forgotten.
#[tokio::test(start_paused = true)]
async fn old_jobs_leave_the_state_and_are_still_found() {
    let (raw, shared) = objects(0);
    let rarely = Options { poll_without_bell: Duration::from_secs(20), ..options() };
    let store = LogStore::open_objects(Arc::clone(&shared), rarely).await.expect("it opens");
    let (id, tasks) = (SessionId(Uuid::from_u128(9)), vec![name("work")]);
    let session = NewSession {
        id,
        worker: name("w"),
        queues: vec![],
        tasks,
        lease_ms: 3_600_000,
        permits: 5,
        owner: None,
    };
    store.open_session(session).await.expect("open");
    for first in [1, 10_001, 20_001] {
        store.submit((first..first + 10_000).map(job).collect()).await.expect("accepted");
    }
    store.submit((30_001..=33_000).map(job).collect()).await.expect("accepted");
    let (mut settles, mut number) = (Vec::new(), 0);
    loop {
        number += 1;
        let claim = Claim { max: 10_000, ..Claim::default() };
        let exchange = Exchange { claim, settles, free_permits: 5, ..Exchange::renew(id, number) };
        let claimed = store.exchange(exchange).await.expect("answered").claimed;
        if claimed.is_empty() {
            break;
        }
        let succeed = |job: ClaimedJob| Settle {
            job: job.id,
            token: job.token,
            outcome: Outcome::Succeed { output: Json::null() },
        };
        settles = claimed.into_iter().map(succeed).collect();
    }
    let before = store.job(JobId(Uuid::from_u128(1))).await.expect("it is there");
    let pages = async |store: &LogStore| {
        let (mut after, mut jobs) = (None, 0);
        loop {
            let page = store.jobs(Default::default(), after, 1_000).await.expect("it answers");
            jobs += page.jobs.len();
            after = page.next;
            if after.is_none() {
                return jobs;
            }
        }
    };
    let stir = async |store: &LogStore| {
        for limit in 1..=30 {
            store.set_limit("other".parse().expect("a group"), limit).await.expect("set");
        }
    };
    stir(&store).await;
    assert_eq!(pages(&store).await, 33_000, "a client may still repeat its submit");
    sleep(Duration::from_secs(301)).await;
    // No snapshot of a large state is due for a few small records.
    for tens_of_thousands in 4..20_u128 {
        let first = tens_of_thousands * 10_000 + 1;
        store.submit((first..first + 10_000).map(job).collect()).await.expect("accepted");
    }
    stir(&store).await;
    assert_eq!(raw.names("history").await.len(), 3, "however many they are");
    assert_eq!(pages(&store).await, 170_000);
    let fresh = open(&shared).await;
    for store in [&store, &fresh] {
        assert_eq!(store.job(JobId(Uuid::from_u128(1))).await.as_ref(), Ok(&before));
        let explained = store.explain(JobId(Uuid::from_u128(1))).await.expect("it is known");
        assert_eq!((explained.state, explained.reasons), (JobState::Succeeded, vec![]));
        let unknown = store.job(JobId(Uuid::from_u128(777_777))).await.expect_err("there is no such job");
        assert_eq!(unknown.kind(), ErrorKind::NotFound);
    }
    drop(fresh);
    // A day later it is forgotten.
    sleep(Duration::from_secs(25 * 3_600)).await;
    stir(&store).await;
    assert_eq!(raw.names("history").await.len(), 0);
}

/// Time is what the store stamps: a process begins with it, and goes on by itself (G9).
#[tokio::test(start_paused = true)]
async fn time_is_what_the_store_stamps() {
    let (_, shared) = objects(0);
    let store = open(&shared).await;
    let begun = Instant::now();
    assert_eq!(store.now().await, Ok(START));
    sleep(Duration::from_secs(5)).await;
    let passed = u64::try_from(begun.elapsed().as_millis()).expect("not long");
    assert_eq!(store.now().await, Ok(START.plus_ms(passed)));
    assert_eq!(open(&shared).await.now().await, Ok(START.plus_ms(passed)));
}

/// A namespace of a newer format is left alone, and the error says so.
#[tokio::test(start_paused = true)]
async fn a_newer_format_is_refused_before_anything_is_read_or_written() {
    let (raw, shared) = objects(0);
    shared.put(&Path::from("format/00000000000000000002"), "whatever".into()).await.expect("written");
    for light in [false, true] {
        let error = if light {
            let store = LogStore::open_objects_to_submit(Arc::clone(&shared), options()).await;
            store.expect("nothing is read yet").submit(vec![job(1)]).await.expect_err("a newer format")
        } else {
            LogStore::open_objects(Arc::clone(&shared), options()).await.expect_err("a newer format")
        };
        assert_eq!(error.kind(), ErrorKind::Data);
        let said = "it has format 2, this release of qo works with format 1: use a newer release of qo";
        assert!(error.message().contains(said), "{error}");
    }
    assert!(raw.names("log").await.is_empty());
}

/// A light client leaves a namespace of a newer format alone, however often it is asked.
#[tokio::test(start_paused = true)]
async fn a_light_client_refuses_a_newer_format_every_time() {
    let (raw, shared) = objects(0);
    shared.put(&Path::from("format/00000000000000000002"), "whatever".into()).await.expect("written");
    let light = LogStore::open_objects_to_submit(Arc::clone(&shared), options()).await.expect("it opens");
    for _ in 0..3 {
        let error = light.submit(vec![job(1)]).await.expect_err("a newer format");
        assert_eq!(error.kind(), ErrorKind::Data);
    }
    assert!(raw.names("log").await.is_empty());
}

/// After a failure has passed, the same client can open the state.
#[tokio::test(start_paused = true)]
async fn a_light_client_can_open_the_state_after_a_failure() {
    let (raw, shared) = objects(0);
    let light = LogStore::open_objects_to_submit(Arc::clone(&shared), options()).await.expect("it opens");
    light.submit(vec![job(1)]).await.expect("acknowledged");
    raw.set_faults(ObjectFaults { before: 100, ..ObjectFaults::default() });
    let error = light.queues().await.expect_err("nothing answers");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    raw.set_faults(ObjectFaults::default());
    assert_eq!(due(&light).await, 1);
    light.submit(vec![job(2)]).await.expect("accepted");
    assert_eq!(due(&open(&shared).await).await, 2);
}

/// The answer for a late record stays `Unknown`, also if nothing can be read afterwards.
#[tokio::test(start_paused = true)]
async fn a_late_record_is_unknown_although_nothing_can_be_read() {
    let (raw, shared) = objects(0);
    let store = open(&shared).await;
    store.submit(vec![job(1)]).await.expect("accepted");
    raw.hold_next_record(Duration::from_secs(45));
    let late = tokio::spawn(async move { (store.submit(vec![job(2)]).await, store) });
    sleep(Duration::from_secs(1)).await;
    raw.set_faults(ObjectFaults { before: 100, ..ObjectFaults::default() });
    let (answer, store) = late.await.expect("it ends");
    assert_eq!(answer.expect_err("the outcome is unknown").kind(), ErrorKind::Unknown);
    raw.set_faults(ObjectFaults::default());
    assert_eq!(due(&store).await, 2);
}

/// Programs that submit once and end do not come back, so they have no place in the write order.
#[tokio::test(start_paused = true)]
async fn a_writer_does_not_wait_for_light_clients() {
    let (_, shared) = objects(400);
    let store = open(&shared).await;
    for number in 1..=10 {
        store.submit(vec![job(number)]).await.expect("accepted");
    }
    // The light clients write one right after another.
    let log = Log::new(Arc::clone(&shared));
    let mut before = log.read(10).await.expect("readable").expect("there");
    for number in 11..=20 {
        let (writer, nonce) = (Uuid::new_v4(), Uuid::new_v4());
        let offered = vec![job(u128::from(number) + 100)];
        let (after, events) = (before.nonce, Vec::new());
        before =
            Record { number, writer, nonce, after, at: None, events, admitted: 0, offered, snapshot: false };
        let bytes = before.encode().expect("it can be written");
        assert_eq!(log.create(&Log::path(number), bytes).await, Created::Done);
    }
    store.submit(vec![job(11)]).await.expect("accepted");
    let begun = Instant::now();
    store.submit(vec![job(12)]).await.expect("accepted");
    assert!(begun.elapsed() < Duration::from_millis(1_500), "it waited for {:?}", begun.elapsed());
}

/// A snapshot is checked before the records that it covers are deleted.
#[tokio::test(start_paused = true)]
async fn nothing_is_swept_for_a_damaged_snapshot() {
    let (raw, shared) = objects(0);
    let store = open(&shared).await;
    raw.set_faults(ObjectFaults { torn: 100, ..ObjectFaults::default() });
    for number in 1..=35 {
        store.submit(vec![job(number)]).await.expect("accepted");
        sleep(Duration::from_millis(100)).await;
    }
    raw.set_faults(ObjectFaults::default());
    sleep(Duration::from_secs(130)).await;
    assert!(raw.names("snapshot").await.len() >= 2);
    assert_eq!(raw.names("log").await.len(), 35);
    assert_eq!(due(&open(&shared).await).await, 35);
}

/// A caller waits in one process; another process (as far as the directory is concerned) writes. The kernel wakes the
/// first, not polling.
#[tokio::test]
async fn a_record_of_one_process_wakes_another() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let never = Duration::from_secs(100_000);
    let options = Options { poll: never, poll_without_bell: never, ..Options::default() };
    let here = LogStore::open_directory(directory.path(), options.clone()).await.expect("it opens");
    let there = LogStore::open_directory(directory.path(), options.clone()).await.expect("it opens");
    let (id, tasks) = (SessionId(Uuid::from_u128(9)), vec![name("work")]);
    let session = NewSession {
        id,
        worker: name("w"),
        queues: vec![],
        tasks,
        lease_ms: 60_000,
        permits: 5,
        owner: None,
    };
    here.open_session(session).await.expect("open");
    let claim = Claim { max: 1, ..Default::default() };
    let work = here.work(id, claim).await.expect("it answers");
    assert!(!work.now);
    there.submit(vec![job(1)]).await.expect("accepted");
    let seen = here.changed(Some(work.seen)).await.expect("it is told");
    assert!(here.work(id, claim).await.expect("it answers").now);
    let light = LogStore::open_directory_to_submit(directory.path(), options).await.expect("it opens");
    light.submit(vec![job(2)]).await.expect("acknowledged");
    here.changed(Some(seen)).await.expect("it is told");
    assert_eq!(due(&here).await, 2);
}

fn session(id: u128) -> NewSession {
    let (id, tasks) = (SessionId(Uuid::from_u128(id)), vec![name("work")]);
    NewSession { id, worker: name("w"), queues: vec![], tasks, lease_ms: 60_000, permits: 5, owner: None }
}

/// Several workers wake up for one job. One gets it, and the others write nothing.
#[tokio::test(start_paused = true)]
async fn a_fetch_that_brings_nothing_writes_nothing() {
    let (raw, shared) = objects(20);
    let stores = join_all((0..5).map(|_| open(&shared))).await;
    for (id, store) in (1..).zip(&stores) {
        store.open_session(session(id)).await.expect("open");
    }
    stores[0].submit(vec![job(1)]).await.expect("accepted");
    let before = raw.names("log").await.len();
    let claim = Claim { max: 5, ..Claim::default() };
    let fetches = (1..).zip(&stores).map(|(id, store)| {
        let exchange =
            Exchange { claim, free_permits: 5, ..Exchange::renew(SessionId(Uuid::from_u128(id)), 1) };
        store.fetch(exchange)
    });
    let fetched: Vec<_> = join_all(fetches).await.into_iter().map(|reply| reply.expect("answered")).collect();
    let claimed: Vec<_> = fetched.iter().flatten().map(|reply| reply.claimed.len()).collect();
    assert_eq!(claimed, [1], "one worker gets it, the others get nothing");
    assert_eq!(raw.names("log").await.len(), before + 1);
}

/// One process writes a snapshot that is due.
#[tokio::test(start_paused = true)]
async fn one_process_of_many_writes_the_snapshot() {
    let (raw, shared) = objects(20);
    let stores = join_all((0..5).map(|_| open(&shared))).await;
    for number in 1..=29_u128 {
        stores[number as usize % 5].submit(vec![job(number)]).await.expect("accepted");
    }
    join_all(stores.iter().map(|store| store.finish())).await;
    let snapshots = raw.names("snapshot").await;
    assert_eq!(snapshots, ["snapshot/00000000000000000010", "snapshot/00000000000000000020"]);
}

/// A writer took the write lock and was stopped: the others go on without it.
#[tokio::test]
async fn a_stopped_holder_of_the_write_lock_stops_no_other_writer() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let open = || LogStore::open_directory(directory.path(), Options::default());
    let (one, two) = (open().await.expect("it opens"), open().await.expect("it opens"));
    one.submit(vec![job(1)]).await.expect("accepted");
    two.submit(vec![job(2)]).await.expect("accepted");
    let turn = std::fs::File::create(directory.path().join("turn")).expect("opened");
    turn.lock().expect("no process writes");
    for number in 3..=6 {
        one.submit(vec![job(number)]).await.expect("accepted all the same");
        two.submit(vec![job(number + 10)]).await.expect("accepted all the same");
    }
    assert_eq!(due(&two).await, 10);
}

/// A process was killed before it wrote the snapshot that its record announced. The next process finds none, and writes
/// one.
#[tokio::test(start_paused = true)]
async fn an_announced_snapshot_that_never_came_is_written_by_another() {
    let (raw, shared) = objects(0);
    let log = Log::new(Arc::clone(&shared));
    let store = open(&shared).await;
    for number in 1..=9 {
        store.submit(vec![job(number)]).await.expect("accepted");
    }
    drop(store);
    let last = log.read(9).await.expect("readable").expect("there");
    let (writer, nonce) = (Uuid::from_u128(7), Uuid::from_u128(8));
    let promise = Record { number: 10, writer, nonce, after: last.nonce, snapshot: true, ..last };
    let promise = Record { events: Vec::new(), ..promise };
    let created = log.create(&Log::path(10), promise.encode().expect("encodes")).await;
    assert_eq!(created, Created::Done);
    assert_eq!(raw.names("snapshot").await, Vec::<String>::new());
    let store = open(&shared).await;
    store.submit(vec![job(11)]).await.expect("accepted");
    store.finish().await;
    assert_eq!(raw.names("snapshot").await, ["snapshot/00000000000000000011"]);
}

/// A turn ends, with a record or without.
#[tokio::test]
async fn a_writer_with_nothing_to_write_holds_no_lock() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let open = || LogStore::open_directory(directory.path(), Options::default());
    let (one, two) = (open().await.expect("it opens"), open().await.expect("it opens"));
    let free = || {
        let turn = std::fs::File::open(directory.path().join("turn")).expect("it is there");
        let wanting = std::fs::read_dir(directory.path().join("wanting")).expect("it is there");
        let wanting =
            wanting.map(|entry| std::fs::File::open(entry.expect("an entry").path()).expect("there"));
        wanting.chain([turn]).all(|file| file.try_lock().is_ok())
    };
    one.open_session(session(1)).await.expect("open");
    let claim = Claim { max: 1, ..Claim::default() };
    let asks = |number| Exchange { claim, ..Exchange::renew(SessionId(Uuid::from_u128(1)), number) };
    let light = LogStore::open_directory_to_submit(directory.path(), Options::default());
    let light = light.await.expect("it opens");
    for round in 0..20 {
        // Both write, so each sees the other.
        two.submit(vec![job(100 + round)]).await.expect("accepted");
        let claimed = one.fetch(asks(2 * round as u64 + 1)).await.expect("answered").expect("there is work");
        assert_eq!(claimed.claimed.len(), 1);
        assert_eq!(one.fetch(asks(2 * round as u64 + 2)).await, Ok(None));
        two.submit(vec![job(100 + round)]).await.expect("it is there");
        // The process that looks first admits an offer, while the other wants to write.
        light.submit(vec![job(1_000 + round)]).await.expect("acknowledged");
        let (_, fetched) = tokio::join!(two.queues(), one.fetch(asks(2 * round as u64 + 2)));
        if fetched.expect("answered").is_none() {
            one.exchange(asks(2 * round as u64 + 2)).await.expect("answered");
        }
        assert!(free(), "round {round}");
    }
}
