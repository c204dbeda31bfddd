//! The live view, as lines.

use super::fleet::Fleet;
use super::line::Line;
use super::picture::{Picture, RunningJob};
use super::plan::{Names, Task, USERS};
use crate::machine::monotonic_ns;
use crate::output::Style;
use qo::core::GroupRef;

/// Where the second and the third column begin.
const COLUMNS: (usize, usize) = (17, 37);
/// How wide the bar of progress is.
const PROGRESS: usize = 48;

/// What the frame shows beside the picture.
pub struct Frame<'a> {
    /// What the store says.
    pub picture: &'a Picture,
    /// The names of the run.
    pub names: &'a Names,
    /// The worker processes.
    pub fleet: &'a Fleet,
    /// Seconds since the first job was submitted.
    pub seconds: f64,
}

impl Frame<'_> {
    /// All lines except the list of events.
    pub fn lines(&self) -> Vec<Line> {
        let mut lines = vec![self.title(), Line::new()];
        lines.push(header("LIMIT", "FOR", "RUNNING AT ONCE"));
        lines.extend(self.limits());
        lines.push(Line::new());
        lines.push(header("WORKER", "PROCESS", "RUNS"));
        lines.extend(self.workers());
        lines.push(Line::new());
        lines.push(header("QUEUE", "RUNNING", "WAITING"));
        for queue in &self.picture.queues {
            let line =
                Line::of(queue.name.clone(), Style::Strong).to(COLUMNS.0).plain(queue.running.to_string());
            lines.push(line.to(COLUMNS.1).plain(queue.waiting.to_string()));
        }
        lines.push(Line::new());
        lines.extend(self.workflows());
        lines.push(self.progress());
        lines
    }

    fn title(&self) -> Line {
        let title = Line::of("qo demo", Style::Strong);
        let title =
            title.plain(format!("  {} worker processes, one store, no server", self.fleet.members().len()));
        title.to(72).and(format!("{:5.1} s", self.seconds), Style::Dim)
    }

    fn limits(&self) -> Vec<Line> {
        let names = self.names;
        let mut lines = Vec::new();
        for (group, limit) in &self.picture.limits {
            let is_one: Box<dyn Fn(&RunningJob) -> bool> = match group {
                GroupRef::Cluster => Box::new(|_| true),
                GroupRef::Queue(_) => Box::new(|job| job.in_limited_queue),
                GroupRef::Group(_) => Box::new(|job| job.task == Task::CallApi.word()),
                GroupRef::Key(..) | GroupRef::EveryKey(_) => {
                    lines.push(self.keys(group, *limit));
                    continue;
                }
            };
            let (mut alive, mut dead) = (0, 0);
            for job in self.picture.running.iter().filter(|job| is_one(job)) {
                if self.is_killed(&job.worker) { dead += 1 } else { alive += 1 }
            }
            let what = match group {
                GroupRef::Cluster => "all jobs",
                GroupRef::Queue(_) => "a queue",
                _ => "a task",
            };
            lines.push(bar(row(&shown(group, names), what), alive, dead, *limit));
        }
        lines
    }

    /// The users, each with slots of its own.
    fn keys(&self, group: &GroupRef, limit: u32) -> Line {
        let mut line = row(&shown(group, self.names), "each user");
        for user in USERS {
            let of_user = |job: &&RunningJob| job.key.as_ref().is_some_and(|key| &**key == user);
            let jobs: Vec<_> = self.picture.running.iter().filter(of_user).collect();
            let style = match jobs.as_slice() {
                [] => Style::Dim,
                jobs if jobs.iter().any(|job| self.is_killed(&job.worker)) => Style::Bad,
                _ => Style::Good,
            };
            line = line.plain(format!("{user} ")).and(format!("{}/{limit}  ", jobs.len()), style);
        }
        line
    }

    fn workers(&self) -> Vec<Line> {
        let members = self.fleet.members().iter();
        members
            .map(|member| {
                let line = row(&member.name, &format!("pid {}", member.pid));
                let runs = self.picture.of_worker(&member.name);
                match member.killed_ns {
                    None => line.and("█".repeat(runs), Style::Good).plain(format!(" {runs}")),
                    Some(at_ns) => {
                        let ago = monotonic_ns().saturating_sub(at_ns) as f64 / 1e9;
                        let held = match runs {
                            0 => "its slots are back".to_owned(),
                            runs => format!("its lease still holds {runs} jobs"),
                        };
                        let line = line.and("░".repeat(runs), Style::Bad);
                        line.and(format!(" kill -9, {ago:.1} s ago: {held}"), Style::Bad)
                    }
                }
            })
            .collect()
    }

    /// Two lines: each workflow with its steps.
    fn workflows(&self) -> Vec<Line> {
        if self.picture.workflows.is_empty() {
            return Vec::new();
        }
        let mut line = Line::of("WORKFLOWS", Style::Dim).to(COLUMNS.0);
        for workflow in &self.picture.workflows {
            let (over, steps) = (workflow.over as usize, workflow.steps as usize);
            let running = usize::from(workflow.runs);
            line = line.plain(format!("{} ", workflow.name)).and("●".repeat(over), Style::Good);
            line = line.and("◐".repeat(running), Style::Warn);
            line = line.and("○".repeat(steps.saturating_sub(over + running)), Style::Dim).plain("  ");
        }
        vec![line, Line::new()]
    }

    fn progress(&self) -> Line {
        let Picture { done, all, .. } = *self.picture;
        let full = (done * PROGRESS).checked_div(all).unwrap_or(0);
        let line = Line::of("━".repeat(full), Style::Good).and("━".repeat(PROGRESS - full), Style::Dim);
        line.plain(format!("  {done} of {all} jobs done"))
    }

    fn is_killed(&self, worker: &str) -> bool {
        self.fleet.members().iter().any(|member| member.name == worker && member.killed_ns.is_some())
    }
}

/// A group, as people see it.
pub fn shown(group: &GroupRef, names: &Names) -> String {
    group.to_string().replace(names.prefix(), "")
}

fn header(one: &str, two: &str, three: &str) -> Line {
    let line = Line::of(one, Style::Dim).to(COLUMNS.0).and(two, Style::Dim);
    line.to(COLUMNS.1).and(three, Style::Dim)
}

fn row(name: &str, what: &str) -> Line {
    Line::of(name, Style::Strong).to(COLUMNS.0).plain(what).to(COLUMNS.1)
}

/// Slots that jobs hold, those of a killed worker apart, and free slots.
fn bar(line: Line, alive: u32, dead: u32, limit: u32) -> Line {
    let used = alive + dead;
    let style = if used > limit { Style::Warn } else { Style::Good };
    let blocks = |count: u32| usize::try_from(count).unwrap_or(0);
    let line = line.and("█".repeat(blocks(alive)), style).and("░".repeat(blocks(dead)), Style::Bad);
    let line = line.and("·".repeat(blocks(limit.saturating_sub(used))), Style::Dim);
    let line = line.plain(format!(" {used}/{limit}"));
    match used {
        used if used > limit => line.and("  draining", Style::Warn),
        used if used == limit => line.and("  full", Style::Dim),
        _ => line,
    }
}
