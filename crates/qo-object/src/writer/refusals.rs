//! Refusals that are counted with the next record.
//!
//! A refusal changes nothing but a total, so it is worth no record. The process that refused shows it at once, the others
//! when it has written a record. A process that ends before that loses those that it has not counted.

use qo_core::{Event, GroupRef, State};
use std::collections::BTreeMap;

/// Most groups of which refusals are kept back.
const GROUPS: usize = 10_000;

/// How often groups have refused submits and programs, as far as no record says so.
#[derive(Debug, Default)]
pub(super) struct Refusals(BTreeMap<GroupRef, u64>);

impl Refusals {
    /// Keeps back the refusals among events that are not written.
    pub fn keep(&mut self, events: &[Event]) {
        for event in events {
            let Event::Rejected { group, times } = event else { continue };
            if self.0.len() < GROUPS || self.0.contains_key(group) {
                *self.0.entry(group.clone()).or_default() += times;
            }
        }
    }

    /// Adds those that were kept back to the events of a record, and counts them in the state.
    pub fn count(&self, state: &mut State, events: &mut Vec<Event>) {
        for (group, times) in &self.0 {
            let event = Event::Rejected { group: group.clone(), times: *times };
            state.evolve(&event);
            events.push(event);
        }
    }

    /// The record is written.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
