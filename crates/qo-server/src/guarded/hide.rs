//! What a view does not show to a caller.

use crate::rights::Rights;
use qo_core::{Explanation, GroupRef, HeldBy, Holder, JobId, LeaseId, Reason, Scope};
use qo_core::{Name, WorkerStatus};
use uuid::Uuid;

/// Holders without what would prove ownership: the id of a lease returns its slots.
pub(super) fn holders(rights: &Rights, holders: &mut [Holder]) {
    if rights.may(Scope::Admin) {
        return;
    }
    for holder in holders {
        if let HeldBy::Program { lease } = &mut holder.by {
            *lease = LeaseId(Uuid::nil());
        }
    }
}

/// Why a job waits, without jobs of queues that the caller does not see: their ids are nil, and holders are left out.
pub(super) fn explanation(rights: &Rights, told: &mut Explanation) {
    let is_bound = rights.queues().is_some();
    for reason in &mut told.reasons {
        match reason {
            Reason::GroupFull { group, holders: all, .. } => {
                let is_own = matches!(group, GroupRef::Queue(_));
                if is_bound && !is_own {
                    all.clear();
                }
                holders(rights, all);
            }
            Reason::ReservedFor { job, .. } if is_bound => *job = JobId(Uuid::nil()),
            Reason::WaitingForStep { waits_for: step, .. }
            | Reason::WorkflowHalted { halted_by: step, .. }
                if is_bound =>
            {
                step.job = JobId(Uuid::nil());
            }
            _ => {}
        }
    }
}

/// Whether a worker serves nothing but queues that the caller sees.
pub(super) fn is_shown(rights: &Rights, worker: &WorkerStatus) -> bool {
    let sees = |queue: &Name| rights.sees(queue);
    rights.queues().is_none() || !worker.queues.is_empty() && worker.queues.iter().all(sees)
}
