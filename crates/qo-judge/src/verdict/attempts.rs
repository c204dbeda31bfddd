//! Whether each job had one owner at a time.

use super::Verdict;
use crate::run::Run;
use std::collections::BTreeMap;

impl Verdict {
    /// The runs of a job follow one another, in the order of their fence tokens.
    pub(super) fn judge_attempts(&mut self, counted: &[Run]) {
        let mut jobs: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
        counted.iter().for_each(|run| jobs.entry(&run.job).or_default().push(run));
        for (job, mut runs) in jobs {
            runs.sort_by_key(|run| run.token);
            for pair in runs.windows(2) {
                let [one, next] = pair else { continue };
                self.takeovers += usize::from(!one.end.is_final());
                if next.from_ns < one.from_ns {
                    self.overlaps += 1;
                    self.violates_with(
                        "fence",
                        format_args!("job {job} began again, and its token did not grow"),
                        pair,
                    );
                } else if next.from_ns < one.to_ns {
                    self.overlaps += 1;
                    let (one, next) = (&one.worker, &next.worker);
                    self.violates_with(
                        "one owner",
                        format_args!("job {job} ran on {one} and on {next} at once"),
                        pair,
                    );
                }
            }
        }
    }
}
