//! `/jobs`: the newest first, by filters, and what can be done to all that match.

use super::action::Action;
use super::frame::{After, Answer, Frame, Section};
use super::moment::Now;
use super::{link, piece};
use crate::caller::{Caller, Scope};
use crate::shared::Shared;
use axum::extract::{Query, State};
use maud::{Markup, html};
use qo_core::{Change, Cursor, Error, IdPrefix, JobFilter, JobState, Key, Name, Result, Time};
use serde::Deserialize;

/// Jobs of one page.
const PAGE: usize = 50;

/// Which jobs are asked for, as texts of a query or form.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Wanted {
    pub state: String,
    pub queue: String,
    pub task: String,
    pub group: String,
    pub key: String,
    pub workflow: String,
    pub from: String,
    pub before: String,
    pub id: String,
}

/// The choices of states: a name, what people read, the states.
const STATES: [(&str, &str, &[JobState]); 10] = [
    ("", "any state", &[]),
    ("live", "live", &[JobState::Pending, JobState::Claimed, JobState::Running]),
    ("pending", "pending", &[JobState::Pending]),
    ("claimed", "claimed", &[JobState::Claimed]),
    ("running", "running", &[JobState::Running]),
    ("ended", "ended", &[JobState::Succeeded, JobState::Failed, JobState::Cancelled, JobState::Expired]),
    ("succeeded", "succeeded", &[JobState::Succeeded]),
    ("failed", "failed", &[JobState::Failed]),
    ("cancelled", "cancelled", &[JobState::Cancelled]),
    ("expired", "expired", &[JobState::Expired]),
];

impl Wanted {
    /// The fields that are set, by name.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let all = [
            ("state", &self.state),
            ("queue", &self.queue),
            ("task", &self.task),
            ("group", &self.group),
            ("key", &self.key),
            ("workflow", &self.workflow),
            ("from", &self.from),
            ("before", &self.before),
            ("id", &self.id),
        ];
        let set = all.into_iter().map(|(name, value)| (name, value.trim().to_owned()));
        set.filter(|(_, value)| !value.is_empty()).collect()
    }

    /// The filter of the store, in the order of acceptance.
    pub fn filter(&self) -> Result<JobFilter> {
        let set = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let name = |field: &str, text: &str| set(text).map(|text| Name::parse(field, &text)).transpose();
        let time = |field: &str, text: &str| set(text).map(|text| moment(field, &text)).transpose();
        let state = set(&self.state).unwrap_or_default();
        let states = STATES.iter().find(|(name, ..)| *name == state);
        let (.., states) = states.ok_or_else(|| {
            Error::invalid("state", &state, "must be one of the states of a job, live or ended")
        })?;
        Ok(JobFilter {
            states: states.to_vec(),
            queue: name("queue", &self.queue)?,
            task: name("task", &self.task)?,
            group: name("group", &self.group)?,
            key: set(&self.key).map(|text| Key::parse("key", &text)).transpose()?,
            workflow: name("workflow", &self.workflow)?,
            submitted_from: time("from", &self.from)?,
            submitted_before: time("before", &self.before)?,
            id_prefix: set(&self.id).map(|text| IdPrefix::parse("id", &text)).transpose()?,
            newest_first: false,
        })
    }

    /// Which jobs these are, in words: `every job of queue mail that is failed`.
    pub fn said(&self) -> String {
        let state = STATES.iter().find(|(name, ..)| *name == self.state.trim());
        let state = state.filter(|(name, ..)| !name.is_empty()).map(|(_, said, _)| *said);
        let mut said = format!("every {}job", state.map(|state| format!("{state} ")).unwrap_or_default());
        for (name, value) in self.fields() {
            said += &match name {
                "state" => continue,
                "from" => format!(" submitted at {value} or later (UTC)"),
                "before" => format!(" submitted before {value} (UTC)"),
                "id" => format!(" with an id that begins with {value}"),
                "key" => format!(" with key {value}"),
                name => format!(" of {name} {value}"),
            };
        }
        said
    }
}

/// A moment as a browser's field has it, `2026-11-15T16:41`, in UTC; or RFC 3339.
fn moment(field: &str, text: &str) -> Result<Time> {
    let zoned = text.parse::<jiff::Timestamp>();
    let moment = zoned.or_else(|_| {
        let civil = text.parse::<jiff::civil::DateTime>()?;
        civil.to_zoned(jiff::tz::TimeZone::UTC).map(|zoned| zoned.timestamp())
    });
    match moment {
        Ok(moment) => Ok(Time::from_millis(moment.as_millisecond())),
        Err(_) => Err(Error::invalid(field, text, "must be a moment, as in 2026-11-15T16:41 (UTC)")),
    }
}

/// Where the page begins.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Place {
    after: Option<u64>,
}

