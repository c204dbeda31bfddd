//! Two transactions at once, step by step: one stops in the middle while another goes on.

use crate::fixtures::{RUNTIME, Schemas, connect};
use qo_core::{
    Claim, Configuration, ErrorKind, Exchange, GroupRef, JobId, JobState, Json, Name, NewJob, NewSession,
    OnLimit, Outcome,
};
use qo_core::{SessionId, Settle, Store, Submitted};
use qo_postgres::{Options, PostgresStore, Url};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Client;
use uuid::Uuid;

const SERVER: &str = "QO_TEST_POSTGRES";
/// Longer than anything takes that does not wait for a lock.
const PATIENCE: Duration = Duration::from_secs(20);

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

fn job(id: u128, task: &str) -> NewJob {
    NewJob::new(JobId(Uuid::from_u128(id)), name(task))
}

/// A namespace, a store and a worker's session.
struct World {
    server: String,
    url: Url,
    store: Arc<PostgresStore>,
    session: SessionId,
    number: u64,
}

impl World {
    async fn new(schema: &str) -> Self {
        let schemas = Schemas::on(SERVER);
        let url = schemas.schema(schema).await;
        let options = Options { connections: 4, notify: false, ..Options::default() };
        let store = Arc::new(PostgresStore::open(&url, options).await.expect("it opens"));
        let mut world =
            Self { server: schemas.server(), url, store, session: SessionId(Uuid::nil()), number: 0 };
        world.session = world.open_session(1).await;
        world
    }

    async fn open_session(&self, id: u128) -> SessionId {
        let id = SessionId(Uuid::from_u128(id));
        let tasks = ["t", "u"].map(name).to_vec();
        let session = NewSession {
            id,
            worker: name("w"),
            queues: vec![],
            tasks,
            lease_ms: 60_000,
            permits: 1_000,
            owner: None,
        };
        self.store.open_session(session).await.expect("it opens");
        id
    }

    /// A connection in the schema whose transaction the test keeps open.
    async fn slow(&self) -> Client {
        let client = connect(&self.server).await;
        let path = format!("SET search_path = {}", self.url.schema());
        client.batch_execute(&path).await.expect("it is set");
        client
    }

    async fn submit(&self, jobs: Vec<NewJob>) {
        for submitted in self.store.submit(jobs).await.expect("a call") {
            assert!(matches!(submitted, Ok(Submitted::Accepted(_))), "{submitted:?}");
        }
    }

    /// Settles what is given and claims. It fails if it has to wait for another transaction.
    async fn exchange(&mut self, settles: Vec<Settle>, max: u32) -> Vec<(JobId, Settle)> {
        self.number += 1;
        let claim = Claim { max, max_claim_batch: None, prefetch: None };
        let exchange =
            Exchange { settles, claim, free_permits: 1_000, ..Exchange::renew(self.session, self.number) };
        let reply = tokio::time::timeout(PATIENCE, self.store.exchange(exchange)).await;
        let reply = reply.expect("it does not have to wait").expect("it is answered");
        assert!(reply.settled.iter().all(Result::is_ok), "{:?}", reply.settled);
        let done = Outcome::Succeed { output: Json::null() };
        let settle = |id, token| Settle { job: id, token, outcome: done.clone() };
        reply.claimed.into_iter().map(|job| (job.id, settle(job.id, job.token))).collect()
    }

    async fn claims(&mut self, max: u32) -> Vec<JobId> {
        self.exchange(vec![], max).await.into_iter().map(|(id, _)| id).collect()
    }

    /// Waits until a backend that runs this statement waits for a lock.
    async fn until_a_call_waits(&self, query: &str) {
        let client = connect(&self.server).await;
        let waiting =
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1)";
        let pattern = format!("%{}.{query}%", self.url.schema());
        let look = async {
            while !client.query_one(waiting, &[&pattern]).await.expect("a look").get::<_, bool>(0) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, look).await.expect("it waits");
    }
}

fn ids(ids: impl IntoIterator<Item = u128>) -> Vec<JobId> {
    ids.into_iter().map(|id| JobId(Uuid::from_u128(id))).collect()
}

fn slow_claim(session: SessionId, number: u64, max: u32) -> String {
    format!(
        "SELECT * FROM api_exchange_shared('{session}', {number}, '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', {max}, NULL, 1000, false, NULL)"
    )
}

