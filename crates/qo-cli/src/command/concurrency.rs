//! `qo concurrency`

use super::argument;
use crate::by_hand::by_hand;
use crate::cli::Format;
use crate::output::{Array, Screen, Style, Table, Times, group as group_json};
use crate::place::{Place, did_you_mean, times};
use crate::trouble::{Done, Trouble};
use clap::{Args, Subcommand};
use qo::Store;
use qo::core::{
    FenceToken, GroupDetail, GroupRef, GroupStatus, HeldBy, JobFilter, JobState, LimitSource, caps,
    default_app,
};
use std::sync::Arc;

/// See and set how much may run at once.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A group is cluster, queue:NAME, GROUP, GROUP/KEY or GROUP/* (a limit for every key).

Examples:
  qo concurrency status
  qo concurrency set resize --limit 4
  qo concurrency set 'process_user/*' --limit 1
  qo concurrency release resize 1042 --force")]
pub enum Concurrency {
    Status(Status),
    Set(Set),
    Unset(Unset),
    Release(Release),
}

/// Show groups and their limits, or what holds the slots of one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  qo concurrency status\n  qo concurrency status resize --json")]
pub struct Status {
    /// The group; all of them without.
    #[arg(value_parser = argument::group)]
    group: Option<GroupRef>,
    /// Show at most this many groups.
    #[arg(long, value_name = "N", default_value = "100", conflicts_with = "all", value_parser = argument::count)]
    limit: usize,
    /// Show all groups, however many.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    format: Format,
}

/// Set a limit. It beats those of the configuration and of code.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qo concurrency set resize --limit 4
  qo concurrency set queue:stripe --limit 3
  qo concurrency set cluster --limit 0          nothing starts, nothing is lost

A lower limit does not stop running jobs; a higher one lets waiting jobs start at once.")]
pub struct Set {
    /// The group.
    #[arg(value_parser = argument::group)]
    group: GroupRef,
    /// How many slots it has, 0 to 1,000,000; 0 holds everything.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=caps::LIMIT as i64), allow_negative_numbers = true)]
    limit: u32,
    #[command(flatten)]
    format: Format,
}

/// Remove a limit that `set` made; the limit of the configuration or of code counts again.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  qo concurrency unset resize")]
pub struct Unset {
    /// The group.
    #[arg(value_parser = argument::group)]
    group: GroupRef,
    #[command(flatten)]
    format: Format,
}

/// Take slots away from their holder: its attempt is used, and its handler is told to stop.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  qo concurrency status resize                 shows SLOT_ID
  qo concurrency release resize 1042 --force")]
pub struct Release {
    /// The group.
    #[arg(value_parser = argument::group)]
    group: GroupRef,
    /// The holder's fence token, as `qo concurrency status GROUP` shows it.
    slot_id: u64,
    /// Confirm, although the holder may still be working.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    format: Format,
}

impl Concurrency {
    /// Shows or sets.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        match self {
            Self::Status(status) => status.run(place, screen).await,
            Self::Set(Set { group, limit, format }) => {
                let store = place.open().await?;
                let others = unknown(place, &store, &group).await?;
                by_hand(&*store).set_limit(group.clone(), limit).await?;
                if format.json {
                    screen.json(&serde_json::json!({ "group": group, "limit": limit }))?;
                } else {
                    screen.line(format_args!("{group}: limit {limit}"))?;
                }
                if let Some(others) = others {
                    let near = qo::settings::nearest(&group.to_string(), others.iter().map(String::as_str))
                        .map(|near| format!("; did you mean {near}?"));
                    let near = near.unwrap_or_default();
                    screen.warn(format_args!("no live job, task or limit names {group}{near}"));
                }
                Ok(())
            }
            Self::Unset(Unset { group, format }) => {
                let store = place.open_existing().await?;
                if let Err(error) = by_hand(&*store).unset_limit(group.clone()).await {
                    return Err(did_you_mean(
                        error.into(),
                        &group.to_string(),
                        set_by_operator(&store).await?,
                    ));
                }
                let now = store.group(group.clone()).await.ok().and_then(|detail| detail.status.limit);
                if format.json {
                    return screen.json(&serde_json::json!({ "group": group, "limit": now }));
                }
                let now = now.map_or_else(|| "no limit".into(), |limit| format!("limit {limit}"));
                screen.line(format_args!("{group}: {now}"))
            }
            Self::Release(Release { group, slot_id, force, format }) => {
                if !force {
                    let hint = "the holder loses its lease and is told to stop; confirm with --force";
                    return Err(Trouble::usage("release needs --force").hint(hint));
                }
                let store = place.open_existing().await?;
                if let Err(error) = by_hand(&*store).release_slot(group.clone(), FenceToken(slot_id)).await {
                    let hint = format!("`qo concurrency status {group}` shows what holds slots now");
                    return Err(Trouble::from(error).hint(hint));
                }
                if format.json {
                    return screen.json(&serde_json::json!({ "group": group, "released": slot_id }));
                }
                screen.line(format_args!("released {slot_id} of {group}"))
            }
        }
    }
}

