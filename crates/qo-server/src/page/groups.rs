//! `/groups`: limits and slots; `/groups/GROUP`: who holds them, and what waits for them.

use super::action::Action;
use super::frame::{After, Answer, Frame, Section};
use super::moment::Now;
use super::text::number;
use super::{bar, link, piece};
use crate::caller::{Caller, Scope};
use crate::shared::Shared;
use axum::extract::{Path, Query, State};
use maud::{Markup, html};
use qo_core::words::counted;
use qo_core::{ErrorKind, GroupDetail, GroupRef, GroupStatus, HeldBy, Holder, JobFilter, JobState, Key};
use qo_core::{LimitSource, Name, Result};
use serde::Deserialize;

/// Groups of one page.
const PAGE: usize = 100;
/// Holders and waiting jobs that a group's page shows.
const SHOWN: usize = 100;
const WAITING: usize = 20;

/// Which groups are asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Asked {
    prefix: String,
    after: String,
}

pub(crate) async fn list(
    State(shared): State<Shared>,
    caller: Caller,
    Query(asked): Query<Asked>,
    Query(done): Query<After>,
) -> Answer {
    shared.history.wake(&shared);
    let prefix = asked.prefix.trim();
    let is_first = asked.after.is_empty();
    let after = match is_first {
        true => before(prefix),
        false => Some(GroupRef::parse("after", &asked.after)?),
    };
    let page = caller.store.groups(after, PAGE).await?;
    let begins = |group: &GroupStatus| group.group.to_string().starts_with(prefix);
    let mut groups: Vec<_> =
        page.groups.into_iter().skip_while(|group| !begins(group)).take_while(begins).collect();
    // `cluster` stands before all names, so looking for names that begin alike passes it by.
    if is_first && !prefix.is_empty() && "cluster".starts_with(prefix) {
        let cluster = caller.store.group(GroupRef::Cluster).await.ok().map(|detail| detail.status);
        groups.retain(|group| group.group != GroupRef::Cluster);
        groups.splice(0..0, cluster);
    }
    let next = page.next.filter(|next| next.to_string().starts_with(prefix));
    let at = |after: Option<&GroupRef>| {
        let after = after.map(ToString::to_string).unwrap_or_default();
        link::query("/groups", [("prefix", prefix), ("after", &after)])
    };
    let shown: Vec<_> = groups.iter().collect();
    let content = html! {
        h1 { "Groups" }
        p.lead { "A group is a name that jobs share. Its limit says how many slots they have together." }
        form.search role="search" method="get" action="/groups" {
            label for="prefix" { "Begins with" }
            input id="prefix" name="prefix" type="search" value=(prefix) placeholder="resize, resize/, queue:" spellcheck="false" autocapitalize="none";
            button type="submit" { "Find" }
        }
        @if shown.is_empty() && prefix.is_empty() {
            (piece::nothing(
                "No group has live jobs or a limit.",
                Some("Set a limit before the first job comes, or submit a job."),
                Some("qo concurrency set resize --limit 4"),
            ))
        } @else if shown.is_empty() {
            (piece::nothing(&format!("No group that begins with {prefix} has live jobs or a limit."), None, None))
        } @else {
            (table(&shown, &shared))
        }
        (piece::pager((!is_first).then(|| at(None)), next.as_ref().map(|next| at(Some(next)))))
    };
    Ok(Frame::new(&caller, Section::Groups, "Groups").after(done).around(content))
}

/// A group that stands before every group that begins with a text, and behind the others as far as that goes.
fn before(prefix: &str) -> Option<GroupRef> {
    if let Some(queue) = prefix.strip_prefix("queue:") {
        return Some(lower_name(queue).map_or(GroupRef::Cluster, GroupRef::Queue));
    }
    if let Some((group, key)) = prefix.split_once('/') {
        let group = Name::parse("prefix", group).ok()?;
        // `GROUP/*` stands before the keys.
        return Some(lower_key(key).map_or(GroupRef::Group(group.clone()), |key| GroupRef::Key(group, key)));
    }
    let last = Key::parse("key", &char::MAX.to_string().repeat(64)).ok()?;
    match lower_name(prefix) {
        Some(name) => Some(GroupRef::Key(name, last)),
        None if prefix.is_empty() => None,
        None => Some(GroupRef::Queue(Name::parse("queue", &"z".repeat(128)).ok()?)),
    }
}

/// A name that stands before those that begin with a text. `-` is the least character of names, `z` the last.
fn lower_name(prefix: &str) -> Option<Name> {
    let last = prefix.chars().next_back()?;
    let rest = &prefix[..prefix.len() - last.len_utf8()];
    let allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let lower = ('-'..last).rev().take(128).find(|c| allowed(c) && c.is_ascii());
    let text = match lower {
        Some(lower) => format!("{rest}{lower}{}", "z".repeat(127_usize.saturating_sub(rest.len()))),
        None => rest.to_owned(),
    };
    Name::parse("prefix", &text).ok()
}