#[test]
fn a_callers_open_transaction_makes_no_exchange_wait() {
    RUNTIME.block_on(async {
        let mut world = World::new("open_transaction").await;
        world.submit(vec![job(1, "t"), NewJob { workflow: Some(name("w")), ..job(2, "t") }]).await;
        let first = world.exchange(vec![], 10).await;
        let slow = world.slow().await;
        slow.batch_execute(
            "BEGIN; SELECT submit('t', workflow => 'w'); SELECT submit('u', key => 'k', \"limit\" => 1);
             SELECT submit('u', on_limit => 'skip', \"limit\" => 5)",
        )
        .await
        .expect("they are stored");
        // Everything that other processes do goes on: settling the step before, limits, sweeping, claiming.
        let settles = first.into_iter().map(|(_, settle)| settle).collect();
        assert_eq!(world.exchange(settles, 10).await, []);
        let others = async {
            world.store.set_limit(GroupRef::Group(name("u")), 7).await.expect("it is set");
            world.store.sweep().await.expect("it sweeps");
            world.store.submit(vec![job(3, "u")]).await.expect("it is stored");
        };
        tokio::time::timeout(PATIENCE, others).await.expect("they do not have to wait");
        assert_eq!(world.claims(10).await, ids([3]));
        slow.batch_execute("COMMIT").await.expect("it commits");
        assert_eq!(world.claims(10).await.len(), 3, "what was accepted first and committed last is not lost");
        assert_eq!(world.store.drift().await.as_deref(), Ok("[]"));
    });
}

#[test]
fn a_limit_is_cleared_when_the_transaction_that_clears_it_commits() {
    RUNTIME.block_on(async {
        let mut world = World::new("clears_late").await;
        let limited = |id| NewJob { limit: Some(1), ..job(id, "u") };
        world.submit((1..=3).map(limited).collect()).await;
        assert_eq!(world.claims(10).await, ids([1]));
        let slow = world.slow().await;
        slow.batch_execute("BEGIN; SELECT submit('u', clear_limit => true)").await.expect("it is stored");
        assert_eq!(world.claims(10).await, [], "the limit counts until it is cleared");
        slow.batch_execute("COMMIT").await.expect("it commits");
        assert_eq!(world.claims(10).await.len(), 3);
        assert_eq!(world.store.drift().await.as_deref(), Ok("[]"));
    });
}

#[test]
fn a_limit_that_commits_after_another_was_cleared_counts() {
    RUNTIME.block_on(async {
        let mut world = World::new("clears_early").await;
        world.submit(vec![NewJob { limit: Some(1), ..job(1, "u") }, job(2, "u"), job(3, "u")]).await;
        let slow = world.slow().await;
        slow.batch_execute("BEGIN; SELECT submit('u', \"limit\" => 4)").await.expect("it is stored");
        world.submit(vec![NewJob { clear_limit: true, ..job(4, "u") }]).await;
        assert_eq!(world.claims(10).await, ids([1, 2, 3, 4]));
        slow.batch_execute("COMMIT").await.expect("it commits");
        assert_eq!(world.claims(10).await, [], "four run already");
        assert_eq!(world.store.drift().await.as_deref(), Ok("[]"));
    });
}

#[test]
fn a_limit_that_is_set_during_a_claim_waits_for_it_and_holds_afterwards() {
    RUNTIME.block_on(async {
        let mut world = World::new("set_during_claim").await;
        world.submit((1..=10).map(|id| job(id, "t")).collect()).await;
        let slow = world.slow().await;
        slow.batch_execute("BEGIN").await.expect("it begins");
        let claimed = slow.query(&slow_claim(world.session, 1, 3), &[]).await.expect("it claims");
        assert_eq!(claimed.len(), 4, "three jobs, and the time");
        let store = Arc::clone(&world.store);
        let set = tokio::spawn(async move { store.set_limit(GroupRef::Group(name("t")), 0).await });
        world.until_a_call_waits("api_set_limit").await;
        slow.batch_execute("COMMIT").await.expect("it commits");
        set.await.expect("it ends").expect("it is set");
        world.number = 1;
        assert_eq!(world.claims(10).await, [], "after it was acknowledged nothing starts");
        let group = world.store.group(GroupRef::Group(name("t"))).await.expect("a group").status;
        assert_eq!((group.used, group.limit), (3, Some(0)));
        assert_eq!(world.store.drift().await.as_deref(), Ok("[]"));
    });
}

#[test]
fn two_claims_at_once_share_the_slots_that_are_left() {
    RUNTIME.block_on(async {
        let mut world = World::new("two_claims").await;
        world.store.set_limit(GroupRef::Group(name("t")), 4).await.expect("it is set");
        world.submit((1..=10).map(|id| job(id, "t")).collect()).await;
        let other = world.open_session(2).await;
        let slow = world.slow().await;
        slow.batch_execute("BEGIN").await.expect("it begins");
        slow.query(&slow_claim(other, 1, 3), &[]).await.expect("it claims");
        let (store, session) = (Arc::clone(&world.store), world.session);
        let second = tokio::spawn(async move {
            let claim = Claim { max: 3, max_claim_batch: None, prefetch: None };
            store.exchange(Exchange { claim, free_permits: 1_000, ..Exchange::renew(session, 1) }).await
        });
        world.until_a_call_waits("api_exchange_shared").await;
        slow.batch_execute("COMMIT").await.expect("it commits");
        let reply = second.await.expect("it ends").expect("it is answered");
        assert_eq!(reply.claimed.len(), 1, "it saw four free slots, and there is one");
        world.number = 1;
        assert_eq!(world.claims(10).await, []);
        assert_eq!(world.store.drift().await.as_deref(), Ok("[]"));
    });
}

#[test]
fn claims_of_a_large_group_do_not_wait_for_each_other() {
    RUNTIME.block_on(async {
        let mut world = World::new("shares").await;
        world.store.set_limit(GroupRef::Group(name("t")), 500).await.expect("it is set");
        world.submit((1..=20).map(|id| job(id, "t")).collect()).await;
        let slow = world.slow().await;
        let shares = "SELECT count(*), sum(most) FROM slots WHERE ref = 't'";
        let shares = slow.query_one(shares, &[]).await.expect("a look");
        assert_eq!((shares.get::<_, i64>(0), shares.get::<_, i64>(1)), (10, 500));
        let other = world.open_session(2).await;
        slow.batch_execute("BEGIN").await.expect("it begins");
        slow.query(&slow_claim(other, 1, 3), &[]).await.expect("it claims");
        let held = world.exchange(vec![], 5).await;
        assert_eq!(held.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids(4..=8));
        let settles: Vec<Settle> = held.into_iter().map(|(_, settle)| settle).collect();
        assert_eq!(world.exchange(settles, 0).await, [], "what is freed does not wait, either");
        slow.batch_execute("COMMIT").await.expect("it commits");
        assert_eq!(world.store.drift().await.as_deref(), Ok("[]"));
    });
}

#[test]
fn a_limit_is_reached_though_a_transaction_holds_a_share() {
    RUNTIME.block_on(async {
        for (end, left) in [("COMMIT", 90), ("ROLLBACK", 100)] {
            let mut world = World::new("share_held").await;
            world.store.set_limit(GroupRef::Group(name("t")), 100).await.expect("it is set");
            world.submit((1..=200).map(|id| job(id, "t")).collect()).await;
            let other = world.open_session(2).await;
            let slow = world.slow().await;
            slow.batch_execute("BEGIN").await.expect("it begins");
            slow.query(&slow_claim(other, 1, 10), &[]).await.expect("it claims");
            let (store, session) = (Arc::clone(&world.store), world.session);
            let second = tokio::spawn(async move {
                let claim = Claim { max: 100, max_claim_batch: None, prefetch: None };
                store.exchange(Exchange { claim, free_permits: 1_000, ..Exchange::renew(session, 1) }).await
            });
            world.until_a_call_waits("api_exchange_shared").await;
            slow.batch_execute(end).await.expect("it ends");
            let reply = second.await.expect("it ends").expect("it is answered");
            assert_eq!(reply.claimed.len(), left, "after a {end}");
            world.number = 1;
            assert_eq!(world.claims(200).await, [], "after a {end}");
            assert_eq!(world.store.drift().await.as_deref(), Ok("[]"));
        }
    });
}

#[test]
fn a_large_limit_that_is_lowered_and_raised_keeps_its_sum() {
    RUNTIME.block_on(async {
        let mut world = World::new("resize").await;
        let group = GroupRef::Group(name("t"));
        let slow = world.slow().await;
        let rows = async || -> i64 {
            let count = "SELECT count(*) FROM slots WHERE ref = 't'";
            slow.query_one(count, &[]).await.expect("a look").get(0)
        };
        world.store.set_limit(group.clone(), 600).await.expect("it is set");
        world.submit((1..=3_000).map(|id| job(id, "t")).collect()).await;
        let mut held: Vec<Settle> = world.exchange(vec![], 700).await.into_iter().map(|(_, s)| s).collect();
        assert_eq!((held.len(), rows().await), (600, 12));
        world.store.set_limit(group.clone(), 150).await.expect("it is set");
        assert_eq!(rows().await, 1, "more is used than the limit");
        assert_eq!(world.exchange(held.split_off(150), 500).await, [], "as many run as may");
        world.store.sweep().await.expect("it sweeps");
        assert_eq!(rows().await, 3, "it has drained");
        let more = world.exchange(held.split_off(140), 500).await;
        assert_eq!(more.len(), 10);
        held.extend(more.into_iter().map(|(_, settle)| settle));
        world.store.set_limit(group.clone(), 10_000).await.expect("it is set");
        assert_eq!(rows().await, 50);
        held.extend(world.exchange(vec![], 2_000).await.into_iter().map(|(_, settle)| settle));
        assert_eq!(held.len(), 2_150);
        assert_eq!(world.store.drift().await.as_deref(), Ok("[]"));
        assert_eq!(world.exchange(held, 0).await, []);
        world.store.unset_limit(group).await.expect("it is unset");
        assert_eq!((rows().await, world.store.drift().await.as_deref()), (0, Ok("[]")));
    });
}

#[test]
fn an_exchange_that_dies_before_its_commit_changes_nothing() {
    RUNTIME.block_on(async {
        let mut world = World::new("dies").await;
        world.store.set_limit(GroupRef::Group(name("t")), 1).await.expect("it is set");
        world.submit(vec![job(1, "t"), job(2, "t")]).await;
        let slow = world.slow().await;
        slow.batch_execute("BEGIN").await.expect("it begins");
        slow.query(&slow_claim(world.session, 1, 1), &[]).await.expect("it claims");
        let pid: i32 = slow.query_one("SELECT pg_backend_pid()", &[]).await.expect("a pid").get(0);
        let killer = connect(&world.server).await;
        killer.query("SELECT pg_terminate_backend($1)", &[&pid]).await.expect("it is killed");
        let gone = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)";
        while killer.query_one(gone, &[&pid]).await.expect("a look").get::<_, bool>(0) {
            tokio::task::yield_now().await;
        }
        assert_eq!(world.claims(10).await, ids([1]), "the same number again claims the same job");
        assert_eq!(world.store.drift().await.as_deref(), Ok("[]"));
    });
}

