//! Workflows: jobs that run strictly one after another, across the fleet.
//!
//! A workflow is made by the first job that names it, and goes when its last job is forgotten. Its jobs are its
//! **steps**, numbered 1, 2, 3, … as they are accepted.
//!
//! ```text
//!   1 succeeded   2 failed, skipped   3 running   4 pending   5 pending
//!   └─────── passed ───────────────┘  └ head      └── wait for the head ──┘
//! ```
//!
//! - A step is **passed** once it has succeeded or was skipped; where failures do not halt (`continue`), and in a
//!   cancelled workflow, once it has ended in any way.
//! - The **head** is the first step that is not passed. It alone may run, and only while no other step runs.
//! - The workflow is **halted** while its head has ended: until it is retried or skipped, or the workflow cancelled.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What any end but success does to the steps behind it.
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

/// What an operator does about a workflow. It names the step, so that a call that is made again, because its answer was
/// lost, cannot do the same to the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Steer {
    /// Open the step of this number again, which halts it.
    Retry(u32),
    /// Pass over the step of this number, which halts it.
    Skip(u32),
    /// Call off every step that has not ended, and take no more.
    Cancel,
}

/// How a workflow is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkflowState {
    /// Its head is pending, claimed or running.
    Active,
    /// Its head has ended without success: what is behind it waits, and so would what is submitted now.
    Halted,
    /// Every step is passed. More may be submitted.
    Finished,
    /// It was called off. Nothing more can be submitted to it.
    Cancelled,
}
