//! Progress: what running jobs report about themselves. No rule depends on it.

use super::*;

/// A job's progress, and since when it reports that.
async fn seen(world: &World, job: JobId) -> Option<(u8, String, Time)> {
    let progress = world.view(job).await.running?.progress?;
    Some((progress.percent, progress.note.into(), progress.at))
}

pub(super) async fn a_running_job_shows_its_newest_progress(world: &World) {
    let job = world.submit(job("t")).await;
    let worker = world.worker("w", ["t"]).await;
    let held = worker.claim_one().await;
    assert_eq!(seen(world, job).await, None, "it has not said anything");
    worker.report(vec![at_percent(&held, 10, "reading")]).await;
    assert_eq!(seen(world, job).await, Some((10, "reading".into(), at(0))));
    world.advance(5).await;
    worker.report(vec![at_percent(&held, 0, "")]).await;
    assert_eq!(seen(world, job).await, Some((0, String::new(), at(5))), "it may go back");
    world.advance(5).await;
    worker.report(vec![at_percent(&held, 0, "")]).await;
    assert_eq!(seen(world, job).await, Some((0, String::new(), at(5))), "the same again is not news");
    worker.succeed(&held).await;
}

pub(super) async fn of_several_reports_on_one_job_the_last_counts(world: &World) {
    let jobs = world.submit_many(2, job("t")).await;
    let worker = world.worker("w", ["t"]).await;
    let held = worker.claim(2).await;
    let other = Progress { job: jobs[1], ..at_percent(&held[0], 99, "another's") };
    let (first, last) = (at_percent(&held[0], 70, "first"), at_percent(&held[0], 20, "last"));
    worker.report(vec![first, at_percent(&held[1], 50, ""), last, other]).await;
    assert_eq!(seen(world, jobs[0]).await, Some((20, "last".into(), at(0))));
    assert_eq!(seen(world, jobs[1]).await, Some((50, String::new(), at(0))));
}

pub(super) async fn progress_is_gone_when_the_attempt_ends(world: &World) {
    let job = world.submit(job("t").attempts(5)).await;
    let worker = world.worker("w", ["t"]).await;
    for outcome in [retry(0), snooze(0), Outcome::Release] {
        let held = worker.claim_one().await;
        assert_eq!(seen(world, job).await, None, "a new attempt has not said anything");
        worker.report(vec![at_percent(&held, 90, "nearly")]).await;
        assert_eq!(worker.settle(&held, outcome).await, Ok(JobState::Pending));
        assert_eq!(world.view(job).await.running, None);
    }
    let held = worker.claim_one().await;
    worker.report(vec![at_percent(&held, 90, "nearly")]).await;
    world.advance(30_000).await;
    let other = world.worker("v", ["t"]).await;
    assert_eq!(other.claim_ids(1).await, [job], "the lease has ended");
    assert_eq!(seen(world, job).await, None);
}

pub(super) async fn a_report_with_an_old_token_is_passed_over(world: &World) {
    let job = world.submit(job("t")).await;
    let (slow, other) = (world.worker("w", ["t"]).await, world.worker("w", ["t"]).await);
    let lost = slow.claim_one().await;
    let group = group_ref("t");
    world.store.release_slot(group, lost.token).await.expect("it is held");
    let held = other.claim_one().await;
    other.report(vec![at_percent(&held, 5, "anew")]).await;
    let told = slow.send(Exchange { progress: vec![at_percent(&lost, 95, "old")], ..slow.next() }).await;
    assert_eq!(told.expect("a courtesy is not refused").stop.len(), 1, "it is told to stop, as ever");
    assert_eq!(seen(world, job).await, Some((5, "anew".into(), at(0))));
    other.succeed(&held).await;
    slow.report(vec![at_percent(&lost, 95, "old")]).await;
    assert_eq!(world.state(job).await, JobState::Succeeded);
}

