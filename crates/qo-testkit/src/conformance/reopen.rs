//! Reopening finished jobs, one by one or by a filter; and cancelling by a filter.

use super::history::{ended, for_ms, patient};
use super::*;

async fn change(world: &World, change: Change, filter: &JobFilter) -> Changed {
    world.store.change_matching(change, filter.clone(), None, caps::PAGE).await.expect("a valid call")
}

pub(super) async fn failed_cancelled_and_expired_jobs_may_be_reopened(world: &World) {
    let worker = patient(world).await;
    let spec = || job("t").attempts(2).key("k");
    let mut ids = Vec::new();
    for outcome in [failure(), Outcome::Cancelled] {
        ids.push(ended(world, &worker, spec(), outcome).await);
    }
    ids.push(world.submit(spec().good_until(START)).await);
    world.sweep().await;
    world.advance(5_000).await;
    for (id, tries) in ids.iter().zip([1, 1, 0]) {
        assert_eq!(world.retry(*id).await, Ok(JobState::Pending));
        let detail = world.detail(*id).await;
        let view = &detail.view;
        assert_eq!((view.state, view.run_at, view.finished_at), (JobState::Pending, at(5_000), None));
        assert_eq!((view.attempts_used, detail.attempts.len()), (0, tries), "what is remembered stays");
        assert_eq!((view.key.clone(), detail.output), (Some(key("k")), None));
    }
    let claimed = worker.claim(10).await;
    assert_eq!(worker::ids(&claimed), ids, "in the order of acceptance");
    assert!(claimed.iter().all(|job| job.attempt == 1), "with all attempts: {claimed:?}");
    assert_eq!(worker.settle(&claimed[0], retry(0)).await, Ok(JobState::Pending));
}

pub(super) async fn a_reopened_job_keeps_good_until_only_if_it_is_not_over(world: &World) {
    let worker = patient(world).await;
    let expired = world.submit(job("t").good_until(at(1_000))).await;
    world.advance(1_000).await;
    world.sweep().await;
    let failed = ended(world, &worker, job("t").good_until(at(9_000)), failure()).await;
    world.advance(1_000).await;
    for id in [expired, failed] {
        assert_eq!(world.retry(id).await, Ok(JobState::Pending));
    }
    let dates = (world.view(expired).await.good_until, world.view(failed).await.good_until);
    assert_eq!(dates, (None, Some(at(9_000))));
    world.advance(7_000).await;
    assert_eq!(world.sweep().await.expired, 1);
    assert_eq!(worker.claim_ids(10).await, [expired]);
}

pub(super) async fn a_retry_answers_for_each_job(world: &World) {
    let worker = patient(world).await;
    let succeeded = ended(world, &worker, job("t"), success()).await;
    let failed = ended(world, &worker, job("t"), failure()).await;
    let running = world.submit(job("t")).await;
    worker.claim_one().await;
    let pending = world.submit(job("t").run_at(at(9_000))).await;
    let (unknown, before) = (world.job_id(), world.view(pending).await);
    let answers = world.store.retry(vec![succeeded, failed, running, unknown, pending, failed]).await;
    let answers: Vec<_> =
        answers.expect("a valid call").into_iter().map(|a| a.map_err(|e| e.kind())).collect();
    let expected = [
        Err(ErrorKind::Conflict),
        Ok(JobState::Pending),
        Ok(JobState::Running),
        Err(ErrorKind::NotFound),
        Ok(JobState::Pending),
        Ok(JobState::Pending),
    ];
    assert_eq!(answers, expected);
    assert_eq!(world.view(pending).await, before, "a live job stays as it is");
}

