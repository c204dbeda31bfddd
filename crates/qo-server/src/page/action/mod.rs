//! What people can do on the page.
//!
//! 1. A button leads to `GET /actions/ACTION?…`, a page that says what will happen, by what the store holds then.
//! 2. Its form posts the same fields to the same address, with the caller's form token.
//! 3. The store does it. The browser is then sent to the page where the effect shows, with a short confirmation.
//!
//! An address is made from the action alone, so no link can send a browser elsewhere.

mod done;
mod preview;

pub use done::Done;

use super::frame::{Answer, Frame, Pace, Section, Trouble, token};
use super::jobs::Wanted;
use super::link;
use crate::caller::Caller;
use axum::Form;
use axum::extract::{Path, Query};
use axum::response::{IntoResponse, Redirect};
use maud::html;
use qo_core::words::counted;
use qo_core::{AuditText, Change, Error, ErrorKind, FenceToken, GroupRef, JobId, JobState, Name, Result};
use qo_core::{Steer, Store, TokenId, caps};
use serde::Deserialize;
use std::fmt::Display;
use std::str::FromStr;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How long one post goes on with a bulk change. The rest is one more click.
const LONGEST: Duration = Duration::from_secs(10);

/// Something that a person can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    SetLimit(GroupRef, u32),
    UnsetLimit(GroupRef),
    ReleaseSlot(GroupRef, FenceToken),
    PauseQueue(Name),
    ResumeQueue(Name),
    CancelJob(JobId),
    RetryJob(JobId),
    Many(Change, Wanted),
    SteerWorkflow(Name, Steer),
    EnableSchedule(Name),
    DisableSchedule(Name),
    /// The job's id is made with the page that asks, so that a form that is posted twice triggers once.
    TriggerSchedule(Name, Option<JobId>),
    RevokeToken(TokenId),
}

/// The fields of all actions, as texts.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Given {
    form_token: String,
    group: String,
    limit: String,
    slot: String,
    queue: String,
    job: String,
    workflow: String,
    step: String,
    schedule: String,
    token: String,
    state: String,
    task: String,
    key: String,
    from: String,
    before: String,
    id: String,
}

impl Given {
    fn wanted(&self) -> Wanted {
        let own = String::clone;
        Wanted {
            state: own(&self.state),
            queue: own(&self.queue),
            task: own(&self.task),
            group: own(&self.group),
            key: own(&self.key),
            workflow: own(&self.workflow),
            from: own(&self.from),
            before: own(&self.before),
            id: own(&self.id),
        }
    }
}

fn parsed<T: FromStr>(field: &str, text: &str, rule: &str) -> Result<T> {
    text.trim().parse().map_err(|_| Error::invalid(field, text, rule))
}

impl Action {
    /// The action that an address and its fields name. None if there is no such action.
    fn read(name: &str, given: &Given) -> Option<Result<Self>> {
        let group = || GroupRef::parse("group", given.group.trim());
        let queue = || Name::parse("queue", &given.queue);
        let schedule = || Name::parse("schedule", &given.schedule);
        let job = || parsed::<Uuid>("job", &given.job, "must be the id of a job").map(JobId);
        let step = || parsed("step", &given.step, "must be the number of a step");
        let steer =
            |steer: Result<Steer>| Ok(Self::SteerWorkflow(Name::parse("workflow", &given.workflow)?, steer?));
        Some(match name {
            "set-limit" => group().and_then(|group| {
                Ok(Self::SetLimit(group, parsed("limit", &given.limit, "must be a whole number of slots")?))
            }),
            "unset-limit" => group().map(Self::UnsetLimit),
            "release-slot" => group().and_then(|group| {
                let slot = parsed("slot", &given.slot, "must be the fence token of a holder")?;
                Ok(Self::ReleaseSlot(group, FenceToken(slot)))
            }),
            "pause-queue" => queue().map(Self::PauseQueue),
            "resume-queue" => queue().map(Self::ResumeQueue),
            "cancel-job" => job().map(Self::CancelJob),
            "retry-job" => job().map(Self::RetryJob),
            "cancel-jobs" => Ok(Self::Many(Change::Cancel, given.wanted())),
            "retry-jobs" => Ok(Self::Many(Change::Retry, given.wanted())),
            "retry-step" => steer(step().map(Steer::Retry)),
            "skip-step" => steer(step().map(Steer::Skip)),
            "cancel-workflow" => steer(Ok(Steer::Cancel)),
            "enable-schedule" => schedule().map(Self::EnableSchedule),
            "disable-schedule" => schedule().map(Self::DisableSchedule),
            "trigger-schedule" => schedule().and_then(|schedule| {
                let id = (!given.job.is_empty()).then(job).transpose()?;
                Ok(Self::TriggerSchedule(schedule, id))
            }),
            "revoke-token" => given.token.parse().map(Self::RevokeToken),
            _ => return None,
        })
    }