#[test]
fn a_lowered_limit_takes_nothing_away_and_starts_nothing_while_full() {
    RUNTIME.block_on(async {
        let mut world = World::new("lowering").await;
        let group = GroupRef::Group(name("t"));
        world.store.set_limit(group.clone(), 100).await.expect("it is set");
        world.submit((1..=300).map(|id| job(id, "t")).collect()).await;
        let mut held: Vec<Settle> = world.exchange(vec![], 200).await.into_iter().map(|(_, s)| s).collect();
        assert_eq!(held.len(), 100);
        world.store.set_limit(group.clone(), 60).await.expect("it is set");
        for running in [90, 80, 70, 60] {
            let settles = held.split_off(held.len() - 10);
            assert_eq!(world.exchange(settles, 50).await, [], "{running} run");
        }
        let settles = held.split_off(held.len() - 10);
        assert_eq!(world.exchange(settles, 50).await.len(), 10);
        world.store.set_limit(group, 80).await.expect("it is set");
        assert_eq!(world.exchange(vec![], 50).await.len(), 20);
        assert_eq!(world.store.drift().await.as_deref(), Ok("[]"));
    });
}

#[test]
fn a_submit_that_rejects_never_admits_too_many_at_any_isolation_level() {
    RUNTIME.block_on(async {
        for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
            let world = World::new("rejects").await;
            let (mut first, mut second) = (world.slow().await, world.slow().await);
            for client in [&first, &second] {
                let set = format!("SET default_transaction_isolation = '{}'", level.to_lowercase());
                client.batch_execute(&set).await.expect("it is set");
            }
            let new = |id| vec![NewJob { limit: Some(1), on_limit: OnLimit::Reject, ..job(id, "t") }];
            let one = first.transaction().await.expect("it begins");
            // Both plan before either of them counts.
            let two = second.transaction().await.expect("it begins");
            two.query_one("SELECT count(*) FROM job", &[]).await.expect("a snapshot");
            let admitted = world.store.submit_in(&one, new(1)).await.expect("a call");
            assert!(matches!(admitted[..], [Ok(Submitted::Accepted(_))]), "{admitted:?}");
            let late = world.store.submit_in(&two, new(2));
            let both = async {
                let commit = async {
                    world.until_a_call_waits("api_submit").await;
                    one.commit().await.expect("it commits");
                };
                tokio::join!(late, commit).0
            };
            let refused = tokio::time::timeout(PATIENCE, both).await.expect("no call waits for ever");
            match refused {
                Ok(answers) => {
                    assert_eq!(level, "READ COMMITTED");
                    let kinds: Vec<_> =
                        answers.iter().map(|a| a.as_ref().map_err(qo_core::Error::kind)).collect();
                    assert_eq!(kinds, [Err(ErrorKind::LimitReached)]);
                }
                Err(error) => {
                    assert_ne!(level, "READ COMMITTED");
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                }
            }
            drop(two.rollback().await);
            let live = world.store.group(GroupRef::Group(name("t"))).await.expect("a group").status.live;
            assert_eq!(live, 1, "{level}");
        }
    });
}

