//! Progress of running jobs. The newest report counts, and only from the owner of the attempt.

use super::Decider;
use crate::state::{row::Session, table::Ix};
use crate::{Event, Progress};
use std::collections::BTreeMap;

impl Decider<'_> {
    /// Records the progress of the jobs that a session runs. Reports about other jobs are ignored: a late report is
    /// harmless.
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