    fn name(&self) -> &'static str {
        match self {
            Self::SetLimit(..) => "set-limit",
            Self::UnsetLimit(_) => "unset-limit",
            Self::ReleaseSlot(..) => "release-slot",
            Self::PauseQueue(_) => "pause-queue",
            Self::ResumeQueue(_) => "resume-queue",
            Self::CancelJob(_) => "cancel-job",
            Self::RetryJob(_) => "retry-job",
            Self::Many(Change::Cancel, _) => "cancel-jobs",
            Self::Many(Change::Retry, _) => "retry-jobs",
            Self::SteerWorkflow(_, Steer::Retry(_)) => "retry-step",
            Self::SteerWorkflow(_, Steer::Skip(_)) => "skip-step",
            Self::SteerWorkflow(_, Steer::Cancel) => "cancel-workflow",
            Self::EnableSchedule(_) => "enable-schedule",
            Self::DisableSchedule(_) => "disable-schedule",
            Self::TriggerSchedule(..) => "trigger-schedule",
            Self::RevokeToken(_) => "revoke-token",
        }
    }

    /// Where an action is asked for and done.
    pub fn path(&self) -> String {
        Self::path_of(self.name())
    }

    /// The same by its name.
    pub fn path_of(name: &str) -> String {
        format!("/actions/{name}")
    }

    /// What its forms carry.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let one = |field, value: &dyn Display| vec![(field, value.to_string())];
        match self {
            Self::SetLimit(group, limit) => vec![("group", group.to_string()), ("limit", limit.to_string())],
            Self::UnsetLimit(group) => one("group", group),
            Self::ReleaseSlot(group, slot) => {
                vec![("group", group.to_string()), ("slot", slot.0.to_string())]
            }
            Self::PauseQueue(queue) | Self::ResumeQueue(queue) => one("queue", queue),
            Self::CancelJob(job) | Self::RetryJob(job) => one("job", &job.0),
            Self::Many(_, wanted) => wanted.fields(),
            Self::SteerWorkflow(workflow, Steer::Retry(step) | Steer::Skip(step)) => {
                vec![("workflow", workflow.to_string()), ("step", step.to_string())]
            }
            Self::SteerWorkflow(workflow, Steer::Cancel) => one("workflow", workflow),
            Self::EnableSchedule(schedule) | Self::DisableSchedule(schedule) => one("schedule", schedule),
            Self::TriggerSchedule(schedule, job) => {
                let job = job.iter().map(|job| ("job", job.0.to_string()));
                std::iter::once(("schedule", schedule.to_string())).chain(job).collect()
            }
            Self::RevokeToken(token) => one("token", token),
        }
    }

    /// What a button says to a screen reader, where its word alone does not tell which thing it is about.
    pub fn label(&self, word: &str) -> Option<String> {
        match self {
            Self::ReleaseSlot(_, slot) => Some(format!("{word} slot {}", slot.0)),
            Self::PauseQueue(name)
            | Self::ResumeQueue(name)
            | Self::EnableSchedule(name)
            | Self::DisableSchedule(name)
            | Self::TriggerSchedule(name, _) => Some(format!("{word}: {name}")),
            Self::RevokeToken(token) => Some(format!("{word} token {token}")),
            _ => None,
        }
    }

    fn section(&self) -> Section {
        match self {
            Self::SetLimit(..) | Self::UnsetLimit(_) | Self::ReleaseSlot(..) => Section::Groups,
            Self::PauseQueue(_) | Self::ResumeQueue(_) => Section::Queues,
            Self::CancelJob(_) | Self::RetryJob(_) | Self::Many(..) => Section::Jobs,
            Self::SteerWorkflow(..) => Section::Workflows,
            Self::EnableSchedule(_) | Self::DisableSchedule(_) | Self::TriggerSchedule(..) => {
                Section::Schedules
            }
            Self::RevokeToken(_) => Section::Tokens,
        }
    }

    /// The page where its effect shows.
    fn home(&self) -> String {
        match self {
            Self::SetLimit(group, _) | Self::UnsetLimit(group) | Self::ReleaseSlot(group, _) => {
                link::group(group)
            }
            Self::PauseQueue(_) | Self::ResumeQueue(_) => "/queues".into(),
            Self::CancelJob(job) | Self::RetryJob(job) => link::job(*job),
            Self::Many(_, wanted) => link::query("/jobs", wanted.fields()),
            Self::SteerWorkflow(workflow, _) => link::workflow(workflow),
            Self::EnableSchedule(_) | Self::DisableSchedule(_) | Self::TriggerSchedule(..) => {
                "/schedules".into()
            }
            Self::RevokeToken(_) => "/tokens".into(),
        }
    }

    /// Does it.
    async fn run(&self, caller: &Caller) -> Result<(Done, u64)> {
        let store = &*caller.store;
        let one = |done: Done| Ok((done, 1));
        match self {
            Self::SetLimit(group, limit) => {
                store.set_limit(group.clone(), *limit).await?;
                one(Done::LimitSet)
            }
            Self::UnsetLimit(group) => {
                store.unset_limit(group.clone()).await?;
                one(Done::LimitUnset)
            }
            Self::ReleaseSlot(group, slot) => {
                store.release_slot(group.clone(), *slot).await?;
                one(Done::Released)
            }
            Self::PauseQueue(queue) => {
                store.pause_queue(queue.clone(), true).await?;
                one(Done::Paused)
            }
            Self::ResumeQueue(queue) => {
                store.pause_queue(queue.clone(), false).await?;
                one(Done::Resumed)
            }
            Self::CancelJob(job) => match single(store.cancel(vec![*job]).await?)? {
                JobState::Cancelled => one(Done::Cancelled),
                state if state.is_terminal() => one(Done::Ended),
                _ => one(Done::AskedToStop),
            },
            Self::RetryJob(job) => {
                single(store.retry(vec![*job]).await?)?;
                one(Done::Retried)
            }
            Self::Many(change, wanted) => many(store, *change, wanted).await,
            Self::SteerWorkflow(workflow, steer) => {
                store.steer_workflow(workflow.clone(), *steer).await?;
                one(match steer {
                    Steer::Retry(_) => Done::StepRetried,
                    Steer::Skip(_) => Done::StepSkipped,
                    Steer::Cancel => Done::WorkflowCancelled,
                })
            }
            Self::EnableSchedule(schedule) => {
                store.enable_schedule(schedule.clone(), true).await?;
                one(Done::Enabled)
            }
            Self::DisableSchedule(schedule) => {
                store.enable_schedule(schedule.clone(), false).await?;
                one(Done::Disabled)
            }
            Self::TriggerSchedule(schedule, job) => {
                let job = job.unwrap_or_else(|| JobId(Uuid::now_v7()));
                store.trigger_schedule(schedule.clone(), job).await?;
                one(Done::Triggered)
            }
            Self::RevokeToken(token) => {
                store.revoke_token(*token, AuditText::from(caller.name())).await?;
                one(Done::Revoked)
            }
        }
    }
}