#[test]
fn the_same_job_submitted_twice_at_once_is_one_job() {
    RUNTIME.block_on(async {
        let mut world = World::new("twice").await;
        let mut slow = world.slow().await;
        let open = slow.transaction().await.expect("it begins");
        world.store.submit_in(&open, vec![job(1, "t")]).await.expect("a call");
        let store = Arc::clone(&world.store);
        let again = tokio::spawn(async move { store.submit(vec![job(1, "t")]).await });
        world.until_a_call_waits("api_submit").await;
        open.commit().await.expect("it commits");
        let again = again.await.expect("it ends").expect("a call");
        assert_eq!(again, [Ok(Submitted::Existing(JobId(Uuid::from_u128(1))))]);
        assert_eq!(world.claims(10).await, ids([1]));
    });
}

#[test]
fn a_slot_that_is_freed_while_a_job_is_parked_on_it_wakes_the_job() {
    RUNTIME.block_on(async {
        let mut world = World::new("parked").await;
        let key = |id| NewJob { key: Some(qo_core::Key::parse("key", "k").expect("a key")), ..job(id, "t") };
        world.store.set_limit("t/*".parse().expect("a group"), 1).await.expect("it is set");
        world.submit(vec![key(1)]).await;
        let held: Vec<Settle> = world.exchange(vec![], 1).await.into_iter().map(|(_, s)| s).collect();
        world.submit((2..=20).map(key).collect()).await;
        // Another worker meets the full key, parks the jobs that wait for it, and has not committed yet.
        let other = world.open_session(2).await;
        let slow = world.slow().await;
        slow.batch_execute("BEGIN").await.expect("it begins");
        slow.query(&slow_claim(other, 1, 10), &[]).await.expect("it claims nothing");
        let (store, session) = (Arc::clone(&world.store), world.session);
        let free = tokio::spawn(async move {
            store
                .exchange(Exchange { settles: held, free_permits: 1_000, ..Exchange::renew(session, 2) })
                .await
        });
        world.until_a_call_waits("api_exchange_shared").await;
        slow.batch_execute("COMMIT").await.expect("it commits");
        let settled = free.await.expect("it ends").expect("it is answered").settled;
        assert_eq!(settled, [Ok(JobState::Succeeded)]);
        world.number = 2;
        assert_eq!(world.claims(10).await, ids([2]));
        assert_eq!(world.store.drift().await.as_deref(), Ok("[]"));
    });
}

