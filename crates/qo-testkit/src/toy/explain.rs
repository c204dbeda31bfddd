//! Why a job does not run.

use super::not_found;
use super::state::{Counted, Job, Toy};
use super::workflow::step_status;
use qo_core::{Explanation, GroupRef, JobId, JobState, Reason, Result, caps};

/// Holders that a reason names.
const HOLDERS: usize = 10;

impl Toy {
    pub fn explain(&self, job: JobId) -> Result<Explanation> {
        let at = self.jobs.iter().position(|row| row.new.id == job).ok_or_else(|| not_found(job))?;
        let foreseen = self.foresee();
        if foreseen.jobs[at].is_live() || !self.jobs[at].is_live() {
            return Ok(foreseen.explain_now(&foreseen.jobs[at]));
        }
        // It would end: views show it as stored until a command has ended it.
        let job = &self.jobs[at];
        let good_until = job.new.good_until.filter(|&until| until <= self.now && !job.is_running());
        let reasons = good_until.map(|good_until| Reason::Expired { good_until }).into_iter().collect();
        Ok(Explanation { job: job.new.id, state: job.state, reasons })
    }

    fn explain_now(&self, job: &Job) -> Explanation {
        let reasons = match (job.state, &job.ahead) {
            (JobState::Pending, _) => self.reasons(job),
            (JobState::Claimed, Some(ahead)) => vec![Reason::ClaimedByPrefetch {
                worker: ahead.worker.clone(),
                session: ahead.session,
                claim_until: ahead.until,
            }],
            _ => Vec::new(),
        };
        Explanation { job: job.new.id, state: job.state, reasons }
    }

    fn reasons(&self, job: &Job) -> Vec<Reason> {
        let mut reasons = Vec::new();
        let run_at = job.run_at;
        if run_at > self.now {
            let first = job.attempts.is_empty();
            reasons.push(if first { Reason::ScheduledUntil { run_at } } else { Reason::RetryAt { run_at } });
        }
        if let Some(good_until) = job.new.good_until.filter(|&until| until <= self.now) {
            reasons.push(Reason::Expired { good_until });
        }
        if self.paused.contains(&job.new.queue) {
            reasons.push(Reason::QueuePaused { queue: job.new.queue.clone() });
        }
        reasons.extend(self.workflow_reason(job));
        let needs = job.needs().into_iter();
        reasons.extend(needs.filter_map(|(group, cost)| self.group_reason(job, group, cost)));
        reasons.extend(self.worker_reason(job));
        if reasons.is_empty() {
            let same_line = |other: &Job| other.new.queue == job.new.queue && other.new.task == job.new.task;
            reasons.push(Reason::OnlyWaitingForClaim { position: self.position(job, same_line) });
        }
        reasons
    }

    fn workflow_reason(&self, job: &Job) -> Option<Reason> {
        let workflow = job.new.workflow.clone()?;
        if self.is_halted(&workflow) {
            let halted_by = step_status(self.head(&workflow)?);
            return Some(Reason::WorkflowHalted { workflow, halted_by });
        }
        let waits_for = self.waits_for(job).filter(|_| !self.is_next(job))?;
        Some(Reason::WaitingForStep { workflow, waits_for })
    }

    fn group_reason(&self, job: &Job, group: GroupRef, cost: u32) -> Option<Reason> {
        let limit = self.limit(&group)?;
        let used = self.used(&group);
        if limit == 0 {
            return Some(Reason::HeldByLimitZero { group });
        }
        if cost > limit {
            return Some(Reason::CanNeverRun { group, cost, limit });
        }
        if used + u64::from(cost) > u64::from(limit) {
            let mut holders = self.holders(&group);
            holders.truncate(HOLDERS);
            let position = self.position(job, |other| other.need(&group) > 0);
            return Some(Reason::GroupFull { group, used, limit, cost, holders, position });
        }
        let first = self.reserved_for(self.claim_order(job), &group, cost, Counted::Running)?.new.id;
        Some(Reason::ReservedFor { group, job: first })
    }

    fn worker_reason(&self, job: &Job) -> Option<Reason> {
        let serving: Vec<_> = self.sessions.iter().filter(|session| session.serves(job)).collect();
        if serving.is_empty() {
            return Some(Reason::NoLiveWorker { queue: job.new.queue.clone(), task: job.new.task.clone() });
        }
        let draining = serving.iter().filter(|session| session.draining).count();
        let saturated = serving.iter().filter(|session| !session.draining && session.is_saturated()).count();
        let busy = Reason::WorkersBusy { saturated: saturated as u32, draining: draining as u32 };
        (saturated + draining == serving.len()).then_some(busy)
    }

    /// A job's place in a line, 1 for the next.
    fn position(&self, job: &Job, same_line: impl Fn(&Job) -> bool) -> u32 {
        let earlier = |other: &&Job| self.claim_order(other) < self.claim_order(job) && same_line(other);
        let earlier = self.line().into_iter().filter(earlier).count();
        u32::try_from(earlier + 1).unwrap_or(u32::MAX).min(caps::POSITION)
    }
}
