//! History: ended jobs leave the live ones and are remembered until their retention is over.

use super::journal::Undo;
use super::row::{At, Job, Past, Phase, Record, Spec};
use super::{State, intern, table::Ix};
use crate::lane::{Class, Lane};
use crate::{JobId, JobSnapshot, JobState, Name, Retention, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Ended jobs by how they ended, whether they have an idempotency key and whether they are steps. All jobs of one list
/// have the same retention, so the first that ended is the first to be forgotten, whatever the retention is.
#[derive(Debug, Default)]
pub(crate) struct Retained([BTreeMap<(Time, u64), Ix<Past>>; 16]);

impl Retained {
    const ENDS: [JobState; 4] =
        [JobState::Succeeded, JobState::Failed, JobState::Cancelled, JobState::Expired];

    fn list(&mut self, past: &Past) -> &mut BTreeMap<(Time, u64), Ix<Past>> {
        let end = Self::ENDS.iter().position(|end| *end == past.state);
        let end = end.unwrap_or_else(|| unreachable!("a past job has ended"));
        let (keyed, step) = (past.idempotency_key().is_some(), past.membership().is_some());
        &mut self.0[4 * end + 2 * usize::from(keyed) + usize::from(step)]
    }

    /// Jobs that succeeded, have no idempotency key and are no steps, in the order in which they ended.
    fn archivable(&self) -> &BTreeMap<(Time, u64), Ix<Past>> {
        &self.0[0]
    }

    /// The job whose retention was over first, if one's is over.
    pub(crate) fn over(&self, retention: &Retention, now: Time) -> Option<Ix<Past>> {
        let first = self.0.iter().enumerate().filter_map(|(index, list)| {
            let ms = retention.of(Self::ENDS[index / 4], index & 2 != 0);
            let (&(at, number), &past) = list.first_key_value()?;
            Some((at.plus_ms(ms), number, past))
        });
        first.min().filter(|&(at, ..)| at <= now).map(|(.., past)| past)
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(BTreeMap::len).sum()
    }
}

impl State {
    /// Ends a job: it leaves the live ones, its lane and its groups, and is remembered.
    pub(crate) fn retire_job(&mut self, ix: Ix<Job>, state: JobState, change: impl FnOnce(&mut Job)) {
        let lane = self.jobs[ix].lane;
        let (spec, key) = (self.spec_of(lane), self.lane_key(&self.lanes[lane]));
        let mut job = self.remove_job(ix);
        change(&mut job);
        job.set_phase(Phase::Pending);
        let finished_at = self.now;
        let past = self.add_past(Past { record: job.record, spec, key, finished_at, state, skipped: false });
        self.note(|| Undo::PastInserted(past));
    }

    /// Makes an ended job live again.
    pub(crate) fn revive_job(&mut self, ix: Ix<Past>, change: impl FnOnce(&mut Job)) {
        let past = self.remove_past(ix);
        let spec = &past.spec;
        let names = (&spec.queue, &spec.task, &spec.group);
        let lane = self.intern_lane(names, past.key.as_ref(), spec.cost, &spec.limits);
        let mut job = Job { record: past.record, lane };
        change(&mut job);
        self.insert_job(job);
    }

    pub(crate) fn remove_past(&mut self, ix: Ix<Past>) -> Past {
        let old = self.drop_past(ix);
        if self.journal.is_some() {
            let old = Box::new(old.clone());
            self.note(|| Undo::PastRemoved(ix, old));
        }
        old
    }

    /// Marks a step that did not succeed as skipped.
    pub(crate) fn skip_past(&mut self, ix: Ix<Past>) {
        let old = self.past[ix].skipped;
        self.put_skipped(ix, true);
        self.note(|| Undo::PastSkipped(ix, old));
    }

    pub(super) fn put_skipped(&mut self, ix: Ix<Past>, skipped: bool) {
        let membership = self.past[ix].membership();
        self.dismiss(membership, At::Past(ix));
        self.past[ix].skipped = skipped;
        self.enroll(membership, At::Past(ix));
        self.seat_workflow_at(membership);
    }

    pub(crate) fn set_retention(&mut self, retention: Retention) {
        let old = std::mem::replace(&mut self.retention, retention);
        self.note(|| Undo::Retention(old));
    }

    /// Jobs that may leave the state because the store archives them, oldest first.
    ///
    /// Of the jobs that succeeded, have no idempotency key and are no steps, these are all but the `keep` that ended
    /// last, at most `most`. A store that has written them to its archive sends
    /// [`Command::Archive`](crate::Command::Archive). The call costs what it returns.
    pub fn archivable(&self, keep: usize, most: usize) -> Vec<JobSnapshot> {
        let jobs = self.retained.archivable();
        let count = jobs.len().saturating_sub(keep).min(most);
        jobs.values().take(count).map(|&ix| self.job_snapshot(At::Past(ix))).collect()
    }

    /// Whether a job is in the state, live or remembered. An archived job is not.
    pub fn has_job(&self, job: JobId) -> bool {
        self.find(job).is_some()
    }

    /// A job, live or remembered.
    pub(crate) fn find(&self, id: JobId) -> Option<At> {
        self.find_job(id).map(At::Live).or_else(|| self.find_past(id).map(At::Past))
    }

    /// What is known of a job, live or remembered.
    pub(crate) fn record(&self, at: At) -> &Record {
        match at {
            At::Live(ix) => &self.jobs[ix],
            At::Past(ix) => &self.past[ix],
        }
    }

    pub(crate) fn task_at(&self, at: At) -> &Name {
        match at {
            At::Live(ix) => self.task_name(&self.jobs[ix]),
            At::Past(ix) => &self.past[ix].spec.task,
        }
    }

    pub(crate) fn state_at(&self, at: At) -> JobState {
        match at {
            At::Live(ix) => self.jobs[ix].state(),
            At::Past(ix) => self.past[ix].state,
        }
    }

    pub(crate) fn find_past(&self, id: JobId) -> Option<Ix<Past>> {
        self.past_by_id.find(self.hash(&id), |&ix| self.past[ix].id == id).copied()
    }

    pub(super) fn add_past(&mut self, past: Past) -> Ix<Past> {
        let (id, number, key) = (past.id, past.number, past.idempotency_key().cloned());
        let membership = past.membership();
        let ix = self.past.insert(past);
        let hash = self.hash(&id);
        let (rows, hasher) = (&self.past, &self.hasher);
        self.past_by_id.insert_unique(hash, ix, |&ix| intern::hash_with(hasher, &rows[ix].id));
        self.past_by_number.insert(number, ix);
        if let Some(key) = key {
            self.job_by_idempotency_key.insert(key, At::Past(ix));
        }
        self.retain(ix, true);
        self.enroll(membership, At::Past(ix));
        self.seat_workflow_at(membership);
        ix
    }

    pub(super) fn drop_past(&mut self, ix: Ix<Past>) -> Past {
        let membership = self.past[ix].membership();
        self.dismiss(membership, At::Past(ix));
        self.retain(ix, false);
        let past = self.past.remove(ix);
        let hash = self.hash(&past.id);
        if let Ok(entry) = self.past_by_id.find_entry(hash, |&at| at == ix) {
            entry.remove();
        }
        self.past_by_number.remove(&past.number);
        if let Some(key) = past.idempotency_key() {
            self.job_by_idempotency_key.remove(key);
        }
        self.seat_workflow_at(membership);
        past
    }

    /// Puts an ended job on the list of those to be forgotten, or takes it off.
    pub(super) fn retain(&mut self, ix: Ix<Past>, link: bool) {
        let past = &self.past[ix];
        super::toggle(self.retained.list(past), (past.finished_at, past.number), ix, link);
    }

    fn spec_of(&mut self, lane: Ix<Lane>) -> Arc<Spec> {
        let class_ix = self.lanes[lane].class;
        let class = &self.classes[class_ix];
        if let Some(spec) = &class.spec {
            return Arc::clone(spec);
        }
        let spec = Arc::new(self.spec(class));
        self.classes[class_ix].spec = Some(Arc::clone(&spec));
        spec
    }

    /// What the jobs of a class have in common, as names.
    pub(super) fn spec(&self, class: &Class) -> Spec {
        let desk = &self.desks[class.desk];
        let limits =
            class.extras.iter().map(|&(group, need)| (self.group_ref(&self.groups[group].label), need));
        Spec {
            queue: self.queues[desk.queue].name.clone(),
            task: self.tasks[desk.task].name.clone(),
            group: self.group_name(class.group),
            cost: class.cost,
            limits: limits.collect(),
        }
    }
}
