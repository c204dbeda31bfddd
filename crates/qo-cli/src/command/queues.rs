//! `qo queues`

use super::argument;
use crate::by_hand::by_hand;
use crate::cli::Format;
use crate::output::{Screen, Style, Table};
use crate::place::Place;
use crate::trouble::Done;
use clap::{Args, Subcommand};
use qo::Store;
use qo::core::{Name, QueueStatus};
use std::sync::Arc;

/// See queues, pause and resume them.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  qo queues
  qo queues pause stripe     no job starts from it; running jobs go on
  qo queues resume stripe")]
pub struct Queues {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Start nothing more from a queue. Running jobs go on, and submits are accepted.
    #[command(after_help = "Example:\n  qo queues pause stripe")]
    Pause {
        /// The queue.
        #[arg(value_parser = argument::name)]
        name: Name,
        #[command(flatten)]
        format: Format,
    },
    /// Start jobs from a queue again.
    #[command(after_help = "Example:\n  qo queues resume stripe")]
    Resume {
        /// The queue.
        #[arg(value_parser = argument::name)]
        name: Name,
        #[command(flatten)]
        format: Format,
    },
}

impl Queues {
    /// Lists queues, or changes one.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        match self.action {
            Some(Action::Pause { name, format }) => {
                pause(&place.open().await?, screen, name, true, format).await
            }
            Some(Action::Resume { name, format }) => {
                pause(&place.open().await?, screen, name, false, format).await
            }
            None => {
                let queues = place.open_existing().await?.queues().await?;
                if self.format.json { screen.json(&queues) } else { list(screen, &queues) }
            }
        }
    }
}

async fn pause(
    store: &Arc<dyn Store>,
    screen: &mut Screen,
    name: Name,
    paused: bool,
    format: Format,
) -> Done {
    let known: Vec<String> = store.queues().await?.into_iter().map(|queue| queue.queue.to_string()).collect();
    by_hand(&**store).pause_queue(name.clone(), paused).await?;
    if format.json {
        screen.json(&serde_json::json!({ "queue": name, "paused": paused }))?;
    } else {
        screen.line(format_args!("queue {name} {}", if paused { "is paused" } else { "runs" }))?;
    }
    if !known.iter().any(|queue| **queue == *name) {
        let near = qo::settings::nearest(&name, known.iter().map(String::as_str));
        let near = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        screen.warn(format_args!("no queue {name} was known before{near}"));
    }
    Ok(())
}

fn list(screen: &mut Screen, queues: &[QueueStatus]) -> Done {
    if queues.is_empty() {
        screen.say("no queues: none has jobs, a limit, a priority or a pause");
        return Ok(());
    }
    let header = ["QUEUE", "PRIORITY", "RUNNING", "LIMIT", "DUE", "SCHEDULED", "WAITING", "CLAIMED", "STATE"];
    let mut table = Table::new(&header);
    for queue in queues {
        let plain = |number: u64| (number.to_string(), if number == 0 { Style::Dim } else { Style::Plain });
        let limit = queue.limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
        let state = match (queue.paused, queue.limit) {
            (true, _) => ("paused".to_owned(), Style::Warn),
            (false, Some(0)) => ("held by limit 0".to_owned(), Style::Warn),
            (false, Some(limit)) if queue.running >= limit.into() => ("full".to_owned(), Style::Warn),
            (false, _) => ("open".to_owned(), Style::Good),
        };
        table.row([
            (queue.queue.to_string(), Style::Strong),
            (queue.priority.to_string(), Style::Plain),
            plain(queue.running),
            (limit, Style::Plain),
            plain(queue.due),
            plain(queue.scheduled),
            plain(queue.waiting),
            plain(queue.claimed),
            state,
        ]);
    }
    screen.table(table)
}
