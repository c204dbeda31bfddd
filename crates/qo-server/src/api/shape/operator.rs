//! What operators look at: tokens, the audit log, configurations and pushes.

use super::{Moment, Wide, place::Spec};
use qo_core::{AuditEntry as Entry, Setting};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A live token, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Token {
    /// Its id.
    id: String,
    /// Its name.
    name: String,
    /// What its bearer may do: `read`, `submit`, `work`, `admin`.
    scopes: Vec<String>,
    /// The queues whose jobs its bearer may see and change; absent means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    queues: Option<Vec<String>>,
    /// The app that its bearer may configure; absent means any.
    #[serde(skip_serializing_if = "Option::is_none")]
    app: Option<String>,
    /// When it expires; absent means never.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Moment>,
    /// When it was created.
    created_at: Moment,
}

impl From<qo_core::Token> for Token {
    fn from(token: qo_core::Token) -> Self {
        Self {
            id: token.id.to_string(),
            name: token.name.to_string(),
            scopes: token.scopes.iter().map(ToString::to_string).collect(),
            queues: token.queues.map(|queues| queues.iter().map(ToString::to_string).collect()),
            app: token.app.map(|app| app.to_string()),
            expires_at: token.expires_at.map(Moment),
            created_at: token.created_at.into(),
        }
    }
}

/// Some tokens.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenPage {
    /// The tokens, by name.
    pub tokens: Vec<Token>,
    /// The cursor of the next page; null if this is the last.
    #[schema(required)]
    pub next: Option<String>,
}

/// A token that was created.
#[derive(Serialize, ToSchema)]
pub(crate) struct CreatedToken {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The token itself: a secret, told this once.
    pub token: String,
}

/// A token that was revoked.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RevokedToken {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// `true`.
    pub revoked: bool,
}

/// What operators did, the newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Audit {
    /// The entries.
    pub entries: Vec<AuditEntry>,
    /// The cursor of the next page; null if this is the last.
    #[schema(required)]
    pub next: Option<Wide>,
}

/// One thing that an operator did.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditEntry {
    /// Its number: the newest has the largest.
    number: u64,
    /// When it was recorded.
    at: Moment,
    /// Who did it: `USER@HOST`, or the name of a token.
    by: String,
    /// What was done, such as `create token`.
    what: String,
    /// What it was done to.
    on: String,
    /// The value before.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    /// The value after.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<String>,
}

impl From<Entry> for AuditEntry {
    fn from(entry: Entry) -> Self {
        Self {
            number: entry.number,
            at: entry.at.into(),
            by: entry.deed.by.into(),
            what: entry.deed.what.into(),
            on: entry.deed.on.into(),
            before: entry.deed.before.map(String::from),
            after: entry.deed.after.map(String::from),
        }
    }
}

/// The configuration of an app.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Configuration {
    /// The app.
    app: String,
    /// Limits by group.
    limits: BTreeMap<String, u32>,
    /// Priorities by queue.
    queue_priorities: BTreeMap<String, u32>,
    /// Schedules by name.
    schedules: BTreeMap<String, Spec>,
    /// How long ended jobs are remembered; a field that is absent is left to other apps and the default.
    retention: Retention,
}

impl From<qo_core::Configuration> for Configuration {
    fn from(configuration: qo_core::Configuration) -> Self {
        let qo_core::Configuration { app, limits, queue_priorities, schedules, retention } = configuration;
        Self {
            app: app.to_string(),
            limits: limits.into_iter().map(|(group, limit)| (group.to_string(), limit)).collect(),
            queue_priorities: queue_priorities
                .into_iter()
                .map(|(name, one)| (name.to_string(), one))
                .collect(),
            schedules: schedules.into_iter().map(|(name, spec)| (name.to_string(), spec.into())).collect(),
            retention: Retention {
                succeeded_ms: retention.succeeded_ms,
                failed_ms: retention.failed_ms,
                cancelled_ms: retention.cancelled_ms,
                expired_ms: retention.expired_ms,
            },
        }
    }
}

/// How long ended jobs are remembered.
#[derive(Debug, Serialize, ToSchema)]
struct Retention {
    /// Of jobs that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    succeeded_ms: Option<u64>,
    /// Of jobs that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_ms: Option<u64>,
    /// Of jobs that were cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    cancelled_ms: Option<u64>,
    /// Of jobs that expired.
    #[serde(skip_serializing_if = "Option::is_none")]
    expired_ms: Option<u64>,
}

/// Some configurations.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConfigurationPage {
    /// The configurations, in the order of their newest push that changed something: where two name the same setting,
    /// the later one counts.
    pub configurations: Vec<Configuration>,
    /// The cursor of the next page; null if this is the last.
    #[schema(required)]
    pub next: Option<String>,
}

/// The last pushes of configurations and registrations that changed something.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PushList {
    /// The newest first, at most 100.
    pub pushes: Vec<Push>,
}

/// A push that changed something.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Push {
    /// When.
    at: Moment,
    /// The app.
    app: String,
    /// What it changed, the first 50.
    changes: Vec<SettingChange>,
    /// How many more.
    unlisted: u64,
}

impl From<qo_core::Push> for Push {
    fn from(push: qo_core::Push) -> Self {
        let change = |change: qo_core::SettingChange| SettingChange {
            setting: change.setting,
            name: change.name,
            old: change.old,
            new: change.new,
        };
        Self {
            at: push.at.into(),
            app: push.app.to_string(),
            changes: push.changes.into_iter().map(change).collect(),
            unlisted: push.unlisted,
        }
    }
}

/// A setting that a push changed.
#[derive(Debug, Serialize, ToSchema)]
struct SettingChange {
    /// `limit`, `queue_priority`, `schedule`, `retention` or `task`.
    #[schema(value_type = String)]
    setting: Setting,
    /// The group, queue, schedule, task or state.
    name: String,
    /// What the app said before; absent if it is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    old: Option<String>,
    /// What it says now; absent if it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    new: Option<String>,
}
