//! G6 order: steps of a workflow run strictly one after another, in the order in which they were accepted, whatever is
//! retried, whichever process crashes, and whichever worker claims them.

use super::ledger::{Fact, Ledger};
use super::{Objections, Violation, Watch, read};
use crate::history::{Audit, Entry, History, What};
use qo_core::{Attempt, Error, ErrorKind, JobId, JobState, Name, OnFailure};
use std::collections::BTreeMap;

/// Watches what runs of each workflow, what is submitted to it, and how it is steered.
#[derive(Debug, Default)]
pub struct Order;

/// Steps that were not next, two steps at once, and workflows that take what they must not.
pub fn check(history: &History) -> Vec<Violation> {
    read(history, &mut [&mut Order])
}

impl Watch for Order {
    fn fact(&mut self, books: &Ledger, fact: &Fact<'_>, objections: &mut Objections) {
        match fact {
            Fact::Granted(grant) => {
                grant.job.iter().for_each(|&job| in_turn(books, job, objections));
            }
            Fact::Prefetched(_, prefetched, Some(job)) => {
                objections.unless(books.is_next(*job), "G6", || {
                    format!("step {} was claimed before it was next", prefetched.job.id)
                });
            }
            Fact::Submitted(job, result) if books.find_like(job).is_none() => {
                let refused = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Conflict);
                let due = books.workflow_refuses(job);
                objections.unless(refused == due, "G6", || {
                    format!("{} in workflow {:?}: {result:?}, refuses it: {due}", job.id, job.workflow)
                });
            }
            Fact::Steered(workflow, steer, answer, due) => {
                let said = answer.as_ref().map(drop).map_err(Error::kind);
                objections.unless(said == *due, "G6", || {
                    format!("{steer:?} of workflow {workflow}: {answer:?}, due was {due:?}")
                });
            }
            _ => {}
        }
    }

    fn entry(&mut self, _books: &Ledger, entry: &Entry, objections: &mut Objections) {
        if let What::Audited(audit) = &entry.what {
            never_two_at_once(audit, objections);
        }
    }
}

/// Every earlier step is passed, by the states of the steps, and no other step runs.
fn in_turn(books: &Ledger, job: usize, objections: &mut Objections) {
    let Some(workflow) = books.workflow_of(job) else { return };
    let id = books.jobs[job].new.id;
    let any_end = workflow.cancelled || workflow.on_failure == OnFailure::Continue;
    for &other in workflow.steps.iter().filter(|&&other| other != job) {
        let step = &books.jobs[other];
        let passed =
            step.state == JobState::Succeeded || step.state.is_terminal() && (any_end || step.skipped);
        objections.unless(step.step > books.jobs[job].step || passed, "G6", || {
            format!("step {id} starts before step {}, which is {:?}", step.new.id, step.state)
        });
        objections.unless(step.state != JobState::Running, "G6", || {
            format!("step {id} starts while step {} runs", step.new.id)
        });
    }
}

/// What the store itself remembers of the attempts of a workflow, all steps together.
fn never_two_at_once(audit: &Audit, objections: &mut Objections) {
    let mut attempts: BTreeMap<&Name, Vec<(&Attempt, JobId)>> = BTreeMap::new();
    for detail in &audit.details {
        if let Some(workflow) = &detail.view.workflow {
            let of_step = detail.attempts.iter().map(|attempt| (attempt, detail.view.id));
            attempts.entry(workflow).or_default().extend(of_step);
        }
    }
    for (workflow, mut attempts) in attempts {
        attempts.sort_unstable_by_key(|(attempt, _)| attempt.token);
        attempts.dedup_by_key(|(attempt, _)| attempt.token);
        for pair in attempts.windows(2) {
            objections.unless(pair[0].0.ended_at <= pair[1].0.started_at, "G6", || {
                format!("steps {} and {} of workflow {workflow} overlap", pair[0].1, pair[1].1)
            });
        }
    }
}
