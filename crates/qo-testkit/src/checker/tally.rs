//! What a history was made of: a run that never reached a limit says nothing about limits.

use super::ledger::{AcquireVerdict, ClaimEnd, Fact, Grant, Ledger};
use super::{Objections, Watch};
use crate::faulty::Fault;
use crate::history::{Entry, What};
use qo_core::{Answer, AttemptOutcome, Command, ErrorKind, Exchange, ExchangeReply, JobState, OnFailure};
use qo_core::{SlotsFreedBy, Steer, Submitted, TickOutcome};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;

/// Counts of everything that the checkers saw.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<&'static str, u64>);

impl Tally {
    /// How often something happened.
    pub fn of(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }

    fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }
}

impl AddAssign<&Self> for Tally {
    fn add_assign(&mut self, other: &Self) {
        for (what, count) in &other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(what, count)| writeln!(f, "  {what:<28} {count:>12}"))
    }
}

impl Watch for Tally {
    fn fact(&mut self, books: &Ledger, fact: &Fact<'_>, _objections: &mut Objections) {
        match fact {
            Fact::Submitted(_, result) => self.count(match result {
                Ok(Submitted::Accepted(_)) => "submit: accepted",
                Ok(Submitted::Existing(_)) => "submit: existing",
                Ok(Submitted::Skipped) => "submit: skipped",
                Err(error) if error.kind() == ErrorKind::LimitReached => "submit: limit reached",
                Err(_) => "submit: conflict",
            }),
            Fact::Settled(_, _, Err(_), _) => self.count("settles fenced"),
            Fact::Granted(Grant { job: Some(job), claimed, .. }) => {
                self.count("grants");
                let job = &books.jobs[*job];
                if claimed.is_none() {
                    self.count("claims: started");
                }
                if job.step.is_some() {
                    self.count("steps run");
                }
                if job.schedule.is_some() {
                    self.count("jobs of schedules run");
                }
                if job.reopened {
                    self.count("reopened jobs run");
                }
                let fills = |&(group, need): &(usize, u32)| books.groups.free(group) == Some(need.into());
                if job.needs.iter().any(fills) {
                    self.count("grants that reach a limit");
                }
                if job.new.cost > 1 {
                    self.count("grants of big jobs");
                }
            }
            Fact::Ended { job, outcome, then, .. } => {
                self.halts(books, *job, *then);
                self.count(match outcome {
                    AttemptOutcome::Succeeded => "end: succeeded",
                    AttemptOutcome::Retried => "end: retried",
                    AttemptOutcome::Failed => "end: failed",
                    AttemptOutcome::Snoozed => "end: snoozed",
                    AttemptOutcome::Released => "end: released",
                    AttemptOutcome::Cancelled => "end: cancelled",
                    AttemptOutcome::LeaseEnded => "end: lease ended",
                    AttemptOutcome::TimedOut => "end: timed out",
                    AttemptOutcome::ReleasedByOperator => "end: released by operator",
                    _ => "end: another way",
                });
            }
            Fact::Repeated(..) => self.count("exchanges answered again"),
            Fact::Dropped(job, then) => {
                self.halts(books, *job, *then);
                self.count(match then {
                    JobState::Expired => "expired in line",
                    _ => "cancelled in line",
                });
            }
            Fact::Prefetched(..) => self.count("claims"),
            Fact::ClaimEnded { job, how, then, .. } => {
                self.halts(books, *job, *then);
                self.count(match how {
                    ClaimEnd::CouldNotStart => "claims: could not start",
                    ClaimEnd::Released => "claims: released",
                    ClaimEnd::Drained => "claims: given back by draining",
                    ClaimEnd::Over => "claims: over",
                    ClaimEnd::SessionEnded => "claims: ended with their session",
                    ClaimEnd::Cancelled => "claims: cancelled",
                });
            }
            Fact::Started(_, _, Err(_), _) => self.count("starts fenced"),
            Fact::Acquired(_, answer, verdict) => self.count(match (answer, verdict) {
                (Ok(Some(_)), AcquireVerdict::Same(_)) => "programs: granted again",
                (Ok(Some(_)), _) => "programs: granted",
                (Ok(None), _) => "programs: refused",
                (Err(_), _) => "programs: in error",
            }),
            Fact::Held(_, _, Ok(Answer::Extended(_)), _) => self.count("programs: extended"),
            Fact::Held(_, _, Err(_), _) => self.count("programs: fenced"),
            Fact::SlotsFreed(_, by) => self.count(match by {
                SlotsFreedBy::Holder => "programs: gave back",
                SlotsFreedBy::LeaseEnd => "programs: over",
                SlotsFreedBy::Operator => "programs: released by operator",
            }),
            Fact::Missed(_) => self.count("ticks: too late"),
            Fact::Ticked(_, tick, _, TickOutcome::Accepted(_)) if books.now.ms_since(*tick) > 5_000 => {
                self.count("ticks: fired late");
            }
            Fact::Ticked(_, _, _, outcome) => self.count(match outcome {
                TickOutcome::Accepted(_) => "ticks: fired",
                TickOutcome::Skipped => "ticks: skipped",
                TickOutcome::Existing(_) => "ticks: existing",
                TickOutcome::Refused(_) => "ticks: refused",
            }),
            Fact::Reopened(_) => self.count("jobs reopened"),
            Fact::Forgotten(_) => self.count("jobs forgotten"),
            Fact::Changed(changed, ..) => {
                self.count("bulk changes");
                if changed.next.is_some() {
                    self.count("bulk changes with another page");
                }
            }
            Fact::Steered(_, steer, Ok(_), _) => self.count(match steer {
                Steer::Retry(_) => "workflows: retried",
                Steer::Skip(_) => "workflows: skipped",
                Steer::Cancel => "workflows: cancelled",
            }),
            Fact::Steered(..) => self.count("workflows: not steered"),
            Fact::Exchanged(_, reply) if !reply.stop.is_empty() => self.count("exchanges that stop handlers"),
            Fact::Exchanged(exchange, reply) if met_reservation(books, exchange, reply) => {
                self.count("claims that met a reservation");
            }
            _ => {}
        }
    }

