//! `qo workers`

use crate::cli::Format;
use crate::output::{Screen, Style, Table};
use crate::place::{Place, times};
use crate::trouble::Done;
use clap::Args;
use qo::core::{Name, WorkerStatus};

/// See live workers and what they do.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  qo workers\n  qo workers --json")]
pub struct Workers {
    #[command(flatten)]
    format: Format,
}

impl Workers {
    /// Lists them.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        let store = place.open_existing().await?;
        let workers = store.workers().await?;
        if self.format.json {
            return screen.json(&workers);
        }
        if workers.is_empty() {
            screen.say(format_args!("no worker is alive on {}", place.shown()));
            screen
                .hint("start one: qo worker --task NAME=COMMAND, or qo worker with [tasks.NAME] in .qo.toml");
            return Ok(());
        }
        let times = times(&store).await?;
        let header = [
            "WORKER",
            "STATE",
            "RUNNING",
            "PERMITS",
            "CLAIMED",
            "MEMORY",
            "QUEUES",
            "TASKS",
            "UP",
            "LEASE ENDS",
        ];
        let mut table = Table::new(&header);
        for worker in &workers {
            let state = match (worker.draining, worker.saturated, worker.running) {
                (true, ..) => ("draining", Style::Warn),
                (_, true, _) => ("saturated", Style::Warn),
                (_, _, 0) => ("idle", Style::Dim),
                _ => ("working", Style::Good),
            };
            table.row([
                (worker.worker.to_string(), Style::Strong),
                (state.0.to_owned(), state.1),
                (worker.running.to_string(), Style::Plain),
                (worker.permits.to_string(), Style::Plain),
                (worker.claimed.to_string(), Style::Plain),
                memory(worker),
                (names(&worker.queues, "all"), Style::Plain),
                (names(&worker.tasks, "none"), Style::Plain),
                (times.age(worker.opened_at), Style::Plain),
                (times.away(worker.lease_until), Style::Dim),
            ]);
        }
        screen.table(table)?;
        if let Some(hint) = uneven(&workers) {
            screen.hint(hint);
        }
        Ok(())
    }
}

/// How full its memory is.
fn memory(worker: &WorkerStatus) -> (String, Style) {
    match worker.memory_percent {
        Some(percent) => (format!("{percent} %"), if percent > 80 { Style::Warn } else { Style::Plain }),
        None => ("–".into(), Style::Dim),
    }
}

fn names(names: &[Name], none: &str) -> String {
    const MOST: usize = 4;
    let shown: Vec<&str> = names.iter().take(MOST).map(|name| &**name).collect();
    match names.len() {
        0 => none.to_owned(),
        n if n > MOST => format!("{} +{}", shown.join(","), n - MOST),
        _ => shown.join(","),
    }
}

/// A hint if some workers run many more jobs than others that could run the same.
fn uneven(workers: &[WorkerStatus]) -> Option<String> {
    let free = workers.iter().filter(|worker| !worker.draining);
    let busiest = free.clone().max_by_key(|worker| worker.running)?;
    let same = free.filter(|worker| worker.tasks == busiest.tasks && worker.queues == busiest.queues);
    let idlest = same.min_by_key(|worker| worker.running)?;
    let much = busiest.running >= 8 && busiest.running > 3 * idlest.running && idlest.free_permits > 0;
    much.then(|| {
        format!(
            "{} runs {} jobs, {} only {}: a smaller --max-claim-batch or --claim-batch-size spreads them more evenly",
            busiest.worker, busiest.running, idlest.worker, idlest.running
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use qo::core::{SessionId, Time};

    fn worker(name: &str, running: u64) -> WorkerStatus {
        WorkerStatus {
            worker: Name::parse("worker", name).expect("a name"),
            session: SessionId(uuid::Uuid::nil()),
            queues: Vec::new(),
            tasks: vec![Name::parse("task", "mail").expect("a name")],
            owner: None,
            permits: 100,
            free_permits: 100 - u32::try_from(running).expect("few"),
            memory_percent: None,
            saturated: false,
            draining: false,
            opened_at: Time::from_millis(0),
            lease_until: Time::from_millis(0),
            running,
            claimed: 0,
        }
    }

    #[test]
    fn an_uneven_fleet_is_pointed_out_and_an_even_one_is_not() {
        assert!(uneven(&[worker("a", 50), worker("b", 2)]).is_some_and(|hint| hint.contains("a runs 50")));
        assert_eq!(uneven(&[worker("a", 50), worker("b", 30)]), None);
        assert_eq!(uneven(&[worker("a", 3), worker("b", 0)]), None);
        assert_eq!(uneven(&[worker("a", 50), WorkerStatus { tasks: Vec::new(), ..worker("b", 0) }]), None);
        assert_eq!(uneven(&[]), None);
    }
}
