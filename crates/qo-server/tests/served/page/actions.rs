//! What people do on the page: said before, done once, and only from their own forms.

use super::visitor::Visitor;
use super::world::{World, job, name, token, world};
use crate::stage::block_on;
use qo_core::{ErrorKind, GroupRef, JobState, Scope, Store, WorkflowState};

async fn visit() -> (World, Visitor) {
    let world = world().await;
    let visitor = Visitor::of(world.store.clone()).await;
    (world, visitor)
}

fn group(text: &str) -> GroupRef {
    text.parse().expect("a group")
}

async fn limit(world: &World, of: &str) -> Option<u32> {
    world.store.group(group(of)).await.expect("a group").status.limit
}

async fn state(world: &World, n: u128) -> JobState {
    world.store.job(job(n)).await.expect("a job").view.state
}

#[test]
fn a_limit_is_set_and_taken_back() {
    block_on(async {
        let (world, visitor) = visit().await;
        let (asked, after) = visitor.press("/groups/resize", "set-limit", &[("limit", "3")]).await;
        assert!(asked.body.contains("Raising resize from 1 to 3"), "{}", asked.body);
        assert!(after.body.contains("The limit is set."), "{}", after.body);
        assert_eq!(limit(&world, "resize").await, Some(3));
        let (asked, _) = visitor.press("/groups/resize", "set-limit", &[("limit", "0")]).await;
        assert!(asked.body.contains("Holding resize: 1 slot is taken now"), "{}", asked.body);
        assert_eq!(limit(&world, "resize").await, Some(0));
        let (asked, _) = visitor.press("/groups/resize", "unset-limit", &[]).await;
        assert!(
            asked.body.contains("The configuration&#39;s limit of 1")
                || asked.body.contains("The configuration's limit of 1"),
            "{}",
            asked.body
        );
        assert_eq!(limit(&world, "resize").await, Some(1));
        let wild = "/groups/api%2F..%2F..%2F%3Fx%3D%3Cb%3E%23";
        visitor.press(wild, "set-limit", &[("limit", "7")]).await;
        assert_eq!(limit(&world, "api/../../?x=<b>#").await, Some(7));
    });
}

#[test]
fn a_queue_is_paused_and_resumed() {
    block_on(async {
        let (world, visitor) = visit().await;
        let slow = async || {
            let queues = world.store.queues().await.expect("a list");
            queues.into_iter().find(|queue| *queue.queue == *"slow").expect("it is there").paused
        };
        let (asked, _) = visitor.press("/queues", "resume-queue", &[]).await;
        assert!(asked.body.contains("1 job in line may start at once"), "{}", asked.body);
        assert!(!slow().await);
        let (asked, after) = visitor.press("/queues", "pause-queue", &[("queue", "slow")]).await;
        assert!(asked.body.contains("Jobs are still taken in"), "{}", asked.body);
        assert!(after.body.contains("The queue is paused.") && slow().await);
    });
}

#[test]
fn a_slot_is_released_and_jobs_are_cancelled_and_retried() {
    block_on(async {
        let (world, visitor) = visit().await;
        let (asked, after) = visitor.press("/groups/resize", "release-slot", &[]).await;
        assert!(asked.body.contains("on worker-1 holds 1 slot"), "{}", asked.body);
        assert!(after.body.contains("The slot is free."), "{}", after.body);
        assert_eq!(state(&world, 3).await, JobState::Failed, "its only attempt is used");
        let page = format!("/jobs/{}", job(4).0);
        visitor.press(&page, "cancel-job", &[]).await;
        assert_eq!(state(&world, 4).await, JobState::Cancelled);
        let (_, after) = visitor.press(&page, "retry-job", &[]).await;
        assert!(after.body.contains("The job is in line again."), "{}", after.body);
        assert_eq!(state(&world, 4).await, JobState::Pending);
    });
}

#[test]
fn a_bulk_change_says_what_it_meets_and_changes_no_other_job() {
    block_on(async {
        let (world, visitor) = visit().await;
        let (asked, after) = visitor.press("/jobs?state=pending&task=mail", "cancel-jobs", &[]).await;
        assert!(asked.body.contains("Cancel every pending job of task mail?"), "{}", asked.body);
        assert!(asked.body.contains("1 job matches now"), "{}", asked.body);
        assert!(after.body.contains("1 job cancelled or asked to stop."), "{}", after.body);
        assert_eq!(
            (state(&world, 5).await, state(&world, 4).await),
            (JobState::Cancelled, JobState::Pending)
        );
        let (_, after) = visitor.press("/jobs?state=cancelled", "retry-jobs", &[]).await;
        assert!(after.body.contains("1 job in line again."), "{}", after.body);
        assert_eq!(state(&world, 5).await, JobState::Pending);
    });
}

