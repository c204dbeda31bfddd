//! From lines to runs.

use crate::case::OpenRuns;
use crate::line::{Line, What};
use crate::run::{End, Run};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Everything that jobs have written.
#[derive(Debug, Clone, Default)]
pub struct Diary {
    runs: BTreeMap<u64, Run>,
    contradictions: Vec<String>,
    last_ns: u64,
}

impl Diary {
    /// Adds the lines of a file, in their order. A last line that was cut off is left out: a kill does that.
    pub fn add_file(&mut self, path: &Path) -> io::Result<()> {
        let text = std::fs::read_to_string(path)?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().for_each(|line| self.add_text(line));
        Ok(())
    }

    /// Adds a line as it was written.
    pub fn add_text(&mut self, text: &str) {
        match Line::parse(text) {
            Some(line) => self.add(line),
            None => self.contradicts(format!("this is no line of a diary: {text}")),
        }
    }

    /// Adds a line. The lines of one job come in their order.
    pub fn add(&mut self, line: Line) {
        let Line { what, at_ns, worker, token, job, planned, says } = line;
        self.last_ns = self.last_ns.max(at_ns);
        let end = match (what, self.runs.get_mut(&token)) {
            (What::Began, None) => {
                let (from_ns, to_ns, beats, end) = (at_ns, at_ns, Vec::new(), End::Open);
                let run = Run { job, planned, says, worker, token, from_ns, to_ns, beats, end };
                self.runs.insert(token, run);
                return;
            }
            (What::Began, Some(other)) => {
                let (first, place) = (&other.job, &other.worker);
                let how = format!("token {token} owns job {first} on {place} and job {job} on {worker}");
                return self.contradicts(how);
            }
            (What::Beat, _) => End::Open,
            (What::Ended(end), _) => end,
        };
        match self.runs.get_mut(&token).filter(|run| (&run.job, &run.worker) == (&job, &worker)) {
            None => self.contradicts(format!(
                "job {job} goes on or ends on {worker} and never began there (token {token})"
            )),
            Some(run) if run.end != End::Open => {
                let how = format!("job {job} goes on after its end (token {token})");
                self.contradicts(how);
            }
            Some(run) => {
                run.to_ns = run.to_ns.max(at_ns);
                run.end = end;
                if what == What::Beat {
                    run.beats.push(at_ns);
                }
            }
        }
    }

    fn contradicts(&mut self, how: String) {
        self.contradictions.push(how);
    }

    /// Every run, in the order of the fence tokens, as it was recorded.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.values()
    }

    /// Lines that cannot be.
    pub fn contradictions(&self) -> &[String] {
        &self.contradictions
    }

    /// When the last line was written.
    pub fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// Every run with an end: what a run without one counts as is up to the case.
    pub(crate) fn ended(&self, open: OpenRuns, kills: &BTreeMap<String, u64>) -> Vec<Run> {
        let mut runs: Vec<Run> = self.runs.values().cloned().collect();
        for run in runs.iter_mut().filter(|run| run.end == End::Open && open == OpenRuns::GoOn) {
            match kills.get(&*run.worker) {
                Some(killed_ns) => (run.to_ns, run.end) = (*killed_ns, End::Killed),
                None => run.to_ns = u64::MAX,
            }
        }
        runs
    }
}
