//! Commands of operators, configuration files and registering code.

use super::Decider;
use crate::app::{changes, task_change};
use crate::state::row::{At, Held, Job};
use crate::state::table::Ix;
use crate::{
    Answer, AttemptOutcome, Configuration, Error, Event, FenceToken, GroupRef, JobId, JobState, Name, Result,
};
use crate::{Pushed, SlotsFreedBy, TaskOptions, caps, job::within};
use std::sync::Arc;

impl Decider<'_> {
    pub(super) fn cancel(&mut self, jobs: &[JobId]) -> Result<Answer> {
        within("jobs", jobs.len() as u64, 0, caps::CANCELS as u64)?;
        self.tick();
        Ok(Answer::Cancelled(jobs.iter().map(|&job| self.cancel_one(job)).collect()))
    }

    fn cancel_one(&mut self, id: JobId) -> Result<JobState> {
        match self.state.find(id) {
            Some(At::Live(ix)) => Ok(self.cancel_live(ix)),
            Some(At::Past(past)) => Ok(self.state.past[past].state),
            None => Err(Error::not_found(format!("job {id}"))),
        }
    }

    pub(super) fn cancel_live(&mut self, ix: Ix<Job>) -> JobState {
        let job = &self.state.jobs[ix];
        let id = job.id;
        match job.run() {
            None => {
                self.finish(ix, Event::Dropped { job: id, state: JobState::Cancelled });
                JobState::Cancelled
            }
            Some(run) => {
                if !run.cancel_requested {
                    self.happen_to(ix, Event::CancelRequested(id));
                }
                JobState::Running
            }
        }
    }

    pub(super) fn register(&mut self, tasks: &[TaskOptions]) -> Result<Answer> {
        within("tasks", tasks.len() as u64, 0, caps::SERVED as u64)?;
        for (index, task) in tasks.iter().enumerate() {
            task.check().map_err(|error| error.at_item("tasks", index))?;
        }
        for (index, task) in tasks.iter().enumerate() {
            if self.state.registrations(&task.task).len() >= caps::APPS
                && self.state.registered_by(&task.app, &task.task).is_none()
            {
                return Err(too_many_apps(&task.app).at_item("tasks", index));
            }
        }
        let mut pushed = Pushed::default();
        for task in tasks {
            // A registration that changes nothing must not cost a log a record, nor make its app the newest.
            let change = task_change(self.state.registered_by(&task.app, &task.task), task);
            if let Some(change) = change {
                pushed.changes.push(change);
                self.tick();
                self.happen(Event::Registered(Arc::new(task.clone())));
            }
        }
        Ok(Answer::Pushed(pushed))
    }

    pub(super) fn configure(&mut self, configuration: &Configuration) -> Result<Answer> {
        configuration.check()?;
        let said = self.state.configuration(&configuration.app);
        if said.is_none() && self.state.apps.len() >= caps::APPS && !configuration.is_empty() {
            return Err(too_many_apps(&configuration.app));
        }
        let changes = changes(said, configuration);
        self.configure_schedules(configuration, !changes.is_empty())?;
        Ok(Answer::Pushed(Pushed { changes }))
    }

    pub(super) fn set_limit(&mut self, group: &GroupRef, limit: u32) -> Result<Answer> {
        within("limit", limit.into(), 0, caps::LIMIT.into())?;
        // A limit that is set already must not cost a log a record.
        if self.state.limits.get(group).and_then(|limits| limits.operator) != Some(limit) {
            self.tick();
            self.happen(Event::LimitSet { group: group.clone(), limit: Some(limit) });
        }
        Ok(Answer::Done)
    }

    pub(super) fn unset_limit(&mut self, group: &GroupRef) -> Result<Answer> {
        if self.state.limits.get(group).is_none_or(|limits| limits.operator.is_none()) {
            return Err(Error::not_found(format!("{group}: no operator has set a limit")));
        }
        self.tick();
        self.happen(Event::LimitSet { group: group.clone(), limit: None });
        Ok(Answer::Done)
    }

    pub(super) fn pause_queue(&mut self, queue: &Name, paused: bool) -> Result<Answer> {
        let is_paused = self.state.queue_by_name.get(queue).is_some_and(|&ix| self.state.queues[ix].paused);
        if is_paused != paused {
            self.tick();
            self.happen(Event::QueuePaused { queue: queue.clone(), paused });
        }
        Ok(Answer::Done)
    }

    pub(super) fn release_slot(&mut self, group: &GroupRef, slot: FenceToken) -> Result<Answer> {
        let held = self.state.holding(group).find(|&(token, _)| token == slot);
        let (_, held) = held.ok_or_else(|| Error::not_found(format!("{group}: slot {slot} is not held")))?;
        self.tick();
        match held {
            Held::Job(job) => {
                self.take_away(job, AttemptOutcome::ReleasedByOperator, "released by operator", true)
            }
            Held::Program(program) => self.free_slots(program, SlotsFreedBy::Operator),
        }
        Ok(Answer::Done)
    }
}

fn too_many_apps(app: &Name) -> Error {
    Error::invalid("app", app, format_args!("must be one of at most {} apps of the namespace", caps::APPS))
}
