//! Speculation: decide now, take it back if the store lost the race.
//!
//! 1. [`speculate`](State::speculate) opens the journal.
//! 2. While it is open, every change of a row notes the old row in it.
//! 3. [`take_back`](State::take_back) puts the old rows back, newest first, through the functions that keep the indexes
//!    in step. [`keep`](State::keep) drops the journal instead.
//!
//! Invariants:
//! - Undoing costs as much as the decision did, whatever the size of the state.
//! - A row comes back under the handle that it had (the tables reuse the handle that was freed last).
//! - Rows without references are freed only when no journal is open, because an old row may refer to them.
//! - A nested look ([`suppose`](State::suppose)) undoes only its own part of the journal.
//!
//! `docs/adr/0002-undo.md` gives the reasons.

use super::State;
use super::row::{
    Group, Job, Past, Program, Queue, ScheduleRow, Session, SessionRow, Task, Workflow, WorkflowRow,
};
use super::table::Ix;
use super::total::Totals;
use crate::{
    AuditEntry, Configuration, Event, FenceToken, GroupRef, JobProgress, Limits, Name, Push, Retention,
    SessionId, Stop, TaskOptions, Time, Token, TokenId,
};
use std::collections::VecDeque;
use std::sync::Arc;

#[derive(Debug)]
pub(super) enum Undo {
    Counters {
        next_number: u64,
        next_token: u64,
    },
    Time(Time, Vec<Ix<Job>>),
    JobInserted(Ix<Job>),
    JobChanged(Ix<Job>, Box<Job>),
    JobRemoved(Ix<Job>, Box<Job>),
    Progress(Ix<Job>, Option<Box<JobProgress>>),
    PastInserted(Ix<Past>),
    PastSkipped(Ix<Past>, bool),
    PastRemoved(Ix<Past>, Box<Past>),
    Retention(Retention),
    Workflow(Ix<Workflow>, WorkflowRow),
    ProgramInserted(Ix<Program>),
    ProgramExtended(Ix<Program>, (Time, Time)),
    ProgramRemoved(Ix<Program>, Box<Program>),
    Schedule(Name, Option<Box<ScheduleRow>>),
    SessionInserted(Ix<Session>),
    SessionChanged(Ix<Session>, Box<SessionRow>),
    SessionRemoved(Ix<Session>, Box<SessionRow>),
    SessionForgotten(SessionId, Time),
    Stop(Ix<Session>, FenceToken, Option<Stop>),
    Limits(GroupRef, Option<Box<Limits>>),
    /// Slots of a group were taken once more.
    Acquired(Ix<Group>),
    /// The total beside the rows, and what the rows had counted that were set to zero.
    Total(GroupRef, Option<Totals>, Vec<(Ix<Group>, u64)>),
    Queue(Ix<Queue>, Option<u32>, bool),
    Task(Ix<Task>, Vec<Arc<TaskOptions>>),
    Apps(Vec<Arc<Configuration>>),
    Pushes(VecDeque<Arc<Push>>),
    Token(TokenId, Option<Arc<Token>>),
    /// An entry was appended, and this one was the oldest of a full log.
    AuditEntry(Option<Arc<AuditEntry>>),
}

impl State {
    /// Begins a speculation: everything decided or evolved from now on can be taken back as a whole. If one is under
    /// way, the call goes on with it.
    pub fn speculate(&mut self) {
        if self.journal.is_none() {
            self.journal = Some(vec![self.counters()]);
        }
    }

    /// Ends the speculation and keeps what happened.
    pub fn keep(&mut self) {
        self.journal = None;
        self.free_vacant();
    }

    /// Ends the speculation and takes back everything that happened since it began.
    pub fn take_back(&mut self) {
        self.undo_to(0);
        self.keep();
    }

    /// Looks at the state as it is at `now`, and leaves no trace: time passes for the look only.
    ///
    /// A store whose state other readers rebuild from a log must not advance its time without an event in the log.
    pub fn at<T>(&mut self, now: Time, look: impl FnOnce(&Self) -> T) -> T {
        if now <= self.now {
            return look(self);
        }
        self.suppose(|state| state.evolve(&Event::Ticked(now)), look)
    }

    /// Looks at the state as it would be after a change, and leaves no trace.
    pub(crate) fn suppose<T>(&mut self, change: impl FnOnce(&mut Self), look: impl FnOnce(&Self) -> T) -> T {
        let speculating = self.journal.is_some();
        self.speculate();
        let mark = self.journal.as_ref().map_or(0, Vec::len);
        let counters = self.counters();
        self.note(|| counters);
        change(self);
        let seen = look(self);
        self.undo_to(mark);
        if !speculating {
            self.keep();
        }
        seen
    }

