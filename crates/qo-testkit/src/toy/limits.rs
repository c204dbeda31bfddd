//! Limits of operators and submits.

use super::state::Toy;
use super::{Flaw, not_found};
use qo_core::{AttemptOutcome, Error, GroupRef, LimitSource, Limits, Name, Result, caps};

impl Toy {
    pub fn set_limit(&mut self, group: GroupRef, limit: u32) -> Result<()> {
        if limit > caps::LIMIT {
            return Err(Error::invalid("limit", limit, format_args!("must be 0 to {}", caps::LIMIT)));
        }
        self.limits.entry(group.clone()).or_default().operator = Some(limit);
        if self.flaw == Flaw::LoweringKills {
            self.kill_down_to(&group, limit);
        }
        Ok(())
    }

    /// The flaw `LoweringKills`: jobs above the new limit lose their slots.
    fn kill_down_to(&mut self, group: &GroupRef, limit: u32) {
        while self.used(group) > u64::from(limit) {
            // Programs hold the rest: this flaw is about jobs.
            let Some(last) = self.jobs.iter().rposition(|job| job.is_running() && job.need(group) > 0) else {
                break;
            };
            self.end_attempt(last, AttemptOutcome::ReleasedByOperator, None, None, None);
        }
    }

    pub fn unset_limit(&mut self, group: &GroupRef) -> Result<()> {
        let operator = self.limits.get_mut(group).and_then(|limits| limits.operator.take());
        self.drop_empty_limits();
        operator.map(|_| ()).ok_or_else(|| not_found(group))
    }

    pub fn set_submit_limit(&mut self, group: &GroupRef, limit: Option<u32>) {
        self.limits.entry(group.clone()).or_default().submit = limit;
        self.drop_empty_limits();
    }

    /// The limit of a group as it would be after a submit or program sets its submit-side limit, or clears it.
    pub fn limit_with(&self, group: &GroupRef, set: Option<Option<u32>>) -> Option<u32> {
        match self.limit_in_force(group) {
            Some((limit, source)) if source != LimitSource::Submit => Some(limit),
            in_force => set.unwrap_or(in_force.map(|(limit, _)| limit)),
        }
    }

    /// The submit-side limit of a group goes with its last live job or program.
    pub fn drop_spent_limits(&mut self) {
        let of_submit =
            self.limits.iter().filter(|(_, limits)| limits.submit.is_some()).map(|(group, _)| group);
        for group in of_submit.filter(|group| self.live(group) == 0).cloned().collect::<Vec<_>>() {
            self.set_submit_limit(&group, None);
        }
    }

    pub fn drop_empty_limits(&mut self) {
        self.limits.retain(|_, limits| !Limits::is_empty(limits));
        self.totals.retain(|group, _| self.limits.contains_key(group));
    }

    /// The totals of a reference, if it has a limit; those of a key are those of all keys of its group.
    fn total_of(&mut self, group: &GroupRef) -> Option<&mut (u64, u64)> {
        let counted = match group {
            GroupRef::Key(name, _) => GroupRef::EveryKey(name.clone()),
            group => group.clone(),
        };
        self.limits.contains_key(&counted).then(|| self.totals.entry(counted).or_default())
    }

    pub fn count_acquired(&mut self, needs: &[(GroupRef, u32)]) {
        for (group, _) in needs {
            self.total_of(group).into_iter().for_each(|total| total.0 += 1);
        }
    }

    pub fn count_rejected(&mut self, group: &GroupRef) {
        self.total_of(group).into_iter().for_each(|total| total.1 += 1);
    }

    pub fn pause_queue(&mut self, queue: Name, paused: bool) {
        if paused {
            self.paused.insert(queue);
        } else {
            self.paused.remove(&queue);
        }
    }
}
