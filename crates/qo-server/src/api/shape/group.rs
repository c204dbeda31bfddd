//! Groups, their limits and what holds their slots.

use super::{Moment, Wide};
use qo_core::{CodeLimit as Code, GroupDetail, GroupStatus, HeldBy, Holder as Holds, LimitSource, Limits};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

/// A group, its limit and how much of it is taken.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Group {
    /// `cluster`, `queue:NAME`, `GROUP`, `GROUP/KEY`; `GROUP/*` sums over all keys.
    group: String,
    /// The limit in force; null means unlimited.
    #[schema(required)]
    limit: Option<u32>,
    /// What set it: `operator`, `config`, `code` or `submit`.
    #[schema(required, value_type = Option<String>)]
    source: Option<LimitSource>,
    /// What each source set for exactly this group.
    sources: Sources,
    /// Slots taken by running jobs and by programs.
    used: u64,
    /// Slots of all live jobs (pending, claimed, running) and of programs.
    live: u64,
    /// Jobs and programs that have taken slots of it since it has had a limit; keys count under `GROUP/*`.
    acquired: u64,
    /// Submits and programs that it has refused since then.
    rejected: u64,
}

impl From<GroupStatus> for Group {
    fn from(status: GroupStatus) -> Self {
        Self {
            group: status.group.to_string(),
            limit: status.limit,
            source: status.source,
            sources: status.sources.into(),
            used: status.used,
            live: status.live,
            acquired: status.acquired,
            rejected: status.rejected,
        }
    }
}

/// What each source set.
#[derive(Debug, Serialize, ToSchema)]
struct Sources {
    /// An operator.
    #[schema(required)]
    operator: Option<u32>,
    /// The configuration of the newest app that names the group.
    #[schema(required)]
    config: Option<u32>,
    /// That app.
    #[serde(skip_serializing_if = "Option::is_none")]
    config_app: Option<String>,
    /// Registered tasks, the newest registration last.
    code: Vec<CodeLimit>,
    /// The newest submitted job that brought one.
    #[schema(required)]
    submit: Option<u32>,
}

impl From<Limits> for Sources {
    fn from(limits: Limits) -> Self {
        let code = |Code { task, limit, app, .. }: Code| CodeLimit {
            task: task.to_string(),
            limit,
            app: app.to_string(),
        };
        Self {
            operator: limits.operator,
            config: limits.config,
            config_app: limits.config_app.map(|app| app.to_string()),
            code: limits.code.into_iter().map(code).collect(),
            submit: limits.submit,
        }
    }
}

/// The limit that a registered task gives its group.
#[derive(Debug, Serialize, ToSchema)]
struct CodeLimit {
    /// The task.
    task: String,
    /// Its limit.
    limit: u32,
    /// The app that registered it.
    app: String,
}

/// Some groups.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GroupPage {
    /// The groups, by name and key.
    groups: Vec<Group>,
    /// The cursor of the next page; null if this is the last.
    #[schema(required)]
    next: Option<String>,
}

impl From<qo_core::GroupPage> for GroupPage {
    fn from(page: qo_core::GroupPage) -> Self {
        Self {
            groups: page.groups.into_iter().map(Group::from).collect(),
            next: page.next.map(|group| group.to_string()),
        }
    }
}

/// A group and what holds its slots.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WholeGroup {
    #[serde(flatten)]
    group: Group,
    /// What holds its slots, the oldest first.
    holders: Vec<Holder>,
    /// The cursor of the next page of holders; null if this is the last.
    #[schema(required)]
    next: Option<Wide>,
}

impl WholeGroup {
    /// A group and at most so many holders whose tokens come after `after`.
    pub fn new(detail: GroupDetail, after: Option<u64>, limit: usize) -> Self {
        let mut holders = detail.holders;
        // Tokens grow with every claim, so this is also the order of the claims.
        holders.sort_by_key(|holder| holder.token);
        holders.retain(|holder| after.is_none_or(|after| holder.token.0 > after));
        let more = holders.len() > limit;
        holders.truncate(limit);
        let next = holders.last().filter(|_| more).map(|last| last.token.into());
        Self { group: detail.status.into(), holders: holders.into_iter().map(Holder::from).collect(), next }
    }
}

/// What holds slots of a group.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Holder {
    /// Its fence token: operators name the slots by it.
    token: Wide,
    /// Slots it holds in the group.
    slots: u32,
    /// The worker that runs the job, or the program's name.
    worker: String,
    /// Since when.
    since: Moment,
    /// When its lease ends unless it is renewed.
    lease_until: Moment,
    /// What it is.
    by: By,
}

impl From<Holds> for Holder {
    fn from(holder: Holds) -> Self {
        let by = match holder.by {
            HeldBy::Job { job, task, session } => By {
                job: Some(HoldingJob { job: job.0, task: task.to_string(), session: session.0 }),
                program: None,
            },
            HeldBy::Program { lease } => By { job: None, program: Some(HoldingProgram { lease: lease.0 }) },
        };
        Self {
            token: holder.token.into(),
            slots: holder.slots,
            worker: holder.worker.to_string(),
            since: holder.since.into(),
            lease_until: holder.lease_until.into(),
            by,
        }
    }
}

/// What holds slots: a job or a program.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HeldBy)]
struct By {
    /// A running job.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<HoldingJob>,
    /// A program.
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<HoldingProgram>,
}

/// A running job that holds slots.
#[derive(Debug, Serialize, ToSchema)]
struct HoldingJob {
    /// The job.
    job: Uuid,
    /// Its task.
    task: String,
    /// The session that owns it.
    session: Uuid,
}

/// A program that holds slots.
#[derive(Debug, Serialize, ToSchema)]
struct HoldingProgram {
    /// The id of its lease.
    lease: Uuid,
}

/// A group and its limit.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Limit {
    /// The group.
    pub group: String,
    /// Its limit now; null means unlimited.
    #[schema(required)]
    pub limit: Option<u32>,
}

/// Slots that were taken away.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Release {
    /// The group.
    pub group: String,
    /// The fence token that lost its slots.
    pub released: Wide,
}
