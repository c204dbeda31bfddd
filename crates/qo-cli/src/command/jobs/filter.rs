//! Which jobs a command is about.

use crate::command::argument;
use clap::Args;
use qo::core::{JobFilter, JobState, Key, Name};

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
}

impl Filter {
    /// Whether it has no condition: every job matches.
    pub fn is_empty(&self) -> bool {
        JobFilter::from(self.clone()) == JobFilter::default()
    }
}

impl From<Filter> for JobFilter {
    fn from(filter: Filter) -> Self {
        let Filter { states, queue, task, group, key, workflow } = filter;
        Self { states, queue, task, group, key, workflow }
    }
}