    fn undo_to(&mut self, mark: usize) {
        let undone = self.journal.as_mut().map_or_else(Vec::new, |journal| journal.split_off(mark));
        // Nothing is noted while old rows are put back.
        let journal = self.journal.take();
        for undo in undone.into_iter().rev() {
            self.undo(undo);
        }
        self.journal = journal;
    }

    fn counters(&self) -> Undo {
        Undo::Counters { next_number: self.next_number, next_token: self.next_token }
    }

    pub(super) fn is_speculating(&self) -> bool {
        self.journal.is_some()
    }

    pub(super) fn note(&mut self, undo: impl FnOnce() -> Undo) {
        if let Some(journal) = &mut self.journal {
            journal.push(undo());
        }
    }

    fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Counters { next_number, next_token } => {
                self.next_number = next_number;
                self.next_token = next_token;
            }
            Undo::Time(now, due) => {
                for job in due {
                    self.stand_in_line(job, false);
                }
                self.now = now;
            }
            Undo::JobInserted(ix) => {
                let membership = self.drop_job(ix).membership();
                self.seat_workflow_at(membership);
            }
            Undo::JobChanged(ix, old) => {
                self.unlink_job(ix);
                self.jobs[ix] = *old;
                self.link_job(ix);
                self.seat_workflow_of(ix);
            }
            Undo::JobRemoved(ix, old) => {
                let again = self.add_job(*old);
                assert_eq!(again, ix, "rows come back to where they were");
            }
            // Notes nothing, because the journal is closed during an undo.
            Undo::Progress(ix, old) => self.set_progress(ix, old),
            Undo::PastInserted(ix) => {
                self.drop_past(ix);
            }
            Undo::PastSkipped(ix, skipped) => self.put_skipped(ix, skipped),
            Undo::PastRemoved(ix, old) => {
                let again = self.add_past(*old);
                assert_eq!(again, ix, "rows come back to where they were");
            }
            Undo::Retention(old) => self.retention = old,
            Undo::Workflow(ix, old) => {
                self.put_workflow(ix, old);
            }
            Undo::ProgramInserted(ix) => {
                self.drop_program(ix);
            }
            Undo::ProgramExtended(ix, (renewed_at, until)) => {
                self.put_program_end(ix, renewed_at, until);
            }
            Undo::ProgramRemoved(ix, old) => {
                let again = self.add_program(*old);
                assert_eq!(again, ix, "rows come back to where they were");
            }
            Undo::Schedule(name, old) => {
                self.put_schedule(&name, old.map(|row| *row));
            }
            Undo::SessionInserted(ix) => {
                self.drop_session(ix);
            }
            Undo::SessionChanged(ix, old) => {
                let before = std::mem::replace(&mut self.sessions[ix].row, *old);
                let row = &self.sessions[ix].row;
                self.session_ends.remove(&(before.lease_until, before.new.id));
                self.session_ends.insert((row.lease_until, row.new.id), ix);
            }
            Undo::SessionRemoved(ix, old) => {
                if let Some(at) = self.ended_sessions.remove(&old.new.id) {
                    self.ended_order.remove(&(at, old.new.id));
                }
                let again = self.add_session(*old);
                assert_eq!(again, ix, "rows come back to where they were");
            }
            Undo::SessionForgotten(id, at) => {
                self.ended_sessions.insert(id, at);
                self.ended_order.insert((at, id));
            }
            Undo::Stop(ix, token, old) => {
                self.put_stop(ix, token, old);
            }
            Undo::Limits(group, old) => self.put_limits(&group, old.map(|limits| *limits)),
            Undo::Acquired(ix) => self.groups[ix].acquired -= 1,
            Undo::Total(group, old, rows) => self.put_total(&group, old, rows),
            Undo::Queue(ix, priority, paused) => {
                self.put_queue(ix, priority, paused);
            }
            Undo::Apps(old) => self.apps = old,
            Undo::Pushes(old) => self.pushes = old,
            Undo::Token(id, old) => {
                self.put_token(id, old);
            }
            Undo::AuditEntry(forgotten) => {
                self.audit_log.pop_back();
                forgotten.into_iter().for_each(|oldest| self.audit_log.push_front(oldest));
            }
            Undo::Task(ix, options) => {
                self.tasks[ix].registered = options;
                self.vacant.push(super::Vacant::Task(ix));
            }
        }
    }
}
