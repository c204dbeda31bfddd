//! `decide`: what happens. Each command is one atomic step at one moment of store time.
//!
//! How slots are given and taken back:
//! - `claim` walks the line and gives a job **all** its slots or none. `start` does the same for a job that was claimed
//!   ahead of time, `slot` for a program.
//! - `settle` ends an attempt because its owner says so. It frees the slots in the same step.
//! - `over` ends an attempt or a lease because its time is over. It frees the slots in the same step.

mod claim;
mod exchange;
mod history;
mod operate;
mod over;
mod progress;
mod reserve;
mod schedule;
mod settle;
mod slot;
mod start;
mod submit;
#[cfg(test)]
mod tests;
mod token;
mod workflow;

pub(crate) use over::GoesBack;

use crate::state::{row::Job, table::Ix};
use crate::{
    Answer, Command, Error, ErrorKind, Event, GroupRef, Result, State, StoreTime, Time, Watch, caps,
};

/// What a command decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What happened, in order. Empty if nothing happened.
    pub events: Vec<Event>,
    /// What the caller gets.
    pub answer: Answer,
}

/// Decides a command at store time `now`, and evolves the state by the events.
///
/// On an error nothing has happened and the state is unchanged. To be able to take a decision back, begin a
/// [speculation](State::speculate) before it.
pub fn decide(state: &mut State, now: Time, command: &Command) -> Result<Decision> {
    decide_watching(state, now, command, &StoreTime)
}

/// [`decide()`] for a process that ends only leases that it has [watched](Watch) for their whole length.
pub fn decide_watching(
    state: &mut State,
    now: Time,
    command: &Command,
    watch: &dyn Watch,
) -> Result<Decision> {
    if !(0..=caps::TIME_MS).contains(&now.as_millis()) {
        // Near the end of the range a lease would end before it begins. No correct clock shows such a time.
        let message = format!("store time: {now}: must lie between the years 1970 and 9999");
        return Err(Error::new(ErrorKind::Internal, message));
    }
    let mut decider = Decider { state, now, watch, events: Vec::new() };
    let answer = decider.decide(command)?;
    let events = decider.events;
    Ok(Decision { events, answer })
}

struct Decider<'a> {
    state: &'a mut State,
    now: Time,
    watch: &'a dyn Watch,
    events: Vec<Event>,
}

impl Decider<'_> {
    fn decide(&mut self, command: &Command) -> Result<Answer> {
        match command {
            Command::Submit(jobs) => self.submit(jobs),
            Command::Admit(jobs) => Ok(self.admit_offered(jobs)),
            Command::Cancel(jobs) => self.cancel(jobs),
            Command::Register(tasks) => self.register(tasks),
            Command::Configure(configuration) => self.configure(configuration),
            Command::SetLimit(group, limit) => self.set_limit(group, *limit),
            Command::UnsetLimit(group) => self.unset_limit(group),
            Command::PauseQueue(queue, paused) => self.pause_queue(queue, *paused),
            Command::OpenSession(session) => self.open_session(session),
            Command::Exchange(exchange) => self.exchange(exchange),
            Command::CloseSession(session) => self.close_session(*session),
            Command::ReleaseSlot(group, slot) => self.release_slot(group, *slot),
            Command::Sweep => self.sweep(),
            Command::Retry(jobs) => self.retry(jobs),
            Command::Archive { jobs } => Ok(self.archive(jobs)),
            Command::ChangeMatching { change, filter, after, limit } => {
                self.change_matching(*change, filter, *after, *limit)
            }
            Command::SteerWorkflow(workflow, steer) => self.steer_workflow(workflow, *steer),
            Command::AcquireSlots(request) => self.acquire_slots(request),
            Command::ExtendSlots { lease, token, lease_ms } => self.extend_slots(*lease, *token, *lease_ms),
            Command::ReturnSlots(lease, token) => self.return_slots(*lease, *token),
            Command::EnableSchedule(schedule, enabled) => self.enable_schedule(schedule, *enabled),
            Command::TriggerSchedule(schedule, job) => self.trigger_schedule(schedule, *job),
            Command::CreateToken(token, by) => self.create_token(token, by),
            Command::RevokeToken(token, by) => self.revoke_token(*token, by),
            Command::Record(deed) => Ok(self.record(deed)),
        }
    }

    /// Advances store time. Called only when the command cannot fail any more, because a refused command leaves no
    /// trace.
    fn tick(&mut self) {
        // Store time never falls (G9): if the clock falls, the latest time seen counts.
        if self.now > self.state.now {
            self.happen(Event::Ticked(self.now));
        }
    }

    /// Applies an event to a job whose row is known, which saves `evolve` the lookup.
    fn happen_to(&mut self, job: Ix<Job>, event: Event) {
        self.state.recent = Some(job);
        self.happen(event);
    }

    /// Applies an event that may end a job. With the last live job of a group its submit-side limit goes too.
    fn finish(&mut self, job: Ix<Job>, event: Event) {
        let submit_limited = self.state.submit_limited(|state| state.needs(state.jobs[job].lane));
        self.happen_to(job, event);
        self.spend(submit_limited);
    }

    /// Removes the submit-side limits of groups that have no live job or program left.
    fn spend(&mut self, submit_limited: Vec<GroupRef>) {
        for group in submit_limited {
            if self.state.is_deserted(&group) {
                self.happen(Event::LimitSpent(group));
            }
        }
    }

    fn happen(&mut self, event: Event) {
        self.state.evolve(&event);
        self.events.push(event);
    }
}