/// The one outcome of a call about one job.
fn single(outcomes: Vec<Result<JobState>>) -> Result<JobState> {
    let outcome = outcomes.into_iter().next();
    outcome.unwrap_or_else(|| Err(Error::new(ErrorKind::Internal, "a call about one job has no outcome")))
}

/// Changes jobs page by page. After a while it stops: what is left matches still.
async fn many(store: &dyn Store, change: Change, wanted: &Wanted) -> Result<(Done, u64)> {
    let (filter, began) = (wanted.filter()?, Instant::now());
    let (mut after, mut jobs) = (None, 0);
    loop {
        let changed = store.change_matching(change, filter.clone(), after, caps::PAGE).await?;
        jobs += changed.jobs;
        after = changed.next;
        match (change, after) {
            (Change::Cancel, None) => return Ok((Done::ManyCancelled, jobs)),
            (Change::Retry, None) => return Ok((Done::ManyRetried, jobs)),
            (_, Some(_)) if began.elapsed() > LONGEST => return Ok((Done::Partly, jobs)),
            (_, Some(_)) => {}
        }
    }
}

pub(crate) async fn preview(caller: Caller, Path(name): Path<String>, Query(given): Query<Given>) -> Answer {
    let action = Action::read(&name, &given).ok_or_else(Trouble::nothing_here)??;
    let action = match action {
        Action::TriggerSchedule(schedule, None) => {
            Action::TriggerSchedule(schedule, Some(JobId(Uuid::now_v7())))
        }
        action => action,
    };
    let preview = preview::of(&action, &*caller.store).await?;
    let content = html! {
        section.confirm id="confirm" aria-labelledby="confirm-title" {
            h1 id="confirm-title" { (preview.title) }
            @for sentence in &preview.sentences { p { (sentence) } }
            form.action method="post" action=(action.path()) {
                (token(&caller))
                @for (field, value) in action.fields() { input type="hidden" name=(field) value=(value); }
                button.main.danger[preview.takes_away] type="submit" { (preview.button) }
                a.button href=(action.home()) data-close { "Leave it" }
            }
        }
    };
    Ok(Frame::new(&caller, action.section(), preview.title).pace(Pace::Still).around(content))
}