#[test]
fn a_claim_that_loses_a_key_leaves_that_job_in_line_and_takes_others() {
    RUNTIME.block_on(async {
        let mut world = World::new("late_at_a_key").await;
        let of =
            |id, key| NewJob { key: Some(qo_core::Key::parse("key", key).expect("a key")), ..job(id, "t") };
        world.store.set_limit("t/*".parse().expect("a group"), 1).await.expect("it is set");
        world.store.set_limit(GroupRef::Group(name("t")), 7).await.expect("it is set");
        world.store.set_limit(GroupRef::Cluster, 5).await.expect("it is set");
        world.submit(vec![of(1, "a"), of(2, "b"), of(3, "a"), of(4, "c")]).await;
        // Another worker takes the first job, and with it the key, and has not committed yet.
        let other = world.open_session(2).await;
        let slow = world.slow().await;
        slow.batch_execute("BEGIN").await.expect("it begins");
        let first = slow.query(&slow_claim(other, 1, 1), &[]).await.expect("it claims");
        assert_eq!(first.len(), 2, "one job, and the time");
        let (store, session) = (Arc::clone(&world.store), world.session);
        let late = tokio::spawn(async move {
            let claim = Claim { max: 10, ..Claim::default() };
            store.exchange(Exchange { claim, free_permits: 10, ..Exchange::renew(session, 1) }).await
        });
        world.until_a_call_waits("api_exchange_shared").await;
        slow.batch_execute("COMMIT").await.expect("it commits");
        let claimed = late.await.expect("it ends").expect("it is answered").claimed;
        assert_eq!(claimed.iter().map(|job| job.id).collect::<Vec<_>>(), ids([2, 4]));
        // Nothing is counted for the job that stayed in line.
        for (group, used) in [(GroupRef::Group(name("t")), 3), (GroupRef::Cluster, 3)] {
            assert_eq!(world.store.group(group).await.expect("a group").status.used, used);
        }
        assert_eq!(world.store.drift().await.as_deref(), Ok("[]"));
        world.store.close_session(other).await.expect("its job is given back");
        world.number = 1;
        assert_eq!(world.claims(10).await, ids([1]), "the key is free again");
        assert_eq!(world.store.drift().await.as_deref(), Ok("[]"));
    });
}

