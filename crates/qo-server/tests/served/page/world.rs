//! A store with something of everything, and with texts that try to be HTML.

use qo_core::{
    Bearer, Claim, Configuration, Exchange, FenceToken, GroupRef, JobId, Json, MemoryStore, Name, NewJob,
};
use qo_core::{NewSession, NewToken, Outcome, Progress, Schedule, Scope, SessionId, Settle, Store};
use std::sync::Arc;
use uuid::Uuid;

/// A text that would run if it were HTML.
pub const WILD: &str = "</pre></td><script>alert(\"qo\")</script><img src=x onerror='alert(1)'>&amp;";

pub fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

pub fn job(n: u128) -> JobId {
    JobId(Uuid::from_u128(0x019a_8a5e_7c1b_7a10_9d43_0000_0000_0000 | n))
}

pub const SESSION: SessionId = SessionId(Uuid::from_u128(77));

/// The store, and what of it a test needs.
pub struct World {
    pub store: Arc<MemoryStore>,
    /// A job that runs, and its token.
    pub running: (JobId, FenceToken),
    /// A job that waits for a slot.
    pub waiting: JobId,
    /// A job that failed.
    pub failed: JobId,
}

/// Something of everything: a full group, one that is held, a paused queue, a workflow that is halted, a schedule,
/// a worker, jobs that run, wait and have failed.
pub async fn world() -> World {
    let store = Arc::new(MemoryStore::new());
    let group = |text: &str| text.parse::<GroupRef>().expect("a group");
    let configuration = Configuration {
        limits: [(group("resize"), 1), (group("api/*"), 1)].into(),
        schedules: [(name("nightly"), Schedule::new("0 3 * * *", name("report")))].into(),
        ..Configuration::default()
    };
    store.configure(configuration).await.expect("a configuration");
    store.set_limit(group("mail"), 0).await.expect("a limit");
    store.pause_queue(name("slow"), true).await.expect("a pause");
    let wild = Json::parse("payload", &serde_json::json!({ "text": WILD }).to_string()).expect("JSON");
    let of =
        |n, task: &str| NewJob { payload: wild.clone(), max_attempts: 1, ..NewJob::new(job(n), name(task)) };
    let key = |text: &str| Some(qo_core::Key::parse("key", text).expect("a key"));
    let step = |n| NewJob { workflow: Some(name("import")), ..of(n, "step") };
    let jobs = vec![
        step(1),
        step(2),
        of(3, "resize"),
        of(4, "resize"),
        of(5, "mail"),
        NewJob { queue: name("slow"), ..of(6, "resize") },
        NewJob { key: key(WILD), idempotency_key: key(WILD), ..of(7, "api") },
        NewJob { key: key("../../?x=<b>#"), ..of(8, "api") },
    ];
    let accepted = store.submit(jobs).await.expect("a call");
    assert!(accepted.iter().all(Result::is_ok), "{accepted:?}");
    let running = work(&*store).await;
    World { store, running, waiting: job(4), failed: job(1) }
}

/// A worker fails the first step, and runs a job on.
async fn work(store: &dyn Store) -> (JobId, FenceToken) {
    let session = NewSession {
        id: SESSION,
        worker: name("worker-1"),
        queues: vec![],
        tasks: ["resize", "step", "api"].map(name).into(),
        lease_ms: 600_000,
        permits: 10,
        owner: None,
    };
    store.open_session(session).await.expect("a session");
    let claim = Claim { max: 10, ..Claim::default() };
    let first = Exchange { claim, free_permits: 10, ..Exchange::renew(SESSION, 1) };
    let claimed = store.exchange(first).await.expect("an exchange").claimed;
    let token = |n| claimed.iter().find(|claimed| claimed.id == job(n)).expect("it was claimed").token;
    let settle = Settle { job: job(1), token: token(1), outcome: Outcome::Fail { error: WILD.into() } };
    let progress = Progress { job: job(3), token: token(3), percent: 40, note: WILD.into() };
    let second = Exchange {
        settles: vec![settle],
        progress: vec![progress],
        free_permits: 8,
        memory_percent: Some(35),
        ..Exchange::renew(SESSION, 2)
    };
    store.exchange(second).await.expect("an exchange");
    store.keep_log(token(1), WILD.into()).await.expect("a log");
    store.keep_log(token(3), WILD.into()).await.expect("a log");
    (job(3), token(3))
}

/// A token with the scopes of an operator or of a program, and its bearer.
pub async fn token(store: &dyn Store, of: &str, scope: Scope, random: u8) -> Bearer {
    let bearer = Bearer::from_random([random; 50]);
    let token = NewToken {
        id: bearer.id(),
        name: name(of),
        hash: bearer.hash(),
        scopes: [scope].into(),
        queues: None,
        app: None,
        expires_at: None,
    };
    store.create_token(token, "<ada>@laptop".into()).await.expect("a token");
    bearer
}