/// A key that stands before those that begin with a text.
fn lower_key(prefix: &str) -> Option<Key> {
    let last = prefix.chars().next_back()?;
    let rest = &prefix[..prefix.len() - last.len_utf8()];
    let text = match (' '..last).next_back() {
        Some(lower) => format!("{rest}{lower}{}", char::MAX.to_string().repeat(4)),
        None => rest.to_owned(),
    };
    Key::parse("prefix", &text).ok()
}

/// Groups as a table.
pub fn table(groups: &[&GroupStatus], shared: &Shared) -> Markup {
    html! {
        div.scroll role="region" aria-label="Groups" tabindex="0" {
            table.groups {
                thead {
                    tr {
                        th scope="col" { "Group" }
                        th scope="col" { "Slots" }
                        th.right scope="col" { "Taken" }
                        th.right scope="col" { "More wanted" }
                        th.wide scope="col" { "Limit from" }
                        th.wide scope="col" { span.unseen { "The last minutes" } }
                    }
                }
                tbody {
                    @for group in groups {
                        tr id={"group-" (link::encoded(&group.group.to_string()))} {
                            td.name { a href=(link::group(&group.group)) { bdi { (group.group) } } }
                            td.bar { (bar::group(group)) }
                            td.right.taken { (bar::figures(group)) }
                            td.right.wanted { @let wanted = bar::wanted(group); @if wanted > 0 { b.waits { (number(wanted)) } } @else { span.none { "0" } } }
                            td.wide { (source(group.source)) }
                            td.wide { (bar::spark(&shared.history.of([&group.group], |sample| sample.used + sample.waiting), "live")) }
                        }
                    }
                }
            }
        }
    }
}

fn source(source: Option<LimitSource>) -> &'static str {
    match source {
        Some(LimitSource::Operator) => "operator",
        Some(LimitSource::Config) => "configuration",
        Some(LimitSource::Code) => "code",
        Some(LimitSource::Submit) => "submit",
        None => "",
    }
}

pub(crate) async fn one(
    State(shared): State<Shared>,
    caller: Caller,
    Path(group): Path<String>,
    Query(after): Query<After>,
) -> Answer {
    shared.history.wake(&shared);
    let group = GroupRef::parse("group", &group)?;
    let now = Now(caller.store.now().await?);
    // A group may be named before its first job, so that it can be given a limit.
    let detail = match caller.store.group(group.clone()).await {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        detail => Some(detail?),
    };
    let waiting = waiting(&caller, &group, detail.as_ref()).await?;
    let title = match &detail {
        Some(GroupDetail { status, .. }) => match status.limit {
            Some(0) => format!("{group}: held"),
            Some(limit) => format!("{group}: {} of {} taken", number(status.used), number(limit)),
            None => format!("{group}: {} taken", number(status.used)),
        },
        None => group.to_string(),
    };
    let content = html! {
        p.up { a href="/groups" { "Groups" } }
        h1 { bdi { (group) } }
        @if let Some(GroupDetail { status, .. }) = &detail { (summary(status, &shared)) }
        @else { p.lead { "No live job names this group, and no limit is set." } }
        @if caller.may(Scope::Admin) { (limit_form(&group, detail.as_ref().map(|detail| &detail.status))) }
        @if let Some(GroupDetail { holders, .. }) = &detail { (held(&group, holders, now, &caller)) }
        @if let Some(waiting) = waiting {
            section aria-labelledby="waiting" {
                h2 id="waiting" { "Waiting" }
                @if waiting.is_empty() { p.calm { "No job waits for this group." } }
                @else { (piece::jobs(&waiting, now, "Jobs that wait, the oldest first")) }
            }
        }
    };
    Ok(Frame::new(&caller, Section::Groups, title).after(after).around(content))
}

/// The oldest jobs that wait. None if the group's jobs cannot be asked for by a filter.
async fn waiting(
    caller: &Caller,
    group: &GroupRef,
    detail: Option<&GroupDetail>,
) -> Result<Option<Vec<qo_core::JobView>>> {
    let pending = JobFilter { states: vec![JobState::Pending], ..JobFilter::default() };
    let filter = match group {
        GroupRef::Cluster => pending,
        GroupRef::Queue(queue) => JobFilter { queue: Some(queue.clone()), ..pending },
        GroupRef::Group(group) | GroupRef::EveryKey(group) => {
            JobFilter { group: Some(group.clone()), ..pending }
        }
        GroupRef::Key(group, key) => {
            JobFilter { group: Some(group.clone()), key: Some(key.clone()), ..pending }
        }
    };
    // Without this the store would look through all its jobs to find that there is none.
    if detail.is_none_or(|detail| bar::wanted(&detail.status) == 0) {
        return Ok(Some(Vec::new()));
    }
    let jobs = caller.store.jobs(filter, None, WAITING).await?.jobs;
    // Jobs may take slots of a group as an extra limit: no filter finds those.
    Ok(Some(jobs).filter(|jobs| !jobs.is_empty()))
}

