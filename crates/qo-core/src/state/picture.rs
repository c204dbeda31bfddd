//! The picture: every row in words, whatever handles the rows happen to have. Two states with the same
//! picture decide the same from here on.

use super::State;

impl State {
    /// One line for each row, in an order of its own. For tests and for comparing replicas.
    pub fn picture(&self) -> Vec<String> {
        let mut lines =
            vec![format!("now {}, next job {}, next token {}", self.now, self.next_number, self.next_token)];
        for (number, &ix) in &self.job_by_number {
            let row = &self.jobs[ix];
            let detail = self.job(row.id);
            let timeout_at = row.run().and_then(|run| run.timeout_at);
            lines.push(format!("job {number}: {detail:?} {:?} {timeout_at:?}", row.options));
        }
        for (id, &ix) in &self.session_by_id {
            let session = &self.sessions[ix];
            let row = &session.row;
            let owns: Vec<_> =
                session.running.iter().map(|(token, &job)| (token, self.jobs[job].id)).collect();
            let told = (&session.stops, row.number, row.free_permits, &row.reply);
            lines.push(format!(
                "session {id}: {:?} {:?} {} {} {told:?} {owns:?}",
                row.new, row.opened_at, row.lease_until, row.draining
            ));
        }
        lines.extend(self.ended_sessions.iter().map(|(id, at)| format!("ended session {id} at {at}")));
        lines.extend(self.limits.iter().map(|(group, limits)| format!("limits of {group}: {limits:?}")));
        lines.extend(self.queues().iter().map(|queue| format!("{queue:?}")));
        let mut tasks: Vec<_> = self.tasks.iter().filter_map(|(_, task)| task.options.clone()).collect();
        tasks.sort_by(|a, b| a.task.cmp(&b.task));
        lines.extend(tasks.iter().map(|task| format!("{task:?}")));
        lines
    }
}
