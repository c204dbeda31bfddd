//! Retries in the ledger, of one job or of all that match, and what is forgotten.

use super::{Fact, Ledger, Tell};
use qo_core::{Change, Changed, Cursor, ErrorKind, JobFilter, JobId, JobState, Result, caps};

impl Ledger {
    pub(super) fn retry(&mut self, id: JobId, result: &Result<JobState>, tell: &mut Tell<'_>) {
        let index = self.find(id);
        let due = index.map_or(Err(ErrorKind::NotFound), |index| self.retry_due(index));
        tell(self, &Fact::Retried(id, result, due));
        if let (Some(index), Ok(_)) = (index, due) {
            self.open_or_hurry(index, tell);
        }
    }

    /// Reopens a finished job, or lets a job that waits for its next attempt run now.
    fn open_or_hurry(&mut self, index: usize, tell: &mut Tell<'_>) {
        if self.jobs[index].state.is_terminal() {
            self.reopen(index, tell);
        } else if self.waits_for_attempt(index) {
            self.jobs[index].run_at = self.now;
        }
    }

    fn waits_for_attempt(&self, index: usize) -> bool {
        let job = &self.jobs[index];
        job.state == JobState::Pending && job.run_at > self.now && job.was_tried
    }

    /// The answer does not say which jobs were changed: these must be.
    pub(super) fn change_matching(
        &mut self,
        change: Change,
        filter: &JobFilter,
        after: Option<Cursor>,
        limit: usize,
        said: Changed,
        tell: &mut Tell<'_>,
    ) {
        let from = match after {
            None => 0,
            // Each store has its own cursors; the ledger knows only those that an answer named.
            Some(cursor) => match self.cursors.get(&cursor) {
                Some(&last) => last + 1,
                None => return,
            },
        };
        let can = |books: &Self, index: usize| {
            let job = &books.jobs[index];
            match change {
                Change::Cancel => !job.state.is_terminal() && !job.cancel_requested,
                Change::Retry if job.state.is_terminal() => books.retry_due(index).is_ok(),
                Change::Retry => books.waits_for_attempt(index),
            }
        };
        let matching = |books: &Self, index: usize| books.matches(index, filter) && can(books, index);
        let found: Vec<usize> =
            (from..self.jobs.len()).filter(|&index| matching(self, index)).take(limit).collect();
        for &index in &found {
            match change {
                Change::Cancel => self.call_off(index, tell),
                Change::Retry => self.open_or_hurry(index, tell),
            }
        }
        let last = found.last().copied();
        let more = last.is_some_and(|last| (last + 1..self.jobs.len()).any(|index| matching(self, index)));
        tell(self, &Fact::Changed(said, found.len() as u64, more));
        if let (Some(cursor), Some(last)) = (said.next, last) {
            self.cursors.insert(cursor, last);
        }
    }

    fn matches(&self, index: usize, filter: &JobFilter) -> bool {
        let job = &self.jobs[index];
        let is = |wanted: Option<bool>| wanted.unwrap_or(true);
        self.find(job.new.id) == Some(index)
            && (filter.states.is_empty() || filter.states.contains(&job.state))
            && is(filter.queue.as_ref().map(|queue| *queue == job.new.queue))
            && is(filter.task.as_ref().map(|task| *task == job.new.task))
            && is(filter.group.as_ref().map(|group| *group == job.group))
            && is(filter.key.as_ref().map(|key| Some(key) == job.new.key.as_ref()))
            && is(filter.workflow.as_ref().map(|workflow| Some(workflow) == job.new.workflow.as_ref()))
            && is(filter.submitted_from.map(|from| from <= job.submitted_at))
            && is(filter.submitted_before.map(|before| job.submitted_at < before))
            && is(filter.id_prefix.map(|prefix| prefix.matches(job.new.id)))
    }

    /// Forgets finished jobs whose retention is over; how many.
    pub(super) fn forget(&mut self, tell: &mut Tell<'_>) -> u64 {
        let over = |&index: &usize| {
            let job = &self.jobs[index];
            let retain_ms = self.retention.of(job.state, job.new.idempotency_key.is_some());
            let halts = self
                .workflow_of(index)
                .is_some_and(|workflow| !self.is_passed(workflow, index) && self.live_steps(workflow) > 0);
            let at = job.finished_at.filter(|_| !halts)?.plus_ms(retain_ms);
            (at <= self.now).then_some((at, index))
        };
        let mut over: Vec<_> = self.finished.iter().filter_map(over).collect();
        over.sort_unstable();
        over.truncate(caps::FORGOTTEN);
        for &(_, index) in &over {
            tell(self, &Fact::Forgotten(index));
            let new = self.jobs[index].new.clone();
            self.finished.remove(&index);
            self.forgotten.insert(new.id);
            self.by_id.remove(&new.id);
            self.by_idempotency_key.retain(|_, known| *known != index);
            if let Some(name) = new.workflow
                && let Some(workflow) = self.workflows.get_mut(&name)
            {
                workflow.steps.retain(|&step| step != index);
                if workflow.steps.is_empty() {
                    self.workflows.remove(&name);
                }
            }
        }
        over.len() as u64
    }
}