pub(crate) async fn list(
    State(shared): State<Shared>,
    caller: Caller,
    Query(wanted): Query<Wanted>,
    Query(place): Query<Place>,
    Query(after): Query<After>,
) -> Answer {
    shared.history.wake(&shared);
    let filter = JobFilter { newest_first: true, ..wanted.filter()? };
    let now = Now(caller.store.now().await?);
    let page = caller.store.jobs(filter, place.after.map(Cursor), PAGE).await?;
    let fields = wanted.fields();
    let next = page.next.map(|Cursor(next)| {
        let after = ("after", next.to_string());
        link::query("/jobs", fields.iter().cloned().chain([after]))
    });
    let title = match wanted.state.trim() {
        "" => "Jobs".to_owned(),
        state => format!("Jobs, {state}"),
    };
    let content = html! {
        h1 { "Jobs" }
        (filters(&wanted))
        @if page.jobs.is_empty() && fields.is_empty() {
            (piece::nothing("No job is remembered.", Some("Submit the first one."), Some("qo submit resize '{\"width\": 64}'")))
        } @else if page.jobs.is_empty() {
            (piece::nothing("No job matches.", None, None))
            p { a href="/jobs" { "Take all filters away" } }
        } @else {
            @if caller.may(Scope::Admin) && !fields.is_empty() { (bulk(&wanted)) }
            (piece::jobs(&page.jobs, now, "Jobs, the newest first"))
        }
        (piece::pager(place.after.map(|_| link::query("/jobs", fields.clone())), next))
    };
    Ok(Frame::new(&caller, Section::Jobs, title).after(after).around(content))
}

fn filters(wanted: &Wanted) -> Markup {
    let text = |name: &'static str, label: &str, value: &str, hint: &str| {
        html! {
            span.field {
                label for={"filter-" (name)} { (label) }
                input id={"filter-" (name)} name=(name) value=(value) placeholder=(hint) spellcheck="false" autocapitalize="none";
            }
        }
    };
    let moment = |name: &'static str, label: &str, value: &str| {
        html! {
            span.field {
                label for={"filter-" (name)} { (label) }
                input id={"filter-" (name)} name=(name) type="datetime-local" step="1" value=(value);
            }
        }
    };
    let Wanted { group, key, workflow, from, before, id, .. } = wanted;
    let has_more = [group, key, workflow, from, before, id].iter().any(|value| !value.is_empty());
    html! {
        form.search.filters role="search" method="get" action="/jobs" {
            span.field {
                label for="filter-state" { "State" }
                select id="filter-state" name="state" {
                    @for (name, said, _) in STATES {
                        option value=(name) selected[name == wanted.state.trim()] { (said) }
                    }
                }
            }
            (text("queue", "Queue", &wanted.queue, "default"))
            (text("task", "Task", &wanted.task, "resize"))
            details.more id="more-filters" open[has_more] {
                summary { "More filters" }
                div {
                    (text("group", "Group", group, ""))
                    (text("key", "Key", key, ""))
                    (text("workflow", "Workflow", workflow, ""))
                    (text("id", "Id begins with", id, "019a8a5e"))
                    (moment("from", "Submitted from (UTC)", from))
                    (moment("before", "Submitted before (UTC)", before))
                }
            }
            button type="submit" { "Show" }
        }
    }
}

fn bulk(wanted: &Wanted) -> Markup {
    html! {
        div.actions aria-label="What can be done to every job that matches" role="group" {
            (piece::button(&Action::Many(Change::Retry, wanted.clone()), "Retry all that match"))
            (piece::danger(&Action::Many(Change::Cancel, wanted.clone()), "Cancel all that match"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_read_and_said_in_words() {
        let wanted = Wanted {
            state: "failed".into(),
            queue: " mail ".into(),
            from: "2026-11-15T16:41".into(),
            id: "019a".into(),
            ..Wanted::default()
        };
        let filter = wanted.filter().expect("a filter");
        assert_eq!(filter.states, [JobState::Failed]);
        assert_eq!(filter.submitted_from.map(|at| at.to_string()).as_deref(), Some("2026-11-15T16:41:00Z"));
        let said = "every failed job of queue mail submitted at 2026-11-15T16:41 or later (UTC) with an id that begins with 019a";
        assert_eq!(wanted.said(), said);
        assert_eq!(Wanted::default().said(), "every job");
        for (field, bad) in [
            ("state", Wanted { state: "wild".into(), ..Wanted::default() }),
            ("queue", Wanted { queue: "a b".into(), ..Wanted::default() }),
            ("from", Wanted { from: "noon".into(), ..Wanted::default() }),
            ("id", Wanted { id: "x".into(), ..Wanted::default() }),
        ] {
            assert_eq!(bad.filter().expect_err("no filter").path().as_deref(), Some(field));
        }
    }
}
