//! Tokens that are bound to queues, apps or scopes: what they see and what they may say.

use super::client::remote_as;
use super::{Rights, create, name};
use crate::stage::{Served, block_on};
use qo_core::Scope::{Admin, Read, Submit, Work};
use qo_core::{Cause, Change, Claim, Configuration, Cursor, Error, ErrorKind, Exchange, GroupRef, JobFilter};
use qo_core::{JobId, JobState, LeaseId, MemoryStore, NewJob, NewSession, Reason, Schedule, SessionId};
use qo_core::{Scope, SlotRequest, Store, TaskOptions};
use qo_wire::RemoteStore;
use std::sync::Arc;
use uuid::Uuid;

fn id(n: u128) -> JobId {
    JobId(Uuid::from_u128(0x0198_c0de_0000_7000_8000_0000_0000_0000 | n))
}

fn job(n: u128, queue: &str) -> NewJob {
    NewJob { queue: name(queue), group: Some(name("shared")), ..NewJob::new(id(n), name("send")) }
}

fn session(n: u128, queues: &[&str]) -> NewSession {
    NewSession {
        id: SessionId(Uuid::from_u128(0x4000_8000_0000_0000_0000 | n)),
        worker: name("w"),
        queues: queues.iter().map(|queue| name(queue)).collect(),
        tasks: vec![name("send")],
        lease_ms: 60_000,
        permits: 10,
        owner: None,
    }
}

/// A server of a store, and an operator who creates tokens there, so that they count at once.
struct Here {
    store: Arc<MemoryStore>,
    served: Served,
    ops: RemoteStore,
}

/// A store with 40 jobs, every fourth one in queue `a`, `b`, `c` and `d`.
async fn stage() -> Here {
    let store = Arc::new(MemoryStore::new());
    let jobs = (0..40).map(|n| job(n, ["a", "b", "c", "d"][n as usize % 4])).collect();
    store.submit(jobs).await.expect("stored");
    let ops = create(&*store, "ops", Rights { scopes: &[Admin], ..Rights::default() }).await;
    let served = Served::start(Arc::clone(&store) as Arc<dyn Store>).await;
    let ops = remote_as(&served, &ops).await;
    Here { store, served, ops }
}

async fn bound(here: &Here, scopes: &[Scope], queues: &[&str]) -> RemoteStore {
    let called: Vec<_> = scopes.iter().map(|scope| scope.as_str()).chain(queues.iter().copied()).collect();
    let rights = Rights { scopes, queues, ..Rights::default() };
    remote_as(&here.served, &create(&here.ops, &called.join("-"), rights).await).await
}

fn is_refused<T>(answer: Result<T, Error>) -> bool {
    answer.is_err_and(|error| error.cause() == Some(Cause::NotAllowed))
}

async fn all_pages(store: &RemoteStore, filter: &JobFilter, limit: usize) -> (Vec<JobId>, usize) {
    let (mut jobs, mut after, mut pages) = (Vec::new(), None::<Cursor>, 0);
    loop {
        let page = store.jobs(filter.clone(), after, limit).await.expect("a page");
        assert!(page.jobs.len() <= limit, "a page is never longer than asked for");
        jobs.extend(page.jobs.iter().map(|job| job.id));
        pages += 1;
        after = page.next;
        if after.is_none() {
            return (jobs, pages);
        }
    }
}

#[test]
fn lists_hold_the_jobs_of_the_tokens_own_queues_and_no_others() {
    block_on(async {
        let stage = stage().await;
        let one = bound(&stage, &[Read], &["b"]).await;
        let two = bound(&stage, &[Read], &["a", "c"]).await;
        for newest_first in [false, true] {
            let filter = JobFilter { newest_first, ..JobFilter::default() };
            for limit in [1, 3, 7, 100] {
                let due = |queues: &[u128]| {
                    let mut due: Vec<JobId> = (0..40).filter(|n| queues.contains(&(n % 4))).map(id).collect();
                    if newest_first {
                        due.reverse();
                    }
                    due
                };
                assert_eq!(all_pages(&one, &filter, limit).await.0, due(&[1]), "{limit}");
                assert_eq!(all_pages(&two, &filter, limit).await.0, due(&[0, 2]), "{limit}");
            }
        }
        let own = JobFilter { queue: Some(name("c")), ..JobFilter::default() };
        assert_eq!(two.jobs(own, None, 100).await.expect("a page").jobs.len(), 10);
        let foreign = JobFilter { queue: Some(name("b")), ..JobFilter::default() };
        assert!(is_refused(two.jobs(foreign, None, 100).await));
        let shown: Vec<_> =
            two.queues().await.expect("queues").into_iter().map(|queue| queue.queue).collect();
        assert_eq!(shown, [name("a"), name("c")]);
    });
}