#[test]
fn a_job_of_another_group_than_its_tasks_runs_though_that_is_full() {
    RUNTIME.block_on(async {
        let mut world = World::new("another_group").await;
        world.store.set_limit(GroupRef::Group(name("t")), 0).await.expect("it is set");
        world.submit((1..=100).map(|id| job(id, "t")).collect()).await;
        let limits = [(GroupRef::Group(name("y")), 1)].into();
        world.submit(vec![NewJob { group: Some(name("other")), limits, ..job(101, "t") }]).await;
        assert_eq!(world.claims(10).await, ids([101]));
    });
}

#[test]
fn a_claim_that_fills_a_queue_goes_on_with_the_next_one() {
    RUNTIME.block_on(async {
        let mut world = World::new("next_queue").await;
        let priorities = [(name("a"), 1), (name("b"), 2)].into();
        let configuration = Configuration { queue_priorities: priorities, ..Configuration::default() };
        world.store.configure(configuration).await.expect("it is configured");
        world.store.set_limit(GroupRef::Queue(name("a")), 1).await.expect("it is set");
        let of = |id, queue| NewJob { queue: name(queue), ..job(id, "t") };
        world.submit((1..=6).map(|id| of(id, if id <= 3 { "a" } else { "b" })).collect()).await;
        assert_eq!(world.claims(3).await, ids([1, 4, 5]));
        assert_eq!(world.store.drift().await.as_deref(), Ok("[]"));
    });
}

#[test]
fn a_job_behind_one_that_waits_for_its_other_key_is_woken() {
    RUNTIME.block_on(async {
        let mut world = World::new("other_key").await;
        let shared: GroupRef = "h/l".parse().expect("a group");
        world.store.set_limit("t/*".parse().expect("a group"), 1).await.expect("it is set");
        world.store.set_limit(shared.clone(), 1).await.expect("it is set");
        let of =
            |id, key| NewJob { key: Some(qo_core::Key::parse("key", key).expect("a key")), ..job(id, "t") };
        let both = |id, key| NewJob { limits: [(shared.clone(), 1)].into(), ..of(id, key) };
        // One job runs long with its key, another one with the slot that all others need too.
        world.submit(vec![of(1, "long"), both(2, "short")]).await;
        let held = world.exchange(vec![], 10).await;
        world.submit((3..=20).map(|id| both(id, "long")).chain([both(21, "free")]).collect()).await;
        assert_eq!(world.claims(10).await, [], "they are parked");
        let ends: Vec<Settle> = held.into_iter().skip(1).map(|(_, settle)| settle).collect();
        assert_eq!(ends.len(), 1);
        let claimed: Vec<JobId> = world.exchange(ends, 10).await.into_iter().map(|(id, _)| id).collect();
        assert_eq!(claimed, ids([21]));
    });
}

