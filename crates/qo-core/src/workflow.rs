//! Workflows: jobs that run strictly one after another, across the fleet.
//!
//! The first job that names a workflow makes it. It goes when its last job is forgotten. Its jobs are its **steps**,
//! numbered 1, 2, 3, … in the order of acceptance.
//!
//! ```text
//!   1 succeeded   2 failed, skipped   3 running   4 pending   5 pending
//!   └─────── passed ───────────────┘  └ head      └── wait for the head ──┘
//! ```
//!
//! - A step is **passed** once it has succeeded or was skipped. Where failures do not halt (`continue`), and in a
//!   cancelled workflow, it is passed once it has ended in any way.
//! - The **head** is the first step that is not passed. It alone may run, and only while no other step runs.
//! - The workflow is **halted** while its head has ended: until that step is retried or skipped, or the workflow
//!   cancelled.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What the steps behind a step do when it ends without success.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// They wait until the step is retried or skipped, or the workflow is cancelled.
    #[default]
    Halt,
    /// They go on.
    Continue,
}

impl fmt::Display for OnFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Halt => "halt",
            Self::Continue => "continue",
        })
    }
}

/// What an operator does about a workflow.
///
/// It names the step, so that a call that is repeated after a lost answer cannot act on the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Steer {
    /// Reopen the step with this number, which halts the workflow.
    Retry(u32),
    /// Skip the step with this number, which halts the workflow.
    Skip(u32),
    /// Cancel every live step, and take no more jobs.
    Cancel,
}

/// The state of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkflowState {
    /// Its head is pending, claimed or running.
    Active,
    /// Its head has ended without success. The steps behind it wait, and so would a job that is submitted now.
    Halted,
    /// Every step is passed. More jobs may be submitted.
    Finished,
    /// It was cancelled and takes no more jobs.
    Cancelled,
}
