//! G8 live limits: after `set` or `pause` is acknowledged, no claim, start or program exceeds the new value.
//!
//! Seen from the caller: the last value that it *got acknowledged* counts, until the store takes another one for the
//! same group or queue.

use super::ledger::{Fact, Ledger};
use super::{Objections, Violation, Watch, read};
use crate::history::{Entry, History, What};
use qo_core::{Command, FenceToken, GroupRef, Name};
use std::collections::{HashMap, HashSet};

/// Watches acknowledged limits and pauses.
#[derive(Debug, Default)]
pub struct LiveLimits {
    limits: HashMap<GroupRef, u32>,
    newest_limit: HashMap<GroupRef, u32>,
    newest_paused: HashSet<Name>,
    paused: HashSet<Name>,
}

/// Claims that a limit or pause, acknowledged before, forbade.
pub fn check(history: &History) -> Vec<Violation> {
    read(history, &mut [&mut LiveLimits::default()])
}

impl Watch for LiveLimits {
    fn fact(&mut self, books: &Ledger, fact: &Fact<'_>, objections: &mut Objections) {
        let (token, needs) = match fact {
            Fact::Granted(grant) => {
                let Some(job) = grant.job.map(|job| &books.jobs[job]) else { return };
                self.not_paused(&job.new.queue, grant.token, objections);
                (grant.token, job.needs.as_slice())
            }
            Fact::Prefetched(_, prefetched, _) => {
                return self.not_paused(&prefetched.job.queue, prefetched.job.token, objections);
            }
            Fact::SlotsTaken(_, token, needs) => (*token, *needs),
            _ => return,
        };
        for &(group, need) in needs {
            let Some(&limit) = self.limits.get(books.groups.name(group)) else { continue };
            let would_use = books.groups.used(group) + u64::from(need);
            objections.unless(would_use <= u64::from(limit), "G8", || {
                format!("token {token} makes {would_use} of {limit} in {}", books.groups.name(group))
            });
        }
    }

    fn entry(&mut self, _books: &Ledger, entry: &Entry, _objections: &mut Objections) {
        match &entry.what {
            What::Heard(command, reply) if reply.is_ok() => self.acknowledged(command),
            What::Applied(command, answer) if answer.is_ok() => self.overruled(command),
            _ => {}
        }
    }
}

impl LiveLimits {
    fn not_paused(&self, queue: &Name, token: FenceToken, objections: &mut Objections) {
        objections.unless(!self.paused.contains(queue), "G8", || {
            format!("token {token} came from queue {queue}, which was paused")
        });
    }

    /// A value counts once it is acknowledged, unless a late or repeated call overruled it meanwhile.
    fn acknowledged(&mut self, command: &Command) {
        match command {
            Command::SetLimit(group, limit) if self.newest_limit.get(group) == Some(limit) => {
                self.limits.insert(group.clone(), *limit);
            }
            Command::PauseQueue(queue, true) if self.newest_paused.contains(queue) => {
                self.paused.insert(queue.clone());
            }
            _ => {}
        }
    }

    fn overruled(&mut self, command: &Command) {
        match command {
            Command::SetLimit(group, limit) => {
                self.limits.remove(group);
                self.newest_limit.insert(group.clone(), *limit);
            }
            Command::UnsetLimit(group) => {
                self.limits.remove(group);
                self.newest_limit.remove(group);
            }
            Command::PauseQueue(queue, true) => drop(self.newest_paused.insert(queue.clone())),
            Command::PauseQueue(queue, false) => {
                self.paused.remove(queue);
                self.newest_paused.remove(queue);
            }
            _ => {}
        }
    }
}