#[test]
fn a_claim_late_at_a_key_and_one_that_frees_it_do_not_deadlock() {
    RUNTIME.block_on(async {
        let world = World::new("late_and_free").await;
        let (first, late, frees) = (world.slow().await, world.slow().await, world.slow().await);
        let rows = "INSERT INTO slots (ref, used, most) VALUES ('a', 5, 10), ('z/k', 1, 1)";
        first.batch_execute(rows).await.expect("they are made");
        first.batch_execute("BEGIN; UPDATE slots SET used = 5 WHERE ref = 'a'").await.expect("it is locked");
        let schema = world.url.schema().to_owned();
        let count = |client: Client, delta: &str, shares: &str| {
            let counted = format!(
                "SELECT lost FROM {schema}.change_slots('{{a,z/k}}', '{delta}', '{{10,1}}', '{shares}')"
            );
            tokio::spawn(async move { client.query(&counted, &[]).await })
        };
        // It saw no row of the key. Meanwhile another transaction has taken the key, and now frees it.
        let late = count(late, "{1,1}", "{1,0}");
        world.until_a_call_waits("change_slots('{a,z/k}', '{1,1}'").await;
        let frees = count(frees, "{-1,-1}", "{1,1}");
        world.until_a_call_waits("change_slots('{a,z/k}', '{-1,-1}'").await;
        first.batch_execute("COMMIT").await.expect("it commits");
        let lost = late.await.expect("it ends").expect("it does not deadlock");
        assert_eq!(lost.iter().map(|row| row.get::<_, &str>(0)).collect::<Vec<_>>(), ["z/k"]);
        assert_eq!(frees.await.expect("it ends").expect("it does not deadlock").len(), 0);
    });
}

#[test]
fn a_job_whose_id_has_ended_before_can_end() {
    RUNTIME.block_on(async {
        let mut world = World::new("ended_before").await;
        world.submit(vec![job(1, "t"), job(2, "t")]).await;
        let held: Vec<Settle> = world.exchange(vec![], 2).await.into_iter().map(|(_, s)| s).collect();
        // Ids are unique; but if two jobs had one id, the end of one must not stop every exchange.
        let slow = world.slow().await;
        let ended = "INSERT INTO done SELECT (jsonb_populate_record(NULL::done, to_jsonb(j)
            || '{\"state\": \"cancelled\", \"finished_at\": 0}')).* FROM job j ORDER BY j.seq LIMIT 1";
        slow.batch_execute(ended).await.expect("it is put there");
        assert_eq!(world.exchange(held, 2).await, []);
        assert_eq!(world.store.drift().await.as_deref(), Ok("[]"));
    });
}

#[test]
fn a_job_that_leaves_the_line_wakes_the_next_one_of_its_key() {
    RUNTIME.block_on(async {
        let mut world = World::new("wakes_next").await;
        let key = |id| NewJob { key: Some(qo_core::Key::parse("key", "k").expect("a key")), ..job(id, "t") };
        world.store.set_limit("t/*".parse().expect("a group"), 1).await.expect("it is set");
        world.submit((1..=20).map(key).collect()).await;
        let held: Vec<Settle> = world.exchange(vec![], 5).await.into_iter().map(|(_, s)| s).collect();
        assert_eq!((held.len(), world.claims(5).await), (1, vec![]), "the others are parked");
        assert_eq!(world.exchange(held, 0).await, []);
        for id in [2, 3] {
            world.store.cancel(ids([id])).await.expect("a call")[0].as_ref().expect("it is there");
        }
        assert_eq!(world.claims(5).await, ids([4]));
    });
}

#[test]
fn a_full_group_keeps_no_other_group_of_its_task_back() {
    RUNTIME.block_on(async {
        let mut world = World::new("named_alike").await;
        for closed in ["t", "1"] {
            world.store.set_limit(GroupRef::Group(name(closed)), 0).await.expect("it is set");
        }
        let of_group = |id, group| NewJob { group: Some(name(group)), ..job(id, "t") };
        world.submit((1..=200).map(|id| of_group(id, "t")).collect()).await;
        world.submit(vec![of_group(201, "other")]).await;
        assert_eq!(world.claims(5).await, ids([201]));
    });
}

#[test]
fn a_job_that_ended_since_a_transaction_began_is_not_accepted_again() {
    RUNTIME.block_on(async {
        for level in ["REPEATABLE READ", "SERIALIZABLE"] {
            let mut world = World::new("ended_since").await;
            let mut slow = world.slow().await;
            let builder = slow.build_transaction();
            let open = if level == "SERIALIZABLE" {
                builder.isolation_level(tokio_postgres::IsolationLevel::Serializable)
            } else {
                builder.isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
            };
            let open = open.start().await.expect("it begins");
            open.query_one("SELECT count(*) FROM job", &[]).await.expect("a snapshot");
            world.submit(vec![job(1, "t")]).await;
            let held = world.exchange(vec![], 1).await.into_iter().map(|(_, settle)| settle).collect();
            world.exchange(held, 0).await;
            let again = world.store.submit_in(&open, vec![job(1, "t")]).await;
            assert_eq!(again.map_err(|error| error.kind()), Err(ErrorKind::Unavailable), "{level}");
            drop(open.rollback().await);
            assert_eq!(world.claims(5).await, []);
        }
    });
}

