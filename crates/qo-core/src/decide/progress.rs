//! Progress of running jobs: the newest report counts, and only its owner's.

use super::Decider;
use crate::state::{row::Session, table::Ix};
use crate::{Event, Progress};
use std::collections::BTreeMap;

impl Decider<'_> {
    /// Takes what a session says about the jobs that it runs. Whatever it does not run (any more) is passed over: a
    /// report that comes too late hurts nobody.
    pub(super) fn take_progress(&mut self, session: Ix<Session>, reports: &[Progress]) {
        let mut newest = BTreeMap::new();
        for report in reports {
            let ix = self.state.sessions[session].running.get(&report.token).copied();
            if let Some(ix) = ix.filter(|&ix| self.state.jobs[ix].id == report.job) {
                newest.insert(report.token, (ix, report));
            }
        }
        for (token, (ix, Progress { job, percent, note, .. })) in newest {
            let known = self.state.jobs[ix].progress();
            if known.is_some_and(|known| (known.percent, &known.note) == (*percent, note)) {
                continue;
            }
            self.happen_to(ix, Event::Progressed { job: *job, token, percent: *percent, note: note.clone() });
        }
    }
}