/// The names that are known instead, if no live job, task or limit names a group.
async fn unknown(place: &Place, store: &Arc<dyn Store>, group: &GroupRef) -> Done<Option<Vec<String>>> {
    let whole = match group {
        GroupRef::Cluster => return Ok(None),
        GroupRef::Key(name, _) | GroupRef::EveryKey(name) => GroupRef::Group(name.clone()),
        GroupRef::Group(_) | GroupRef::Queue(_) => group.clone(),
    };
    for reference in [group, &whole] {
        if store.group(reference.clone()).await.is_ok() {
            return Ok(None);
        }
    }
    let groups = all_groups(store, caps::PAGE).await?;
    let configured = &place.settings.configuration.limits;
    let tasks = store.workers().await?.into_iter().flat_map(|worker| worker.tasks);
    let tasks: Vec<String> = match whole {
        GroupRef::Queue(_) => Vec::new(),
        _ => tasks.chain(place.settings.tasks.keys().cloned()).map(|task| task.to_string()).collect(),
    };
    let known: Vec<String> = groups
        .iter()
        .map(|status| status.group.to_string())
        .chain(configured.keys().map(ToString::to_string))
        .chain(tasks)
        .collect();
    let whole = whole.to_string();
    let is_known = |known: &String| *known == whole || known.starts_with(&format!("{whole}/"));
    Ok((!known.iter().any(is_known)).then_some(known))
}

async fn set_by_operator(store: &Arc<dyn Store>) -> Done<Vec<String>> {
    let groups = all_groups(store, caps::PAGE).await?;
    let set = groups.iter().filter(|status| status.sources.operator.is_some());
    Ok(set.map(|status| status.group.to_string()).collect())
}

/// The first `most` groups.
pub async fn all_groups(store: &Arc<dyn Store>, most: usize) -> Done<Vec<GroupStatus>> {
    let mut groups = Vec::new();
    let mut after = None;
    loop {
        let page = store.groups(after, caps::PAGE.min(most - groups.len())).await?;
        groups.extend(page.groups);
        after = page.next;
        if after.is_none() || groups.len() >= most {
            return Ok(groups);
        }
    }
}

/// Whether jobs name a group that has no limit, although it is not just their task: perhaps it is misspelled.
pub async fn is_named_for_nothing(store: &Arc<dyn Store>, status: &GroupStatus) -> Done<bool> {
    let GroupRef::Group(name) = &status.group else { return Ok(false) };
    if status.limit.is_some() || status.live == 0 {
        return Ok(false);
    }
    let states = vec![JobState::Pending, JobState::Claimed, JobState::Running];
    let filter = JobFilter { group: Some(name.clone()), states, ..JobFilter::default() };
    let page = store.jobs(filter, None, 1).await?;
    Ok(page.jobs.first().is_none_or(|job| job.task != *name))
}

impl Status {
    async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        let store = place.open_existing().await?;
        place.tell_hold(&store, screen).await?;
        let Some(group) = self.group else {
            let most = if self.all { usize::MAX } else { self.limit };
            return if self.format.json {
                list_json(&store, screen, self.all, most).await
            } else {
                list(&store, screen, most).await
            };
        };
        match store.group(group.clone()).await {
            Ok(detail) if self.format.json => screen.json(&group_json(&detail)),
            Ok(detail) => show(screen, &detail, &times(&store).await?),
            Err(error) => {
                let known = all_groups(&store, caps::PAGE).await?;
                let known = known.iter().map(|status| status.group.to_string());
                Err(did_you_mean(error.into(), &group.to_string(), known))
            }
        }
    }
}