pub(crate) async fn perform(caller: Caller, Path(name): Path<String>, Form(given): Form<Given>) -> Answer {
    if !caller.is_form_token(&given.form_token) {
        return Err(Trouble::foreign_form());
    }
    let action = Action::read(&name, &given).ok_or_else(Trouble::nothing_here)??;
    let (done, count) = action.run(&caller).await?;
    tracing::debug!("the page: {} by {}: {}", action.name(), caller.name(), counted(count, "change"));
    let home = action.home();
    let separator = if home.contains('?') { '&' } else { '?' };
    // 303: the browser gets the page, and a reload posts nothing again.
    Ok(Redirect::to(&format!("{home}{separator}done={}&count={count}", done.as_str())).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::parse("name", text).expect("a name")
    }

    #[test]
    fn every_action_is_read_as_its_form_was_written() {
        let group: GroupRef = "api/a b".parse().expect("a group");
        let job = JobId(Uuid::from_u128(7));
        let wanted = Wanted { queue: "mail".into(), state: "failed".into(), ..Wanted::default() };
        let actions = [
            Action::SetLimit(group.clone(), 3),
            Action::UnsetLimit(group.clone()),
            Action::ReleaseSlot(group, FenceToken(9)),
            Action::PauseQueue(name("q")),
            Action::ResumeQueue(name("q")),
            Action::CancelJob(job),
            Action::RetryJob(job),
            Action::Many(Change::Cancel, wanted.clone()),
            Action::Many(Change::Retry, wanted),
            Action::SteerWorkflow(name("w"), Steer::Retry(2)),
            Action::SteerWorkflow(name("w"), Steer::Skip(2)),
            Action::SteerWorkflow(name("w"), Steer::Cancel),
            Action::EnableSchedule(name("s")),
            Action::DisableSchedule(name("s")),
            Action::TriggerSchedule(name("s"), Some(job)),
            Action::TriggerSchedule(name("s"), None),
            Action::RevokeToken("abcd1234".parse().expect("an id")),
        ];
        for action in actions {
            let fields = serde_json::to_value(
                action.fields().into_iter().collect::<std::collections::BTreeMap<_, _>>(),
            );
            let given: Given = serde_json::from_value(fields.expect("texts")).expect("fields");
            assert_eq!(Action::read(action.name(), &given), Some(Ok(action)));
        }
        assert_eq!(Action::read("drop-everything", &Given::default()), None);
        let given = Given { group: "api".into(), limit: "many".into(), ..Given::default() };
        assert!(Action::read("set-limit", &given).is_some_and(|action| action.is_err()));
    }
}
