//! The plans of every statement that a call runs, as the server's `auto_explain` logs them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, NoTls};

/// Tables whose size is that of the backlog, or of the history.
const LARGE: [&str; 5] = ["job", "line", "owned_job", "done", "extra_limit"];

/// A connection that receives the plans of its own statements.
pub struct Plans {
    pub client: Client,
    heard: Arc<Mutex<Vec<String>>>,
    is_told: bool,
}

/// A statement, and its plan.
#[derive(Debug, Clone)]
pub struct Plan {
    pub statement: String,
    pub tree: String,
}

impl Plans {
    /// Connects. A server without `auto_explain` sends no plans.
    pub async fn connect(server: &str) -> Self {
        let (client, mut connection) =
            tokio_postgres::connect(server, NoTls).await.expect("the server answers");
        let heard: Arc<Mutex<Vec<String>>> = Arc::default();
        let notices = Arc::clone(&heard);
        tokio::spawn(async move {
            while let Some(Ok(message)) =
                std::future::poll_fn(|context| connection.poll_message(context)).await
            {
                if let AsyncMessage::Notice(notice) = message {
                    notices.lock().unwrap_or_else(PoisonError::into_inner).push(notice.message().to_owned());
                }
            }
        });
        let is_told = match client.batch_execute("LOAD 'auto_explain'").await {
            Ok(()) => true,
            Err(error) if error.code() == Some(&SqlState::UNDEFINED_FILE) => false,
            Err(error) => panic!("{error:?}"),
        };
        if is_told {
            let settings =
                "SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on;
                            SET auto_explain.log_analyze = on; SET auto_explain.log_timing = off;
                            SET client_min_messages = log";
            client.batch_execute(settings).await.expect("it is set");
        }
        Self { client, heard, is_told }
    }

    /// Whether the server sends plans.
    pub fn are_told(&self) -> bool {
        self.is_told
    }

    /// The plans since the last call.
    pub fn take(&self) -> Vec<Plan> {
        let heard = std::mem::take(&mut *self.heard.lock().unwrap_or_else(PoisonError::into_inner));
        heard.iter().filter_map(|text| Plan::read(text)).collect()
    }
}

impl Plan {
    fn read(text: &str) -> Option<Self> {
        let (_, text) = text.split_once("Query Text:")?;
        // The tree begins where the first estimate is.
        let cost = text.find("  (cost=")?;
        let tree = text[..cost].rfind('\n')? + 1;
        Some(Self { statement: text[..tree].trim().to_owned(), tree: text[tree..].trim_end().to_owned() })
    }

    /// What is wrong with it: a large table is read as a whole, or a node meets too many rows.
    pub fn faults(&self, most_rows: f64) -> Vec<String> {
        let whole = self.tree.lines().filter_map(|line| {
            let (_, rest) = line.split_once("Seq Scan on ")?;
            rest.split(' ').next().filter(|table| LARGE.contains(table))
        });
        let whole = whole.map(|table| format!("{table} is read as a whole"));
        whole.chain(self.crowds(most_rows)).collect()
    }

    /// The nodes that meet too many rows, in all their loops together.
    pub fn crowds(&self, most_rows: f64) -> Vec<String> {
        let mut crowds = Vec::new();
        let mut loops = 1.0;
        for line in self.tree.lines() {
            // The rows that a node removes stand below it, for one loop.
            let removed = after(line, "Rows Removed by Filter: ")
                .or_else(|| after(line, "Rows Removed by Index Recheck: "))
                .or_else(|| after(line, "Rows Removed by Join Filter: "));
            let actual = line.split_once("(actual ").map(|(_, actual)| actual);
            if let Some(actual) = actual {
                loops = after(actual, "loops=").unwrap_or(1.0);
            }
            let rows = actual.and_then(|actual| after(actual, "rows="));
            if let Some(many) = rows.or(removed).map(|rows| rows * loops).filter(|rows| *rows > most_rows) {
                crowds.push(format!("{many} rows: {}", line.trim()));
            }
        }
        crowds
    }
}

/// The number behind a word.
fn after(line: &str, word: &str) -> Option<f64> {
    let (_, rest) = line.split_once(word)?;
    let digits: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    digits.parse().ok()
}

/// All plans as a page: each statement once, with its first plan.
pub fn page(plans: &[Plan]) -> String {
    let mut seen: BTreeMap<&str, ()> = BTreeMap::new();
    let mut text = String::new();
    for plan in plans {
        if seen.insert(&plan.statement, ()).is_none() {
            text += &format!("{}\n\n{}\n\n{}\n\n", plan.statement, plan.tree, "-".repeat(80));
        }
    }
    text
}

#[test]
fn a_plan_that_reads_a_large_table_or_too_many_rows_is_found() {
    let text = "duration: 1 ms  plan:\nQuery Text: SELECT 1\nSort  (cost=1 rows=1 width=1) (actual rows=9000 loops=1)\n  ->  Seq Scan on job j  (cost=0.00..1 rows=7 width=4) (actual rows=45.00 loops=2)\n        Rows Removed by Filter: 6000";
    let plan = Plan::read(text).expect("a plan");
    assert_eq!(plan.statement, "SELECT 1");
    assert_eq!(plan.faults(5_000.0).len(), 3, "{:?}", plan.faults(5_000.0));
    assert_eq!(plan.faults(12_000.0), ["job is read as a whole"]);
}