async fn list_json(store: &Arc<dyn Store>, screen: &mut Screen, all: bool, most: usize) -> Done {
    let groups = all_groups(store, if all { usize::MAX } else { most }).await?;
    let mut array = Array::begin(screen)?;
    for status in &groups {
        array.add(screen, status)?;
    }
    array.end(screen)
}

/// How many groups are checked for a misspelled name, which costs an extra call each.
const ASKED: usize = 100;

async fn list(store: &Arc<dyn Store>, screen: &mut Screen, most: usize) -> Done {
    let mut groups = all_groups(store, most.saturating_add(1)).await?;
    let more = groups.len() > most;
    groups.truncate(most);
    if groups.is_empty() {
        screen.say("no groups: no live job names one and no limit is set");
        screen.hint("set a limit: qo concurrency set GROUP --limit N");
        return Ok(());
    }
    let mut table = Table::new(&["GROUP", "USED", "LIMIT", "WAITING", "SET BY", "NOTE"]);
    for (index, status) in groups.iter().enumerate() {
        let waiting = status.live.saturating_sub(status.used);
        let mut note = note(status, waiting);
        if index < ASKED && is_named_for_nothing(store, status).await? {
            note = ("jobs name it, it has no limit".into(), Style::Warn);
        }
        table.row([
            (status.group.to_string(), Style::Strong),
            (status.used.to_string(), Style::Plain),
            limit(status),
            (waiting.to_string(), Style::Plain),
            (source(status).unwrap_or_else(|| "-".into()), Style::Dim),
            note,
        ]);
    }
    screen.table(table)?;
    if more {
        screen.say(format_args!("… the first {most}; --limit N or --all shows more"));
    }
    Ok(())
}

fn limit(status: &GroupStatus) -> (String, Style) {
    status.limit.map_or_else(|| ("none".into(), Style::Dim), |limit| (limit.to_string(), Style::Plain))
}

fn note(status: &GroupStatus, waiting: u64) -> (String, Style) {
    // The numbers of `GROUP/*` are sums over all keys, and the limit is for each key.
    if matches!(status.group, GroupRef::EveryKey(_)) {
        return ("for each key".into(), Style::Dim);
    }
    match status.limit.map(u64::from) {
        Some(0) if waiting > 0 => ("held: nothing starts".into(), Style::Warn),
        Some(limit) if status.used > limit => ("over: lowered while these run".into(), Style::Warn),
        Some(limit) if status.used == limit && limit > 0 => ("full".into(), Style::Warn),
        _ => (String::new(), Style::Plain),
    }
}

/// The source of the limit that counts; for configuration and code also the app, unless it is `default`.
fn source(status: &GroupStatus) -> Option<String> {
    let code = status.sources.code.last().map(|code| &code.app);
    let (source, app) = match status.source? {
        LimitSource::Operator => ("operator", None),
        LimitSource::Config => ("config", status.sources.config_app.as_ref()),
        LimitSource::Code => ("code", code),
        LimitSource::Submit => ("submit", None),
    };
    Some(match app.filter(|app| **app != default_app()) {
        Some(app) => format!("{source} of {app}"),
        None => source.to_owned(),
    })
}

fn show(screen: &mut Screen, detail: &GroupDetail, times: &Times) -> Done {
    let status = &detail.status;
    let waiting = status.live.saturating_sub(status.used);
    let of = status.limit.map_or_else(|| "no limit".into(), |limit| format!("limit {limit}"));
    let by = source(status).map(|by| format!(" set by {by}")).unwrap_or_default();
    let (note, _) = note(status, waiting);
    let note = if note.is_empty() { note } else { format!(" ({note})") };
    screen.line(format_args!("{}: {} used, {waiting} waiting, {of}{by}{note}", status.group, status.used))?;
    if detail.holders.is_empty() {
        return Ok(());
    }
    screen.line("")?;
    let mut table = Table::new(&["SLOT_ID", "SLOTS", "HELD BY", "WORKER", "FOR", "LEASE ENDS"]);
    for holder in &detail.holders {
        let by = match &holder.by {
            HeldBy::Job { job, task, .. } => format!("job {job} ({task})"),
            HeldBy::Program { lease } => format!("program {lease}"),
        };
        table.row([
            (holder.token.to_string(), Style::Strong),
            (holder.slots.to_string(), Style::Plain),
            (by, Style::Plain),
            (holder.worker.to_string(), Style::Plain),
            (times.age(holder.since), Style::Plain),
            (times.away(holder.lease_until), Style::Dim),
        ]);
    }
    screen.table(table)
}