#[test]
fn a_foreign_job_is_not_found_and_stays_as_it_was() {
    block_on(async {
        let stage = stage().await;
        let admin = bound(&stage, &[Admin], &["a", "b"]).await;
        for foreign in [admin.job(id(2)).await.err(), admin.explain(id(2)).await.err()] {
            let missing = admin.job(id(77)).await.expect_err("there is none");
            let (foreign, missing) = (foreign.expect("not found"), missing.to_string());
            assert_eq!(foreign.to_string().replace(&id(2).to_string(), &id(77).to_string()), missing);
        }
        let outcomes = admin.cancel(vec![id(0), id(2), id(77), id(1)]).await.expect("a call");
        let kinds: Vec<_> = outcomes.iter().map(|outcome| outcome.as_ref().map_err(Error::kind)).collect();
        let gone = Err(ErrorKind::NotFound);
        assert_eq!(kinds, [Ok(&JobState::Cancelled), gone, gone, Ok(&JobState::Cancelled)]);
        assert_eq!(stage.store.job(id(2)).await.expect("a job").view.state, JobState::Pending);
        assert!(is_refused(admin.change_matching(Change::Cancel, JobFilter::default(), None, 100).await));
        let own = JobFilter { queue: Some(name("a")), ..JobFilter::default() };
        assert_eq!(
            admin.change_matching(Change::Cancel, own, None, 100).await.map(|changed| changed.jobs),
            Ok(9)
        );
        let single = bound(&stage, &[Admin], &["c"]).await;
        let changed = single.change_matching(Change::Cancel, JobFilter::default(), None, 100).await;
        assert_eq!(
            changed.map(|changed| changed.jobs),
            Ok(10),
            "a filter without a queue means its one queue"
        );
        let open = JobFilter { states: vec![JobState::Pending], ..JobFilter::default() };
        let left = stage.store.jobs(open, None, 100).await.expect("a page").jobs;
        assert!(left.iter().all(|job| *job.queue == *"b" || *job.queue == *"d"), "{left:?}");
        assert_eq!(left.len(), 19);
    });
}

#[test]
fn what_belongs_to_several_queues_is_refused_to_a_bound_token() {
    block_on(async {
        let stage = stage().await;
        let admin = bound(&stage, &[Admin], &["a"]).await;
        let shared = || GroupRef::Group(name("shared"));
        assert!(is_refused(admin.groups(None, 10).await) && is_refused(admin.group(shared()).await));
        assert!(is_refused(admin.set_limit(shared(), 1).await) && is_refused(admin.tokens().await));
        assert!(is_refused(admin.pause_queue(name("b"), true).await));
        assert!(is_refused(admin.submit(vec![job(50, "a"), job(51, "b")]).await));
        assert!(stage.store.job(id(50)).await.is_err(), "nothing of the call is stored");
        admin.pause_queue(name("a"), true).await.expect("its own");
        admin.set_limit(GroupRef::Queue(name("a")), 3).await.expect("its own");
        assert!(admin.group(GroupRef::Queue(name("a"))).await.is_ok());
        for queues in [&[][..], &["b"], &["a", "b"]] {
            assert!(is_refused(admin.open_session(session(1, queues)).await), "{queues:?}");
        }
        admin.open_session(session(1, &["a"])).await.expect("its own");
        let mut configuration = Configuration::default();
        configuration.queue_priorities.insert(name("b"), 1);
        assert!(is_refused(admin.configure(configuration).await));
        let mut configuration = Configuration::default();
        configuration.limits.insert(GroupRef::Cluster, 0);
        assert!(is_refused(admin.configure(configuration).await));
    });
}

