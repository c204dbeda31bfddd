//! Sessions: their rows, their ends, and the stops that each must be told.

use super::State;
use super::journal::Undo;
use super::row::{Session, SessionRow};
use super::table::Ix;
use crate::{FenceToken, SessionId, Stop};
use std::collections::BTreeMap;
use std::sync::Arc;

impl State {
    pub(crate) fn insert_session(&mut self, row: SessionRow) {
        let ix = self.add_session(row);
        self.note(|| Undo::SessionInserted(ix));
    }

    pub(crate) fn change_session(&mut self, ix: Ix<Session>, change: impl FnOnce(&mut SessionRow)) {
        if self.journal.is_some() {
            let old = Box::new(self.sessions[ix].row.clone());
            self.note(|| Undo::SessionChanged(ix, old));
        }
        let row = &mut self.sessions[ix].row;
        let (id, before) = (row.new.id, row.lease_until);
        change(row);
        let after = row.lease_until;
        self.session_ends.remove(&(before, id));
        self.session_ends.insert((after, id), ix);
    }

    pub(crate) fn remove_session(&mut self, ix: Ix<Session>) {
        for token in self.sessions[ix].stops.keys().copied().collect::<Vec<_>>() {
            self.set_stop(ix, token, None);
        }
        let row = self.drop_session(ix);
        let id = row.new.id;
        self.ended_sessions.insert(id, self.now);
        self.ended_order.insert((self.now, id));
        self.note(|| Undo::SessionRemoved(ix, Box::new(row)));
    }

    pub(crate) fn forget_session(&mut self, id: SessionId) {
        if let Some(at) = self.ended_sessions.remove(&id) {
            self.ended_order.remove(&(at, id));
            self.note(|| Undo::SessionForgotten(id, at));
        }
    }

    /// Sets, or with none removes, the stop that the session's next exchange is told about a claim.
    pub(crate) fn set_stop(&mut self, ix: Ix<Session>, token: FenceToken, stop: Option<Stop>) {
        let old = self.put_stop(ix, token, stop);
        self.note(|| Undo::Stop(ix, token, old));
    }

    pub(super) fn put_stop(
        &mut self,
        ix: Ix<Session>,
        token: FenceToken,
        stop: Option<Stop>,
    ) -> Option<Stop> {
        let stops = &mut self.sessions[ix].stops;
        match stop {
            Some(stop) => stops.insert(token, stop),
            None => stops.remove(&token),
        }
    }

    pub(super) fn add_session(&mut self, row: SessionRow) -> Ix<Session> {
        let (id, lease_until, serves) = (row.new.id, row.lease_until, Arc::clone(&row.serves));
        let ix = self.sessions.insert(Session {
            row,
            stops: BTreeMap::new(),
            running: BTreeMap::new(),
            claimed: BTreeMap::new(),
        });
        self.session_by_id.insert(id, ix);
        self.session_ends.insert((lease_until, id), ix);
        for &task in &serves.tasks {
            self.tasks[task].sessions.push(ix);
            self.tasks[task].refs += 1;
        }
        for &queue in serves.queues.iter().flatten() {
            self.queues[queue].refs += 1;
        }
        ix
    }

    pub(super) fn drop_session(&mut self, ix: Ix<Session>) -> SessionRow {
        let Session { row, stops, running, claimed } = self.sessions.remove(ix);
        let owns_nothing = running.is_empty() && claimed.is_empty() && stops.is_empty();
        assert!(owns_nothing, "G4: a session that owns jobs cannot be forgotten");
        self.session_by_id.remove(&row.new.id);
        self.session_ends.remove(&(row.lease_until, row.new.id));
        for &task in &row.serves.tasks {
            self.tasks[task].sessions.retain(|&at| at != ix);
            self.release_task(task);
        }
        for &queue in row.serves.queues.iter().flatten() {
            self.release_queue(queue);
        }
        row
    }
}