pub(super) async fn only_the_owner_of_a_job_reports_progress(world: &World) {
    let jobs = world.submit_many(2, job("t")).await;
    let (owner, other) = (world.worker("w", ["t"]).await, world.worker("w", ["t"]).await);
    let held = owner.claim_one().await;
    other.report(vec![at_percent(&held, 50, "not mine")]).await;
    assert_eq!(seen(world, jobs[0]).await, None);
    let ahead = other.ahead_one().await;
    other.report(vec![at_percent(&ahead, 50, "not started")]).await;
    assert_eq!(world.view(jobs[1]).await.claimed.and_then(|claimed| claimed.progress), None);
    let running = other.run(&ahead).await;
    assert_eq!(seen(world, jobs[1]).await, None);
    other.report(vec![at_percent(&ahead, 50, "the claim's token"), at_percent(&running, 1, "")]).await;
    assert_eq!(seen(world, jobs[1]).await, Some((1, String::new(), at(0))));
    let unknown = Progress { job: world.job_id(), ..at_percent(&held, 50, "") };
    owner.report(vec![unknown]).await;
    assert_eq!(seen(world, jobs[0]).await, None);
}

pub(super) async fn what_is_settled_in_the_same_exchange_reports_nothing(world: &World) {
    let job = world.submit(job("t")).await;
    let worker = world.worker("w", ["t"]).await;
    let held = worker.claim_one().await;
    let (settles, progress) = (vec![settled(&held, retry(0))], vec![at_percent(&held, 100, "done")]);
    let claim = Claim { max: 1, ..Claim::default() };
    let exchange = Exchange { settles, progress, claim, ..worker.next() };
    let reply = worker.send(exchange).await.expect("the session is live");
    assert_eq!(reply.claimed[0].id, job, "it is granted again in the same step");
    assert_eq!(seen(world, job).await, None);
}

pub(super) async fn a_repeated_exchange_reports_nothing_again(world: &World) {
    let job = world.submit(job("t")).await;
    let worker = world.worker("w", ["t"]).await;
    let held = worker.claim_one().await;
    worker.report(vec![at_percent(&held, 10, "")]).await;
    world.advance(7).await;
    worker.repeat().await.expect("the same answer");
    assert_eq!(seen(world, job).await, Some((10, String::new(), at(0))));
}

pub(super) async fn progress_renews_nothing_by_itself(world: &World) {
    let job = world.submit(job("t").timeout(1_000)).await;
    let worker = world.worker("w", ["t"]).await;
    let held = worker.claim_one().await;
    let until = world.view(job).await.running.map(|running| running.lease_until);
    world.advance(900).await;
    worker.report(vec![at_percent(&held, 99, "any moment now")]).await;
    assert_eq!(world.view(job).await.running.map(|running| running.lease_until), until);
    world.advance(10_100).await;
    assert_eq!(world.sweep().await.attempts, 1, "its timeout is over, whatever it says");
}

pub(super) async fn a_long_note_is_cut_and_not_refused(world: &World) {
    let job = world.submit(job("t")).await;
    let worker = world.worker("w", ["t"]).await;
    let held = worker.claim_one().await;
    worker.report(vec![at_percent(&held, 1, &format!("a\0{}", "ü".repeat(caps::NOTE_BYTES)))]).await;
    let (_, note, _) = seen(world, job).await.expect("it has said something");
    assert!(note.starts_with("a\u{1a}ü") && note.len() == caps::NOTE_BYTES, "{note}");
}

pub(super) async fn a_bad_report_is_invalid_as_a_whole_exchange(world: &World) {
    let job = world.submit(job("t")).await;
    let worker = world.worker("w", ["t"]).await;
    let held = worker.claim_one().await;
    let progress = vec![at_percent(&held, 100, ""), at_percent(&held, 101, "")];
    invalid(worker.send(Exchange { progress, ..worker.next() }).await, "progress[1].percent", "101");
    let progress = vec![at_percent(&held, 1, ""); caps::PROGRESS + 1];
    invalid(worker.send(Exchange { progress, ..worker.next() }).await, "progress", "10001");
    assert_eq!(seen(world, job).await, None);
    worker.report(vec![at_percent(&held, 1, ""); caps::PROGRESS]).await;
    assert_eq!(seen(world, job).await, Some((1, String::new(), at(0))));
}