#[test]
fn a_halted_workflow_goes_on_or_is_cancelled() {
    block_on(async {
        let (world, visitor) = visit().await;
        let import = async || world.store.workflow(name("import")).await.expect("it is there").state;
        assert_eq!(import().await, WorkflowState::Halted);
        let (asked, _) = visitor.press("/workflows/import", "retry-step", &[]).await;
        assert!(asked.body.contains("The 1 step behind it"), "{}", asked.body);
        assert_eq!((import().await, state(&world, 1).await), (WorkflowState::Active, JobState::Pending));
        let (asked, _) = visitor.press("/workflows/import", "cancel-workflow", &[]).await;
        assert!(asked.body.contains("2 steps that have not ended"), "{}", asked.body);
        assert_eq!(import().await, WorkflowState::Cancelled);

        let (world, visitor) = visit().await;
        visitor.press("/workflows/import", "skip-step", &[]).await;
        let status = world.store.workflow(name("import")).await.expect("it is there");
        assert_eq!((status.state, status.head.map(|head| head.step)), (WorkflowState::Active, Some(2)));
    });
}

#[test]
fn a_schedule_is_disabled_enabled_and_run_once_per_form() {
    block_on(async {
        let (world, visitor) = visit().await;
        let enabled = async || world.store.schedules().await.expect("a list").remove(0).enabled;
        visitor.press("/schedules", "disable-schedule", &[]).await;
        assert!(!enabled().await);
        visitor.press("/schedules", "enable-schedule", &[]).await;
        assert!(enabled().await);
        let path = "/actions/trigger-schedule";
        let asked = visitor.page(&format!("{path}?schedule=nightly")).await;
        assert!(asked.body.contains("One report job is submitted now."), "{}", asked.body);
        for _ in 0..2 {
            let done = visitor.post(path, &asked.form(path)).await;
            assert_eq!(done.status, 303, "{}", done.body);
        }
        let due: u64 = world.store.queues().await.expect("a list").iter().map(|queue| queue.due).sum();
        let jobs = visitor.page("/jobs?task=report").await.body.matches("<tr id=\"job-").count();
        assert_eq!(jobs, 1, "{due} in line");
    });
}

#[test]
fn a_token_is_revoked_and_the_audit_log_knows() {
    block_on(async {
        let (world, visitor) = visit().await;
        let ada = token(&*world.store, "ada", Scope::Admin, 3).await;
        let ci = token(&*world.store, "ci", Scope::Submit, 7).await;
        let visitor = visitor.with(&ada);
        let (asked, after) =
            visitor.press("/tokens", "revoke-token", &[("token", &ci.id().to_string())]).await;
        assert!(asked.body.contains("Revoke token ci?") && asked.body.contains("submit"), "{}", asked.body);
        assert!(after.body.contains("The token is revoked."), "{}", after.body);
        let left = world.store.tokens().await.expect("a list");
        assert_eq!(left.iter().map(|token| token.id).collect::<Vec<_>>(), [ada.id()]);
        let audit = visitor.page("/audit").await.body;
        assert!(audit.contains("&lt;ada&gt;@laptop") && audit.contains("revoke"), "{audit}");
        for hidden in [ada, ci] {
            let secret = hidden.secret_text();
            assert!(
                !audit.contains(&secret[12..]) && !after.body.contains(&secret[12..]),
                "a secret is shown"
            );
        }
    });
}

#[test]
fn a_form_without_its_own_token_changes_nothing() {
    block_on(async {
        let (world, visitor) = visit().await;
        let path = "/actions/set-limit";
        let own = visitor.page(&format!("{path}?group=resize&limit=5")).await.form(path);
        let with = |token: Option<&str>| {
            let mut fields: Vec<_> = own.iter().filter(|(name, _)| name != "form_token").cloned().collect();
            fields.extend(token.map(|token| ("form_token".to_owned(), token.to_owned())));
            fields
        };
        let mine = own.iter().find(|(name, _)| name == "form_token").expect("it has one").1.clone();
        for token in [None, Some(""), Some("0"), Some(&mine[1..]), Some(&format!("{mine}0"))] {
            let answer = visitor.post(path, &with(token)).await;
            assert_eq!(answer.status, 403, "{token:?}");
        }
        assert_eq!(limit(&world, "resize").await, Some(1));
        assert_eq!(visitor.post(path, &with(Some(&mine))).await.status, 303);
        assert_eq!(limit(&world, "resize").await, Some(5));
    });
}

#[test]
fn a_get_changes_nothing_and_a_bad_value_is_refused_before() {
    block_on(async {
        let (world, visitor) = visit().await;
        visitor.page("/actions/set-limit?group=resize&limit=5").await;
        visitor.page("/actions/pause-queue?queue=default").await;
        assert_eq!(limit(&world, "resize").await, Some(1));
        for (path, status) in [
            ("set-limit?group=resize&limit=-1", 400),
            ("set-limit?group=resize&limit=1000001", 400),
            ("set-limit?group=a%20b&limit=1", 400),
            ("release-slot?group=resize&slot=999999", 404),
            ("cancel-job?job=nonsense", 400),
            ("retry-job?job=019a8a5e-7c1b-7a10-9d43-00000000ffff", 404),
            ("revoke-token?token=zzzz9999", 404),
            ("unset-limit?group=resize", 404),
            ("cancel-jobs?state=wild", 400),
        ] {
            let answer = visitor.get(&format!("/actions/{path}")).await;
            assert_eq!(answer.status, status, "{path}: {}", answer.body);
        }
        let gone = world.store.group(group("nothing")).await.map_err(|error| error.kind());
        assert_eq!(gone.err(), Some(ErrorKind::NotFound));
    });
}