pub(super) async fn a_job_that_waits_for_its_next_attempt_runs_now(world: &World) {
    let worker = patient(world).await;
    for outcome in [retry(60_000), snooze(60_000)] {
        let id = world.submit(job("t")).await;
        worker.settle(&worker.claim_one().await, outcome).await.expect("it owns the job");
        let before = world.view(id).await;
        assert_eq!(worker.claim(1).await, [], "it waits");
        world.advance(1_000).await;
        let now = world.store.now().await.expect("store time");
        assert_eq!(world.retry(id).await, Ok(JobState::Pending));
        assert_eq!(world.view(id).await, JobView { run_at: now, ..before }, "attempts used stay used");
        let claimed = worker.claim_one().await;
        assert_eq!(claimed.id, id);
        worker.succeed(&claimed).await;
    }
}

pub(super) async fn a_bulk_retry_ends_the_wait_for_the_next_attempt(world: &World) {
    let worker = patient(world).await;
    let ids = world.submit_many(3, job("t")).await;
    let claimed = worker.claim(2).await;
    for job in &claimed {
        worker.settle(job, retry(60_000)).await.expect("it owns the job");
    }
    let scheduled = world.submit(job("t").run_at(at(9_000))).await;
    let page = world.store.change_matching(Change::Retry, JobFilter::default(), None, 1).await;
    let page = page.expect("a valid call");
    assert_eq!((page.jobs, page.next.is_some()), (1, true), "page by page");
    assert_eq!(change(world, Change::Retry, &JobFilter::default()).await.jobs, 1, "the other that waits");
    assert_eq!(change(world, Change::Retry, &JobFilter::default()).await.jobs, 0);
    let mut found = worker.claim_ids(10).await;
    found.sort_unstable();
    assert_eq!(found, ids);
    assert_eq!(world.view(scheduled).await.run_at, at(9_000), "it was never tried");
}

pub(super) async fn a_reopened_job_is_checked_against_no_limit(world: &World) {
    let worker = patient(world).await;
    let id = ended(world, &worker, job("t").cost(3).or_reject(), failure()).await;
    world.set("t", 1).await;
    world.submit(job("t")).await;
    assert_eq!(world.retry(id).await, Ok(JobState::Pending));
    assert_eq!(world.status("t").await.live, 4);
}

pub(super) async fn a_reopened_job_keeps_its_group(world: &World) {
    let worker = patient(world).await;
    let id = ended(world, &worker, job("t"), failure()).await;
    world.register(TaskOptions { group: Some(name("new")), ..task("t") }).await;
    world.retry(id).await.expect("it failed");
    assert_eq!(world.view(id).await.group, name("t"));
}

pub(super) async fn an_old_token_changes_nothing_of_a_reopened_job(world: &World) {
    world.submit(job("t")).await;
    let worker = patient(world).await;
    let old = worker.claim_one().await;
    worker.settle(&old, failure()).await.expect("it owns the job");
    assert_eq!(world.retry(old.id).await, Ok(JobState::Pending));
    let before = world.view(old.id).await;
    assert_eq!(worker.settle(&old, success()).await, Ok(JobState::Failed), "what was recorded");
    assert_eq!(world.view(old.id).await, before);
    let new = worker.claim_one().await;
    assert_eq!(worker.settle(&old, success()).await, Ok(JobState::Failed));
    assert!(new.token > old.token);
    worker.succeed(&new).await;
}

pub(super) async fn a_reopened_job_is_no_longer_asked_to_stop(world: &World) {
    let id = world.submit(job("t")).await;
    let worker = patient(world).await;
    let claimed = worker.claim_one().await;
    assert_eq!(world.cancel(id).await, Ok(JobState::Running));
    assert_eq!(worker.settle(&claimed, retry(0)).await, Ok(JobState::Cancelled));
    assert_eq!(world.retry(id).await, Ok(JobState::Pending));
    let again = worker.claim_one().await;
    assert_eq!((worker.renew().await.stop, world.view(id).await.cancel_requested), (vec![], false));
    assert_eq!(worker.settle(&again, retry(0)).await, Ok(JobState::Pending), "and it is not cancelled");
}

