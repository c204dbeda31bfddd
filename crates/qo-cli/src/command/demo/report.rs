//! The last screen: what the jobs' own records prove.

use super::evidence::Evidence;
use super::frame::shown;
use super::line::Line;
use super::plan::Names;
use crate::output::{Screen, Style};
use crate::trouble::Done;
use qo::core::GroupRef;
use qo_judge::{Kept, Phase, Verdict, Violation};
use std::collections::BTreeMap;

/// Where the columns of the table of limits begin.
const COLUMNS: [usize; 4] = [2, 46, 55, 64];
/// Violations of one kind that are shown: every job that runs under a broken limit would add one.
const SHOWN: usize = 3;

/// Shows the verdict.
pub fn show(screen: &mut Screen, evidence: &Evidence, verdict: &Verdict) -> Done {
    let names = Names::with(&evidence.prefix);
    let mut lines = vec![Line::new()];
    let title = format!(
        "What the {} jobs themselves wrote down, in {} processes:",
        verdict.jobs.all, verdict.workers
    );
    lines.extend([Line::of(title, Style::Strong), Line::new()]);
    let [first, allowed, reached, exceeded] = COLUMNS;
    let header = Line::new().to(first).and("LIMIT", Style::Dim).to(allowed).and("ALLOWED", Style::Dim);
    lines.push(header.to(reached).and("REACHED", Style::Dim).to(exceeded).and("EXCEEDED", Style::Dim));
    let declared = evidence.limits.iter().map(|declared| &declared.group);
    for group in declared {
        let of_it = verdict.limits.iter().filter(|kept| kept.group == group.to_string());
        lines.extend(of_it.map(|kept| limit(group, kept, &names)));
    }
    lines.push(Line::new());
    lines.extend(facts(evidence, verdict));
    lines.push(Line::new());
    lines.extend(conclusion(verdict));
    for line in lines {
        screen.line(line.render(screen, usize::MAX))?;
    }
    screen.flush()
}

fn limit(group: &GroupRef, kept: &Kept, names: &Names) -> Line {
    let holds = kept.reached >= kept.limit && kept.exceeded == 0;
    let [first, allowed, reached, exceeded] = COLUMNS;
    let what = match (group, kept.phase) {
        (_, Phase::Lowered) => "lowered while it ran".to_owned(),
        (_, Phase::Raised) => "raised while it ran".to_owned(),
        (GroupRef::Cluster, Phase::First) => "all jobs together".to_owned(),
        (GroupRef::Queue(_), Phase::First) => "all jobs of a queue".to_owned(),
        (GroupRef::Group(_), Phase::First) => "all jobs of a task".to_owned(),
        (GroupRef::Key(..) | GroupRef::EveryKey(_), Phase::First) => {
            format!("for each of {} users", kept.keys.unwrap_or(1))
        }
    };
    let bad = |is_bad: bool| if is_bad { Style::Bad } else { Style::Plain };
    let line = Line::new().to(first).and(shown(group, names), Style::Strong).to(18).plain(what);
    let line = line.to(allowed).plain(format!("{:>7}", kept.limit));
    let line = line.to(reached).and(format!("{:>7}", kept.reached), bad(kept.reached < kept.limit));
    let times =
        format!("{:>8}", if kept.exceeded == 1 { "once".into() } else { format!("{} times", kept.exceeded) });
    mark(line.to(exceeded).and(times, bad(kept.exceeded > 0)), holds)
}

fn mark(line: Line, holds: bool) -> Line {
    match holds {
        true => line.and("  ✓", Style::Good),
        false => line.and("  ✗", Style::Bad),
    }
}

fn facts(evidence: &Evidence, verdict: &Verdict) -> Vec<Line> {
    let fact = |name: &str, text: String, holds: bool| {
        mark(Line::new().to(COLUMNS[0]).and(name, Style::Strong).to(18).plain(text), holds)
    };
    let flows = &verdict.workflows;
    let order = match flows.disorder {
        0 => "in order, one at a time".to_owned(),
        times => format!("out of order {times} times"),
    };
    let recovery = &verdict.recovery;
    let back = match recovery.held == recovery.again {
        true => format!("slots back after {} ms (lease {} ms)", recovery.all_ms, evidence.lease_ms),
        false => format!("only {} of them began again", recovery.again),
    };
    let worker = evidence.kill.as_ref().map_or("no worker", |kill| &kill.worker);
    let unsettled = match recovery.unsettled {
        0 => String::new(),
        unsettled => format!(" ({unsettled} done just before, but not settled)"),
    };
    let jobs = &verdict.jobs;
    let mut done = format!("{} done once, {} run again after the kill", jobs.once, jobs.again);
    if jobs.given_back > 0 {
        done.push_str(&format!(", {} given back by a slow worker", jobs.given_back));
    }
    vec![
        fact(
            "workflows",
            format!(
                "{} with {} steps, {} across workers: {order}",
                flows.count, flows.steps, flows.across_workers
            ),
            flows.disorder == 0,
        ),
        fact(
            "kill -9",
            format!("{worker} held {} jobs{unsettled}: {back}", recovery.held),
            recovery.held > 0 && recovery.held == recovery.again,
        ),
        fact("jobs", done, jobs.done_twice == 0),
        fact("jobs lost", format!("{}", jobs.lost), jobs.lost == 0),
    ]
}

fn conclusion(verdict: &Verdict) -> Vec<Line> {
    if verdict.holds() {
        let text = "Every limit was reached and none was exceeded: across processes, through a crash and a live change.";
        return vec![Line::of("PASS  ", Style::Good).and(text, Style::Plain)];
    }
    let many = verdict.violations.len();
    let title = if many == 1 { "1 violation:".to_owned() } else { format!("{many} violations:") };
    let mut lines = vec![Line::of("FAIL  ", Style::Bad).and(title, Style::Plain)];
    let mut by_kind: BTreeMap<&str, Vec<&Violation>> = BTreeMap::new();
    for violation in &verdict.violations {
        by_kind.entry(&violation.what).or_default().push(violation);
    }
    let line = |text: String| Line::new().to(COLUMNS[0]).and(text, Style::Bad);
    for (what, violations) in by_kind {
        lines.extend(violations.iter().take(SHOWN).map(|violation| line(violation.to_string())));
        if violations.len() > SHOWN {
            lines.push(line(format!("{what}: … and {} more", violations.len() - SHOWN)));
        }
    }
    lines
}
