//! G3 nothing lost: an acknowledged submit reaches exactly one terminal state; an unacknowledged one, with
//! the same id or idempotency key, happened 0 or 1 times.

use super::ledger::{Fact, Ledger};
use super::{Objections, Violation, Watch, read};
use crate::history::{Audit, Entry, History, What};
use qo_core::{Answer, Command, Error, JobId, JobState, JobView, Result, Submitted};
use std::collections::HashMap;

/// Watches submits, ends and the store's final views.
#[derive(Debug, Default)]
pub struct Lost {
    acknowledged: Vec<JobId>,
    healed: bool,
}

/// Jobs that vanished, came twice, ended twice or never ended.
pub fn check(history: &History) -> Vec<Violation> {
    read(history, &mut [&mut Lost::default()])
}

impl Watch for Lost {
    fn fact(&mut self, books: &Ledger, fact: &Fact<'_>, objections: &mut Objections) {
        match fact {
            Fact::Submitted(job, Ok(submitted)) => {
                let known = books.find_like(job);
                match submitted {
                    Submitted::Accepted(id) => {
                        objections.unless(known.is_none() && *id == job.id, "G3", || {
                            format!("{} was accepted a second time, as {id}", job.id)
                        })
                    }
                    Submitted::Existing(id) => objections.unless(books.find(*id).is_some(), "G3", || {
                        format!("{} is said to exist as {id}, which was never accepted", job.id)
                    }),
                    Submitted::Skipped => {}
                }
            }
            Fact::Granted(grant) => self.may_be_taken(books, grant.id, grant.job, objections),
            Fact::Prefetched(_, prefetched, job) => {
                self.may_be_taken(books, prefetched.job.id, *job, objections);
            }
            Fact::Retried(id, result, due) => {
                let fits = result.as_ref().map(|state| *state).map_err(Error::kind) == *due;
                objections.unless(fits, "G3", || format!("retrying {id}: {result:?}, due was {due:?}"));
            }
            Fact::Changed(said, due, more) => {
                let fits = said.jobs == *due && said.next.is_some() == *more;
                objections.unless(fits, "G3", || {
                    format!("a bulk change counted {said:?}, due was {due}, more: {more}")
                });
            }
            Fact::Cancelled(id, result, expected) => {
                let fits = result.as_ref().ok().copied() == *expected;
                objections
                    .unless(fits, "G3", || format!("cancelling {id}: {result:?}, due was {expected:?}"));
            }
            _ => {}
        }
    }

    fn entry(&mut self, books: &Ledger, entry: &Entry, objections: &mut Objections) {
        match &entry.what {
            What::Heard(command, reply) => match (&**command, &**reply) {
                (Command::Submit(_), Ok(Answer::Submitted(results))) => {
                    self.acknowledged.extend(results.iter().filter_map(stored));
                }
                (Command::TriggerSchedule(..), Ok(Answer::Triggered(Ok(submitted)))) => {
                    self.acknowledged.extend(stored(&Ok(*submitted)));
                }
                _ => {}
            },
            What::Healed { .. } => self.healed = true,
            What::Audited(audit) if audit.complete => self.last_word(books, audit, objections),
            _ => {}
        }
    }
}

fn stored(result: &Result<Submitted>) -> Option<JobId> {
    match result {
        Ok(Submitted::Accepted(job) | Submitted::Existing(job)) => Some(*job),
        _ => None,
    }
}

impl Lost {
    /// A job that ended does not run again, unless an operator reopened it.
    fn may_be_taken(&self, books: &Ledger, id: JobId, job: Option<usize>, objections: &mut Objections) {
        let Some(job) = job else {
            return objections.add("G3", format!("{id} was granted but never accepted"));
        };
        let state = books.jobs[job].state;
        objections.unless(!state.is_terminal(), "G3", || format!("{id} ran again after it was {state:?}"));
    }

    fn last_word(&self, books: &Ledger, audit: &Audit, objections: &mut Objections) {
        let mut views: HashMap<JobId, &JobView> = HashMap::new();
        for view in &audit.jobs {
            objections.unless(views.insert(view.id, view).is_none(), "G3", || {
                format!("{} is listed twice", view.id)
            });
            objections.unless(books.find(view.id).is_some(), "G3", || {
                format!("{} is listed, never accepted", view.id)
            });
        }
        for job in self.acknowledged.iter().filter(|job| !books.forgotten.contains(job)) {
            objections
                .unless(views.contains_key(job), "G3", || format!("{job} was acknowledged and is lost"));
        }
        let remembered = books.jobs.iter().enumerate();
        for (_, job) in remembered.filter(|(index, job)| books.find(job.new.id) == Some(*index)) {
            let state: Option<JobState> = views.get(&job.new.id).map(|view| view.state);
            objections.unless(state == Some(job.state), "G3", || {
                format!("{} is {state:?}, by the books {:?}", job.new.id, job.state)
            });
            objections.unless(!self.healed || job.state.is_terminal(), "G3", || {
                format!("{} never ended: {:?}", job.new.id, job.state)
            });
        }
    }
}