    fn entry(&mut self, books: &Ledger, entry: &Entry, _objections: &mut Objections) {
        match &entry.what {
            What::Sent(_) => self.count("operations"),
            What::Fault(Fault::Before) => self.count("fault: before"),
            What::Fault(Fault::After) => self.count("fault: after"),
            What::Fault(Fault::Late) => self.count("fault: late"),
            What::Fault(Fault::Twice) => self.count("fault: twice"),
            What::Crashed => self.count("crashes"),
            What::Paused { beyond_margin: true, .. } => self.count("pauses beyond the margin"),
            What::Paused { .. } => self.count("pauses"),
            What::Session(_) => self.count("sessions"),
            What::Audited(audit) => {
                self.count("audits");
                audit.explanations.iter().for_each(|_| self.count("explanations"));
            }
            What::Applied(command, answer) => match (&**command, answer.is_ok()) {
                (Command::SetLimit(_, 0), true) => self.count("limits set to 0"),
                (Command::SetLimit(..) | Command::UnsetLimit(_) | Command::Configure(_), true) => {
                    self.count("limit changes");
                }
                (Command::PauseQueue(..), true) => self.count("queues paused or resumed"),
                (Command::Exchange(_), true) => {
                    let reached = |index: &usize| {
                        books.groups.free(*index) == Some(0)
                            && books.groups.live(*index) > books.groups.used(*index)
                    };
                    if books.groups.all().any(|index| reached(&index)) {
                        self.count("exchanges with work behind a full limit");
                    }
                }
                (Command::Exchange(_), false) => self.count("exchanges refused"),
                _ => {}
            },
            _ => {}
        }
    }
}

impl Tally {
    /// Counts a step whose end halts its workflow.
    fn halts(&mut self, books: &Ledger, job: usize, then: JobState) {
        let halts = books.workflow_of(job).is_some_and(|workflow| {
            workflow.on_failure == OnFailure::Halt && !workflow.cancelled && books.head(workflow) == Some(job)
        });
        if halts && then.is_terminal() && then != JobState::Succeeded {
            self.count("workflows: halted");
        }
    }
}

fn met_reservation(books: &Ledger, exchange: &Exchange, reply: &ExchangeReply) -> bool {
    let held_back = |&job: &usize| books.is_claimable(job) && books.has_room(job) && books.is_reserved(job);
    reply.claimed.len() < exchange.claim.max as usize && books.pending.iter().any(held_back)
}