#[test]
fn an_explanation_names_no_foreign_job() {
    block_on(async {
        let stage = stage().await;
        stage.store.set_limit(GroupRef::Group(name("shared")), 1).await.expect("set");
        stage.store.open_session(session(1, &["d"])).await.expect("a session");
        let claim = Claim { max: 1, ..Claim::default() };
        let exchange = Exchange { claim, ..Exchange::renew(session(1, &[]).id, 1) };
        let claimed = stage.store.exchange(exchange).await.expect("a claim").claimed;
        assert_eq!(claimed.len(), 1, "a job of queue d holds the only slot");
        let token = claimed[0].token;
        stage.store.keep_log(token, "foreign".into()).await.expect("kept");
        let one = bound(&stage, &[Read], &["a"]).await;
        let told = one.explain(id(0)).await.expect("its own");
        let full = |reason: &&Reason| matches!(reason, Reason::GroupFull { .. });
        let reason = told.reasons.iter().find(full).expect("the group is full");
        assert!(matches!(reason, Reason::GroupFull { holders, .. } if holders.is_empty()), "{reason:?}");
        assert_eq!(one.log(token).await.expect("a call"), None, "nor its log, by a guessed number");
        let shown = one.workers().await.expect("workers");
        assert!(shown.is_empty(), "nor workers that serve foreign queues: {shown:?}");
        let every = bound(&stage, &[Read], &[]).await;
        assert_eq!(every.log(token).await.expect("a call").as_deref(), Some("foreign"));
    });
}

#[test]
fn a_token_of_an_app_pushes_for_that_app_alone() {
    block_on(async {
        let stage = stage().await;
        let rights = Rights { scopes: &[Work], app: Some("shop"), ..Rights::default() };
        let shop = remote_as(&stage.served, &create(&stage.ops, "shop", rights).await).await;
        assert!(is_refused(shop.configure(Configuration::default()).await));
        assert!(is_refused(shop.register(vec![TaskOptions::new(name("send"))]).await));
        shop.configure(Configuration::of(name("shop"))).await.expect("its own");
        let own = TaskOptions { app: name("shop"), ..TaskOptions::new(name("send")) };
        shop.register(vec![own]).await.expect("its own");
        assert!(
            is_refused(shop.tokens().await) && is_refused(shop.jobs(JobFilter::default(), None, 1).await)
        );
    });
}

#[test]
fn schedules_of_foreign_queues_are_left_out() {
    block_on(async {
        let stage = stage().await;
        let mut configuration = Configuration::default();
        for queue in ["a", "b"] {
            let schedule: Schedule = serde_json::from_value(
                serde_json::json!({ "cron": "0 3 * * *", "task": "send", "queue": queue }),
            )
            .expect("a schedule");
            configuration.schedules.insert(name(&format!("nightly-{queue}")), schedule);
        }
        stage.store.configure(configuration).await.expect("pushed");
        let one = bound(&stage, &[Read], &["b"]).await;
        let shown: Vec<_> =
            one.schedules().await.expect("schedules").into_iter().map(|status| status.schedule).collect();
        assert_eq!(shown, [name("nightly-b")]);
    });
}

#[test]
fn a_submitter_can_wait_for_its_job_and_do_no_more() {
    block_on(async {
        let stage = stage().await;
        let shop = bound(&stage, &[Submit], &["a"]).await;
        shop.submit(vec![job(60, "a")]).await.expect("stored").remove(0).expect("accepted");
        assert_eq!(shop.job(id(60)).await.expect("its job").view.state, JobState::Pending);
        shop.explain(id(60)).await.expect("its job");
        shop.changed(None).await.expect("it hears of changes");
        assert!(is_refused(shop.jobs(JobFilter::default(), None, 1).await));
        assert!(is_refused(shop.cancel(vec![id(60)]).await) && is_refused(shop.queues().await));
    });
}

#[test]
fn the_id_of_a_lease_is_shown_to_admins_alone() {
    block_on(async {
        let stage = stage().await;
        let group = || GroupRef::Group(name("gpu"));
        let lease = LeaseId(Uuid::from_u128(0x7777_0000_0000_4000_8000_0000_0000_0001));
        let request = SlotRequest { limit: Some(2), ..SlotRequest::new(lease, group(), name("p"), 60_000) };
        let held = stage.store.acquire_slots(request).await.expect("a call").expect("a slot");
        let reader = bound(&stage, &[Read, Work], &[]).await;
        let shown = serde_json::to_string(&reader.group(group()).await.expect("a group")).expect("JSON");
        assert!(!shown.contains(&lease.0.to_string()), "{shown}");
        let guessed = LeaseId(Uuid::nil());
        let refused = reader.return_slots(guessed, held.token).await.map_err(|error| error.kind());
        assert_eq!(refused, Err(ErrorKind::Fenced), "the number alone returns nothing");
        let admin = bound(&stage, &[Admin], &[]).await;
        let shown = serde_json::to_string(&admin.group(group()).await.expect("a group")).expect("JSON");
        assert!(shown.contains(&lease.0.to_string()), "{shown}");
    });
}
