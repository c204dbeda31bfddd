//! Groups, their limits, and the holders of their slots.

use super::{all, built, messages, needed, number, text, value};
use crate::pb;
use qo_core::{CodeLimit, Error, GroupDetail, GroupPage, GroupStatus, HeldBy, Holder, LimitSource, Limits};
use qo_core::{ErrorKind, Result};
use serde_json::json as parts;

impl From<GroupStatus> for pb::GroupStatus {
    fn from(status: GroupStatus) -> Self {
        Self {
            group: status.group.to_string(),
            limit: status.limit,
            source: status.source.map_or(0, number::<pb::LimitSource, _>),
            sources: Some(status.sources.into()),
            used: status.used,
            live: status.live,
            acquired: status.acquired,
            rejected: status.rejected,
        }
    }
}

impl TryFrom<pb::GroupStatus> for GroupStatus {
    type Error = Error;

    fn try_from(status: pb::GroupStatus) -> Result<Self> {
        let pb::GroupStatus { group, limit, source, sources, used, live, acquired, rejected } = status;
        let source: Option<LimitSource> = match source {
            0 => None,
            number => Some(value::<pb::LimitSource, _>("source", number)?),
        };
        built(parts!({
            "group": group,
            "limit": limit,
            "source": source,
            "sources": Limits::try_from(sources.unwrap_or_default())?,
            "used": used,
            "live": live,
            "acquired": acquired,
            "rejected": rejected,
        }))
    }
}

impl From<Limits> for pb::Limits {
    fn from(limits: Limits) -> Self {
        let code =
            |code: CodeLimit| pb::CodeLimit { task: text(code.task), limit: code.limit, app: text(code.app) };
        Self {
            operator: limits.operator,
            config: limits.config,
            config_app: limits.config_app.map(text),
            code: limits.code.into_iter().map(code).collect(),
            submit: limits.submit,
        }
    }
}

impl TryFrom<pb::Limits> for Limits {
    type Error = Error;

    fn try_from(limits: pb::Limits) -> Result<Self> {
        let code = |code: &pb::CodeLimit| parts!({ "task": code.task, "limit": code.limit, "app": code.app });
        built(parts!({
            "operator": limits.operator,
            "config": limits.config,
            "config_app": limits.config_app,
            "code": limits.code.iter().map(code).collect::<Vec<_>>(),
            "submit": limits.submit,
        }))
    }
}

impl From<GroupPage> for pb::GroupPage {
    fn from(page: GroupPage) -> Self {
        Self { groups: messages(page.groups), next: page.next.map(|next| next.to_string()) }
    }
}

impl TryFrom<pb::GroupPage> for GroupPage {
    type Error = Error;

    fn try_from(page: pb::GroupPage) -> Result<Self> {
        let groups: Vec<GroupStatus> = all(page.groups, "groups")?;
        built(parts!({ "groups": groups, "next": page.next }))
    }
}

impl From<Holder> for pb::Holder {
    fn from(holder: Holder) -> Self {
        use pb::holder::By;
        let by = match holder.by {
            HeldBy::Job { job, task, session } => By::Job(pb::HeldByJob {
                job: job.to_string(),
                task: text(task),
                session: session.to_string(),
            }),
            HeldBy::Program { lease } => By::Program(pb::HeldByProgram { lease: lease.to_string() }),
        };
        Self {
            token: holder.token.0,
            slots: holder.slots,
            worker: text(holder.worker),
            since_ms: holder.since.as_millis(),
            lease_until_ms: holder.lease_until.as_millis(),
            by: Some(by),
        }
    }
}

impl TryFrom<pb::Holder> for Holder {
    type Error = Error;

    fn try_from(holder: pb::Holder) -> Result<Self> {
        use pb::holder::By;
        let by = match needed("by", holder.by)? {
            By::Job(pb::HeldByJob { job, task, session }) => HeldBy::Job {
                job: super::job_id("job", &job)?,
                task: super::name("task", &task)?,
                session: super::session_id("session", &session)?,
            },
            By::Program(pb::HeldByProgram { lease }) => {
                HeldBy::Program { lease: super::lease_id("lease", &lease)? }
            }
        };
        built(parts!({
            "token": holder.token,
            "slots": holder.slots,
            "worker": holder.worker,
            "since": holder.since_ms,
            "lease_until": holder.lease_until_ms,
            "by": by,
        }))
    }
}

/// A group as a stream: its status, then each holder.
pub(crate) fn parts_of(detail: GroupDetail) -> impl Iterator<Item = pb::GroupPart> {
    use pb::group_part::Part;
    let holders = detail.holders.into_iter().map(|holder| Part::Holder(holder.into()));
    let status = std::iter::once(Part::Status(detail.status.into()));
    status.chain(holders).map(|part| pb::GroupPart { part: Some(part) })
}

/// A group, of the parts of a stream.
pub(crate) fn detail_of(parts: Vec<pb::GroupPart>) -> Result<GroupDetail> {
    use pb::group_part::Part;
    let (mut status, mut holders) = (None, Vec::new());
    for part in parts {
        match needed("part", part.part)? {
            Part::Status(found) => status = Some(GroupStatus::try_from(found)?),
            Part::Holder(holder) => holders.push(Holder::try_from(holder)?),
        }
    }
    let status =
        status.ok_or_else(|| Error::from_parts(ErrorKind::Invalid, "status", None, "must be given"))?;
    built(parts!({ "status": status, "holders": holders }))
}
