//! Which jobs a command is about.

use crate::command::argument::{self, Past};
use clap::Args;
use qo::Store;
use qo::core::{IdPrefix, JobFilter, JobState, Key, Name, Time};
use std::sync::Arc;

/// Which jobs: those that match every option.
#[derive(Debug, Clone, Args)]
pub struct Filter {
    /// In this state; may be repeated: pending, claimed, running, succeeded, failed, cancelled, expired.
    #[arg(long = "state", value_name = "STATE", value_parser = argument::state, value_delimiter = ',')]
    states: Vec<JobState>,
    /// In this queue.
    #[arg(long, value_name = "NAME", value_parser = argument::name)]
    queue: Option<Name>,
    /// Of this task.
    #[arg(long, value_name = "NAME", value_parser = argument::name)]
    task: Option<Name>,
    /// Of this group.
    #[arg(long, value_name = "NAME", value_parser = argument::name)]
    group: Option<Name>,
    /// With this key.
    #[arg(long, value_name = "KEY", value_parser = argument::key)]
    key: Option<Key>,
    /// Of this workflow.
    #[arg(long, value_name = "NAME", value_parser = argument::name)]
    workflow: Option<Name>,
    /// Submitted at this moment or later, as in 2h (two hours ago) or 2026-12-24T18:00:00Z.
    #[arg(long, value_name = "MOMENT", value_parser = argument::past)]
    since: Option<Past>,
    /// Submitted before this moment.
    #[arg(long, value_name = "MOMENT", value_parser = argument::past)]
    until: Option<Past>,
    /// With an id that begins like this, as in 019a8a5e.
    #[arg(long, value_name = "PREFIX", value_parser = argument::id_prefix)]
    id: Option<IdPrefix>,
}

impl Filter {
    /// Whether it has no condition: every job matches.
    pub fn is_empty(&self) -> bool {
        self.clone().at(Time::from_millis(0)) == JobFilter::default()
    }

    /// As the store takes it, by the store's time.
    pub async fn of(self, store: &Arc<dyn Store>) -> qo::Result<JobFilter> {
        let is_relative = |past: Option<Past>| matches!(past, Some(Past::Ago(_)));
        let needs_now = is_relative(self.since) || is_relative(self.until);
        let now = if needs_now { store.now().await? } else { Time::from_millis(0) };
        Ok(self.at(now))
    }

    fn at(self, now: Time) -> JobFilter {
        let Self { states, queue, task, group, key, workflow, since, until, id } = self;
        JobFilter {
            states,
            queue,
            task,
            group,
            key,
            workflow,
            submitted_from: since.map(|since| since.from(now)),
            submitted_before: until.map(|until| until.from(now)),
            id_prefix: id,
            newest_first: false,
        }
    }
}
