//! The picture: every row as text, independent of handles. Two states with the same picture decide the same from here
//! on.

use super::State;
use super::row::Program;
use crate::{Token, TokenHash};

impl State {
    /// One line per row, in a fixed order. For tests and for comparing replicas.
    pub fn picture(&self) -> Vec<String> {
        let mut lines =
            vec![format!("now {}, next job {}, next token {}", self.now, self.next_number, self.next_token)];
        for (number, &ix) in &self.job_by_number {
            let row = &self.jobs[ix];
            let timeout_at = row.run().and_then(|run| run.timeout_at);
            let claim_until = row.claimed().map(|claimed| claimed.until);
            lines.push(format!("job {number}: {:?} {timeout_at:?} {claim_until:?}", self.job(row.id)));
        }
        for (number, &ix) in &self.past_by_number {
            lines.push(format!("past job {number}: {:?}", self.job(self.past[ix].id)));
        }
        let mut workflows = self.workflow_by_name.values().map(|&ix| &self.workflows[ix]);
        let shown = workflows.by_ref().filter(|workflow| !workflow.steps.is_empty());
        lines.extend(shown.map(|workflow| format!("workflow {}: {:?}", workflow.name, workflow.row)));
        let mut programs: Vec<_> = self.programs.iter().map(|(_, program)| program).collect();
        programs.sort_by_key(|program| program.token);
        let line = |program: &Program| {
            let Program { request, token, since, renewed_at, until, .. } = program;
            format!("{request:?} {token} {since} {renewed_at} {until}")
        };
        lines.extend(programs.into_iter().map(line));
        lines.extend(self.schedules().iter().map(|schedule| format!("{schedule:?}")));
        lines.push(format!("{:?}", self.retention));
        for (id, &ix) in &self.session_by_id {
            let session = &self.sessions[ix];
            let row = &session.row;
            let owns: Vec<_> = session
                .running
                .iter()
                .chain(&session.claimed)
                .map(|(token, &job)| (token, self.jobs[job].id))
                .collect();
            let told = (&session.stops, row.number, row.free_permits, row.memory_percent, &row.reply);
            lines.push(format!(
                "session {id}: {:?} {:?} {} {} {} {told:?} {owns:?}",
                row.new, row.opened_at, row.renewed_at, row.lease_until, row.draining
            ));
        }
        lines.extend(self.ended_sessions.iter().map(|(id, at)| format!("ended session {id} at {at}")));
        lines.extend(self.limits.iter().map(|(group, limits)| format!("limits of {group}: {limits:?}")));
        let totals = self.limits.keys().map(|group| (group, self.total(group)));
        lines.extend(totals.map(|(group, total)| format!("total of {group}: {total:?}")));
        lines.extend(self.queues().iter().map(|queue| format!("{queue:?}")));
        let mut tasks: Vec<_> = self.tasks.iter().map(|(_, task)| task).collect();
        tasks.sort_by(|a, b| a.name.cmp(&b.name));
        lines.extend(tasks.iter().flat_map(|task| &task.registered).map(|task| format!("{task:?}")));
        lines.extend(self.apps.iter().map(|said| format!("{said:?}")));
        lines.extend(self.pushes.iter().map(|push| format!("{push:?}")));
        lines.extend(self.tokens.values().map(|token| format!("{token:?} {}", fingerprint(token))));
        lines.extend(self.audit_log.iter().map(|entry| format!("{entry:?}")));
        lines
    }
}

/// Tells two hashes apart without showing them: the beginning of the hash of the hash.
fn fingerprint(token: &Token) -> String {
    let hash = token.hash.map(String::from).unwrap_or_default();
    String::from(TokenHash::of(&hash)).chars().take(16).collect()
}