pub(super) async fn a_reopened_job_is_remembered_from_its_new_end(world: &World) {
    world.remember(for_ms(1_000)).await;
    let worker = patient(world).await;
    let id = ended(world, &worker, job("t").once("a"), failure()).await;
    world.advance(DAY_MS - 1).await;
    world.retry(id).await.expect("it failed");
    world.advance(DAY_MS).await;
    assert_eq!(world.sweep().await.forgotten, 0, "a live job is never forgotten");
    assert_eq!(world.offer(job("t").once("a")).await, Ok(Submitted::Existing(id)));
    world.cancel(id).await.expect("it is there");
    world.advance(DAY_MS - 1).await;
    assert_eq!(world.sweep().await.forgotten, 0);
    world.advance(1).await;
    assert_eq!(world.sweep().await.forgotten, 1);
    refused(world.retry(id).await, ErrorKind::NotFound);
}

pub(super) async fn a_filter_is_cancelled_page_by_page(world: &World) {
    let specs = (0..10).map(|place| job(if place % 2 == 0 { "t" } else { "other" })).collect();
    let ids = world.submit_all(specs).await;
    let filter = JobFilter { task: Some(name("t")), ..JobFilter::default() };
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let page = world.store.change_matching(Change::Cancel, filter.clone(), after, 2).await;
        let page = page.expect("a valid call");
        let mut cancelled = 0;
        for id in &ids {
            cancelled += usize::from(world.state(*id).await == JobState::Cancelled);
        }
        pages.push((page.jobs, cancelled));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(pages, [(2, 2), (2, 4), (1, 5)]);
    assert_eq!(world.state(ids[1]).await, JobState::Pending, "it does not match");
    assert_eq!(change(world, Change::Cancel, &filter).await, Changed { jobs: 0, next: None });
}

pub(super) async fn a_page_that_is_full_and_last_has_no_next(world: &World) {
    world.submit_many(4, job("t")).await;
    let filter = JobFilter::default();
    let first = world.store.change_matching(Change::Cancel, filter.clone(), None, 2).await;
    let first = first.expect("a valid call");
    assert_eq!((first.jobs, first.next.is_some()), (2, true));
    let last = world.store.change_matching(Change::Cancel, filter, first.next, 2).await;
    assert_eq!(last, Ok(Changed { jobs: 2, next: None }));
}

pub(super) async fn a_bulk_cancel_asks_what_runs_to_stop_once(world: &World) {
    world.submit_many(3, job("t")).await;
    let worker = patient(world).await;
    let running = worker.claim_one().await;
    let claimed = worker.ahead_one().await;
    assert_eq!(change(world, Change::Cancel, &JobFilter::default()).await.jobs, 3);
    let states: Vec<_> = world.all_jobs().await.iter().map(|view| view.state).collect();
    assert_eq!(states, [JobState::Running, JobState::Cancelled, JobState::Cancelled]);
    assert_eq!(change(world, Change::Cancel, &JobFilter::default()).await.jobs, 0);
    let told: Vec<_> = worker.renew().await.stop.iter().map(|stop| stop.token).collect();
    assert_eq!(told, [running.token, claimed.token]);
}

pub(super) async fn a_bulk_retry_opens_what_can_be_opened(world: &World) {
    let worker = patient(world).await;
    let mut ids = Vec::new();
    for outcome in [success(), failure(), Outcome::Cancelled] {
        ids.push(ended(world, &worker, job("t"), outcome).await);
    }
    ids.push(world.submit(job("t").good_until(START)).await);
    world.sweep().await;
    ids.push(ended(world, &worker, step("off"), failure()).await);
    world.cancel_workflow("off").await.expect("it is there");
    ids.push(world.submit(job("t").run_at(at(9_000))).await);
    let states = |views: Vec<JobView>| views.iter().map(|view| view.state).collect::<Vec<_>>();
    let changed = change(world, Change::Retry, &JobFilter::default()).await;
    assert_eq!(changed, Changed { jobs: 3, next: None });
    let [pending, failed] = [JobState::Pending, JobState::Failed];
    let expected = [JobState::Succeeded, pending, pending, pending, failed, pending];
    assert_eq!(states(world.all_jobs().await), expected);
    assert_eq!(change(world, Change::Retry, &JobFilter::default()).await.jobs, 0);
}