#[test]
fn a_claim_that_jumps_over_jobs_of_others_claims_none_twice() {
    RUNTIME.block_on(async {
        for limited in [false, true] {
            let mut world = World::new("others_behind").await;
            if limited {
                world.store.set_limit(GroupRef::Group(name("t")), 1_000).await.expect("it is set");
            }
            let task = |id| if id <= 80 || id > 380 { "t" } else { "foreign" };
            world.submit((1..=390).map(|id| job(id, task(id))).collect()).await;
            assert_eq!(world.claims(100).await, ids((1..=80).chain(381..=390)), "limited: {limited}");
            assert_eq!(world.store.drift().await.as_deref(), Ok("[]"));
        }
    });
}

/// The fronts move with every exchange.
const FAST: &str =
    "CREATE OR REPLACE FUNCTION era_ms() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 0::bigint'";

#[test]
fn no_job_that_enters_before_the_front_is_passed_over() {
    RUNTIME.block_on(async {
        for (level, submits_late) in [
            ("READ COMMITTED", false),
            ("READ COMMITTED", true),
            ("REPEATABLE READ", false),
            ("REPEATABLE READ", true),
        ] {
            let mut world = World::new("front").await;
            let slow = world.slow().await;
            slow.batch_execute(FAST).await.expect("it is replaced");
            world.submit((1..=100).map(|id| job(id, "t")).collect()).await;
            slow.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM line"))
                .await
                .expect("a snapshot");
            let submit = "SELECT submit('u', priority => -5)";
            if !submits_late {
                slow.batch_execute(submit).await.expect("it is stored");
            }
            let mut held = Vec::new();
            for _ in 0..5 {
                held = world.exchange(held, 10).await.into_iter().map(|(_, settle)| settle).collect();
                assert_eq!(held.len(), 10, "no claim waits");
            }
            let look = world.slow().await;
            let front = "SELECT count(*) FROM front WHERE seq > 0";
            let has_moved: i64 = look.query_one(front, &[]).await.expect("a look").get(0);
            assert_eq!(has_moved, i64::from(submits_late || level == "REPEATABLE READ"), "{level}");
            if submits_late {
                slow.batch_execute(submit).await.expect("it is stored");
            }
            slow.batch_execute("COMMIT").await.expect("it commits");
            let urgent =
                slow.query_one("SELECT id FROM job WHERE priority = -5", &[]).await.expect("a look").get(0);
            assert_eq!(world.claims(1).await, [JobId(urgent)], "{level}");
            for _ in 0..5 {
                held = world.exchange(held, 10).await.into_iter().map(|(_, settle)| settle).collect();
            }
            assert_eq!(world.claims(100).await, [], "every job has run");
            let left: i64 = look.query_one("SELECT count(*) FROM early", &[]).await.expect("a look").get(0);
            assert_eq!(left, 0);
        }
    });
}

#[test]
fn a_transaction_that_stays_open_does_not_slow_claims() {
    RUNTIME.block_on(async {
        let mut world = World::new("stays_open").await;
        let (slow, other) = (world.slow().await, world.slow().await);
        slow.batch_execute(FAST).await.expect("it is replaced");
        slow.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM line").await.expect("a snapshot");
        world.submit((1..=5_000).map(|id| job(id, "t")).collect()).await;
        let mut held = Vec::new();
        for _ in 0..49 {
            held = world.exchange(held, 100).await.into_iter().map(|(_, settle)| settle).collect();
            assert_eq!(held.len(), 100);
        }
        // No deleted row can be vacuumed: the open transaction might still read it.
        let session = world.open_session(2).await;
        other.batch_execute("BEGIN").await.expect("it begins");
        other.query(&slow_claim(session, 1, 100), &[]).await.expect("it claims");
        let read = "SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid))::bigint FROM pg_index WHERE indrelid = 'line'::regclass";
        let read: i64 = other.query_one(read, &[]).await.expect("a look").get(0);
        other.batch_execute("ROLLBACK").await.expect("it ends");
        slow.batch_execute("COMMIT").await.expect("it ends");
        assert!((100..1_500).contains(&read), "{read} rows were read for 100 jobs");
        assert_eq!(world.exchange(held, 100).await.len(), 100);
    });
}
