//! `explain`: why is my job not running? Every reason that holds now, from the same rules that a claim uses.

use crate::lane::{Lane, Rank};
use crate::state::row::{At, Group, Job, Phase};
use crate::state::{State, table::Ix};
use crate::{Error, Explanation, JobId, Reason, Result, caps};

/// How many holders are shown of a full group.
const HOLDERS_SHOWN: usize = 10;

impl State {
    /// Everything that keeps a job from running.
    pub fn explain(&self, job: JobId) -> Result<Explanation> {
        let at = self.find(job).ok_or_else(|| Error::not_found(format!("job {job}")))?;
        let reasons = match at {
            At::Live(ix) => self.reasons(ix),
            At::Past(_) => Vec::new(),
        };
        Ok(Explanation { job, state: self.state_at(at), reasons })
    }

    fn reasons(&self, ix: Ix<Job>) -> Vec<Reason> {
        let job = &self.jobs[ix];
        match job.phase() {
            Phase::Pending => self.reasons_to_wait(ix, job),
            Phase::Claimed(claimed) => {
                let session = &self.sessions[claimed.session].row.new;
                let (worker, session) = (session.worker.clone(), session.id);
                vec![Reason::ClaimedByPrefetch { worker, session, claim_until: claimed.until }]
            }
            Phase::Running(_) => Vec::new(),
        }
    }

    fn reasons_to_wait(&self, ix: Ix<Job>, job: &Job) -> Vec<Reason> {
        let mut reasons = Vec::new();
        if job.run_at > self.now {
            let run_at = job.run_at;
            let fresh = job.attempts().is_empty();
            reasons.push(if fresh { Reason::ScheduledUntil { run_at } } else { Reason::RetryAt { run_at } });
        }
        if let Some(good_until) = job.good_until().filter(|good_until| *good_until <= self.now) {
            reasons.push(Reason::Expired { good_until });
        }
        let desk = self.desk(self.class(job.lane));
        let queue = &self.queues[desk.queue];
        if queue.paused {
            reasons.push(Reason::QueuePaused { queue: queue.name.clone() });
        }
        reasons.extend(self.behind_next(ix, job));
        let place = (queue.priority(), job.rank());
        let lacking =
            self.needs(job.lane).into_iter().filter_map(|(group, need)| self.lacking(group, need, place));
        reasons.extend(lacking);
        reasons.extend(self.lacking_workers(job.lane));
        if reasons.is_empty() {
            let same_desk = |lane: &Lane| self.classes[lane.class].desk == self.class(job.lane).desk;
            reasons.push(Reason::OnlyWaitingForClaim { position: self.position(place, same_desk) });
        }
        reasons
    }

    /// The step that a step waits for.
    fn behind_next(&self, ix: Ix<Job>, job: &Job) -> Option<Reason> {
        let workflow = &self.workflows[job.membership()?.workflow];
        if workflow.next == Some(ix) {
            return None;
        }
        let name = workflow.name.clone();
        let (step, at) = workflow.head()?;
        if matches!(at, At::Past(_)) {
            return Some(Reason::WorkflowHalted { workflow: name, halted_by: self.step_status(step, at) });
        }
        let running = workflow.running.and_then(|step| workflow.steps.get_key_value(&step));
        let (step, at) = running.map_or((step, at), |(&step, &at)| (step, at));
        Some(Reason::WaitingForStep { workflow: name, waits_for: self.step_status(step, at) })
    }

    fn lacking(&self, ix: Ix<Group>, need: u32, place: (u32, Rank)) -> Option<Reason> {
        let row = &self.groups[ix];
        let limit = row.limit?;
        let group = self.group_ref(&row.label);
        if limit == 0 {
            return Some(Reason::HeldByLimitZero { group });
        }
        if need > limit {
            return Some(Reason::CanNeverRun { group, cost: need, limit });
        }
        if row.has_room(need) {
            return self.reserved_for(ix, need, place).map(|job| Reason::ReservedFor { group, job });
        }
        let holders = self.holding(&group).take(HOLDERS_SHOWN);
        let holders = holders.map(|(_, held)| self.holder(&group, held)).collect();
        let in_group = |lane: &Lane| self.lane_takes(lane, ix);
        let position = self.position(place, in_group);
        Some(Reason::GroupFull { used: row.used, limit, cost: need, holders, position, group })
    }

    fn lacking_workers(&self, lane: Ix<Lane>) -> Option<Reason> {
        let desk = self.desk(self.class(lane));
        let task = &self.tasks[desk.task];
        let sessions = task.sessions.iter().map(|&session| &self.sessions[session].row);
        let serving: Vec<_> = sessions.filter(|row| row.serves_queue(desk.queue)).collect();
        if serving.is_empty() {
            let (queue, task) = (self.queues[desk.queue].name.clone(), task.name.clone());
            return Some(Reason::NoLiveWorker { queue, task });
        }
        let draining = serving.iter().filter(|row| row.draining).count() as u32;
        let saturated = serving.iter().filter(|row| !row.draining && row.is_saturated()).count() as u32;
        (draining + saturated == serving.len() as u32).then_some(Reason::WorkersBusy { saturated, draining })
    }

    /// A job's place in line among the due jobs of some lanes, 1 for the next. It reads every lane, so no claim uses
    /// it. It stops counting at [`caps::POSITION`].
    fn position(&self, place: (u32, Rank), counts: impl Fn(&Lane) -> bool) -> u32 {
        let lanes = self.lanes.iter().map(|(_, lane)| lane).filter(|lane| counts(lane));
        let ahead = lanes.flat_map(|lane| {
            let priority = self.queue(&self.classes[lane.class]).priority();
            lane.jobs.iter().take_while(move |&(rank, _)| (priority, rank) < place)
        });
        let ahead = ahead.take(caps::POSITION as usize).count() as u32;
        (ahead + 1).min(caps::POSITION)
    }

    /// Whether jobs of a lane take slots of a group.
    fn lane_takes(&self, lane: &Lane, ix: Ix<Group>) -> bool {
        let class = &self.classes[lane.class];
        lane.key == Some(ix)
            || class.shared().any(|(at, _)| at == ix)
            || ix == Self::CLUSTER
            || self.queue(class).group == ix
    }
}