pub(super) async fn a_bulk_change_keeps_to_its_filter(world: &World) {
    let spec = || job("t").queue("q").group("g").key("k").workflow("w");
    let others = vec![
        spec().queue("x"),
        spec().group("x"),
        spec().key("x"),
        spec().workflow("x"),
        JobSpec { new: qo_core::NewJob { task: name("x"), ..spec().new }, ..spec() },
    ];
    let others = world.submit_all(others).await;
    let ids = world.submit_many(2, spec()).await;
    let running = world.worker("w1", ["t"]).await.claim(10).await;
    let filter = JobFilter {
        states: vec![JobState::Pending],
        queue: Some(name("q")),
        task: Some(name("t")),
        group: Some(name("g")),
        key: Some(key("k")),
        workflow: Some(name("w")),
        ..JobFilter::default()
    };
    assert_eq!(change(world, Change::Cancel, &filter).await.jobs, 2);
    for id in ids {
        assert_eq!(world.state(id).await, JobState::Cancelled);
    }
    for id in others {
        assert!(!world.state(id).await.is_terminal(), "{running:?}");
    }
    let failed = JobFilter { states: vec![JobState::Failed], ..JobFilter::default() };
    assert_eq!(change(world, Change::Retry, &failed).await.jobs, 0, "they were cancelled");
}

pub(super) async fn a_bulk_change_goes_on_behind_its_cursor(world: &World) {
    let ids = world.submit_many(5, job("t")).await;
    let page = async |change, after| {
        let page = world.store.change_matching(change, JobFilter::default(), after, 2).await;
        page.expect("a valid call")
    };
    let first = page(Change::Cancel, None).await;
    assert_eq!(world.retry(ids[0]).await, Ok(JobState::Pending));
    let second = page(Change::Cancel, first.next).await;
    assert_eq!((second.jobs, world.state(ids[0]).await), (2, JobState::Pending), "it was behind us");
    assert_eq!(page(Change::Cancel, second.next).await, Changed { jobs: 1, next: None });
    let first = page(Change::Retry, None).await;
    assert_eq!((first.jobs, first.next.is_some()), (2, true));
    assert_eq!(world.cancel(ids[1]).await, Ok(JobState::Cancelled));
    assert_eq!(page(Change::Retry, first.next).await, Changed { jobs: 2, next: None });
    assert_eq!(world.state(ids[1]).await, JobState::Cancelled);
}

pub(super) async fn a_reopened_job_brings_its_limit_again(world: &World) {
    let worker = patient(world).await;
    let of_key = ended(world, &worker, job("t").key("k").limit(1), failure()).await;
    let of_group = ended(world, &worker, job("t").limit(2), Outcome::Cancelled).await;
    assert_eq!((world.limit("t/k").await, world.limit("t").await), (None, None), "they have ended");
    for id in [of_key, of_group] {
        assert_eq!(world.retry(id).await, Ok(JobState::Pending));
    }
    let status = world.status("t/k").await;
    assert_eq!((status.limit, status.source), (Some(1), Some(LimitSource::Submit)));
    assert_eq!(world.limit("t").await, Some(2));
    let again = ended(world, &worker, job("t").key("k").limit(5).priority(-1), failure()).await;
    assert_eq!((world.retry(of_key).await, world.limit("t/k").await), (Ok(JobState::Pending), Some(5)));
    let filter = JobFilter { states: vec![JobState::Failed], ..JobFilter::default() };
    assert_eq!(world.cancel(of_key).await, Ok(JobState::Cancelled));
    assert_eq!((world.limit("t/k").await, change(world, Change::Retry, &filter).await.jobs), (None, 1));
    assert_eq!((world.limit("t/k").await, world.state(again).await), (Some(5), JobState::Pending));
}