fn summary(status: &GroupStatus, shared: &Shared) -> Markup {
    let wanted = bar::wanted(status);
    html! {
        div.summary {
            (bar::group(status))
            p {
                @match status.limit {
                    Some(0) => { span.state.held { "held" } " The limit is 0: nothing starts. " (number(status.used)) " taken" },
                    Some(limit) => { b { (number(status.used)) } " of " (number(limit)) " slots taken" },
                    None => { b { (number(status.used)) } " taken, no limit" },
                }
                @if wanted > 0 { ", " b.waits { (number(wanted)) } " more wanted" }
                @if status.source.is_some() { ". The limit comes from " (set_by(status)) "." } @else { "." }
            }
            (bar::spark(&shared.history.of([&status.group], |sample| sample.used + sample.waiting), "live"))
        }
    }
}

fn set_by(status: &GroupStatus) -> Markup {
    let sources = &status.sources;
    match status.source {
        Some(LimitSource::Operator) => html! { "an operator" },
        Some(LimitSource::Config) => html! {
            "the configuration" @if let Some(app) = &sources.config_app { " of app " (app) }
        },
        Some(LimitSource::Code) => html! {
            "the code" @if let Some(code) = sources.code.last() { " of task " (code.task) }
        },
        Some(LimitSource::Submit) => html! { "a submitted job" },
        None => html! {},
    }
}

fn limit_form(group: &GroupRef, status: Option<&GroupStatus>) -> Markup {
    let limit = status.and_then(|status| status.limit).map(|limit| limit.to_string());
    let action = Action::path_of("set-limit");
    html! {
        div.actions {
            form.action method="get" action=(action) data-ask {
                input type="hidden" name="group" value=(group);
                label for="limit" { "Limit" }
                input.small id="limit" name="limit" type="number" min="0" max=(qo_core::caps::LIMIT) required inputmode="numeric" value=(limit.as_deref().unwrap_or_default());
                button type="submit" { "Set limit" }
            }
            @if status.is_some_and(|status| status.sources.operator.is_some()) {
                (piece::button(&Action::UnsetLimit(group.clone()), "Take the operator's limit back"))
            }
        }
    }
}

fn held(group: &GroupRef, holders: &[Holder], now: Now, caller: &Caller) -> Markup {
    let operates = caller.may(Scope::Admin) && !matches!(group, GroupRef::EveryKey(_));
    html! {
        section aria-labelledby="holders" {
            h2 id="holders" { "Holders" }
            @if holders.is_empty() {
                p.calm { "No slot is taken." }
            } @else {
                div.scroll role="region" aria-label="Holders" tabindex="0" {
                    table {
                        thead {
                            tr {
                                th scope="col" { "Held by" }
                                th scope="col" { "Worker" }
                                th.wide.right scope="col" { "Slots" }
                                th.right scope="col" { "For" }
                                th.wide.right scope="col" { "Lease ends" }
                                @if operates { th scope="col" { span.unseen { "Action" } } }
                            }
                        }
                        tbody {
                            @for holder in &holders[..holders.len().min(SHOWN)] {
                                tr id={"slot-" (holder.token.0)} {
                                    @match &holder.by {
                                        HeldBy::Job { job, task, session } => {
                                            td.name { a href=(link::job(*job)) { (task) } " " (piece::short(*job)) }
                                            td { a href=(link::worker(*session)) { (holder.worker) } }
                                        },
                                        HeldBy::Program { .. } => {
                                            td.name { "a program" }
                                            td { (holder.worker) }
                                        },
                                    }
                                    td.wide.right { (number(holder.slots)) }
                                    td.right { (now.since(holder.since)) }
                                    td.wide.right { (now.ago(holder.lease_until)) }
                                    @if operates {
                                        td.right { (piece::danger(&Action::ReleaseSlot(group.clone(), holder.token), "Release")) }
                                    }
                                }
                            }
                        }
                    }
                }
                @if holders.len() > SHOWN { p.more { "The oldest " (SHOWN) " of " (counted(holders.len() as u64, "holder")) "." } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_by_a_beginning_starts_just_before_it() {
        for (prefix, begins, others) in [
            (
                "pro",
                "pro process pro/a process_user/* process_user/z",
                "prn prn/zzz prnz/x queue:a cluster Pro",
            ),
            ("0", "0 0a 0/k", "queue:zz cluster"),
            ("a-", "a- a-b a-/k", "a a/k Z"),
            ("pro/ab", "pro/ab pro/abc pro/ab/c", "pro pro/* pro/aa pro/aaz"),
            ("pro/", "pro/* pro/ab", "pro pr/z"),
            ("queue:ma", "queue:ma queue:mail", "cluster queue:m queue:lz"),
            ("queue:", "queue:a", "cluster"),
        ] {
            let before = before(prefix).expect(prefix);
            let group = |text: &str| text.parse::<GroupRef>().expect("a group");
            for text in begins.split(' ') {
                assert!(group(text) > before, "{prefix}: {text}");
            }
            for text in others.split(' ') {
                assert!(group(text) <= before, "{prefix}: {text}");
            }
        }
        assert_eq!(before(""), None);
    }
}
