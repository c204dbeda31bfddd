//! G3 nothing lost: an acknowledged submit reaches exactly one terminal state; an unacknowledged one, with
//! the same id or idempotency key, happened 0 or 1 times.

use super::ledger::{Fact, Ledger};
use super::{Objections, Violation, Watch, read};
use crate::history::{Audit, Entry, History, What};
use qo_core::{Answer, Command, JobId, JobState, JobView, Result, Submitted};
use std::collections::HashMap;

/// Watches submits, ends and the store's last word.
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
                let known = books
                    .find(job.id)
                    .or(job.idempotency_key.as_ref().and_then(|key| books.find_idempotency_key(key)));
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
            Fact::Granted(_, claimed, None) => {
                objections.add("G3", format!("{} was granted but never accepted", claimed.id));
            }
            Fact::Granted(_, claimed, Some(job)) => {
                let state = books.jobs[*job].state;
                objections.unless(!state.is_terminal(), "G3", || {
                    format!("{} ran again after it was {state:?}", claimed.id)
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
            What::Heard(command, reply) => {
                if let (Command::Submit(_), Ok(Answer::Submitted(results))) = (&**command, &**reply) {
                    self.acknowledged.extend(results.iter().filter_map(stored));
                }
            }
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
        for job in &self.acknowledged {
            objections
                .unless(views.contains_key(job), "G3", || format!("{job} was acknowledged and is lost"));
        }
        for job in &books.jobs {
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
