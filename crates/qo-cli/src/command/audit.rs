//! `qo audit`

use super::argument;
use crate::cli::Format;
use crate::output::{Screen, Style, Table};
use crate::place::{Place, times};
use crate::trouble::Done;
use clap::Args;
use qo::core::{AuditEntry, AuditText, caps};

/// See what operators did: who, when, what, and the values before and after.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qo audit                    the newest entries
  qo audit --before 120       the ones before entry 120
  qo audit --json

Who reaches the store without a qo serve is recorded as USER@HOST, who comes through one by the name of the token.
The newest 10,000 entries are kept.")]
pub struct Audit {
    /// Show entries with a smaller number than this.
    #[arg(long, value_name = "NUMBER")]
    before: Option<u64>,
    /// Show at most this many entries.
    #[arg(long, value_name = "N", default_value = "50", value_parser = argument::count)]
    limit: usize,
    #[command(flatten)]
    format: Format,
}

impl Audit {
    /// Lists entries, the newest first.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        let store = place.open_existing().await?;
        let mut entries: Vec<AuditEntry> = Vec::new();
        let mut before = self.before;
        loop {
            let most = caps::PAGE.min(self.limit - entries.len());
            let page = store.audit(before, most).await?;
            let is_last = page.len() < most;
            before = page.last().map(|entry| entry.number);
            entries.extend(page);
            if is_last || entries.len() >= self.limit {
                break;
            }
        }
        if self.format.json {
            return screen.json(&entries);
        }
        if entries.is_empty() {
            screen.say("nothing: no operator has changed anything");
            return Ok(());
        }
        let times = times(&store).await?;
        let mut table = Table::new(&["NUMBER", "WHEN", "WHO", "WHAT", "ON", "BEFORE", "AFTER"]);
        let text = |text: &Option<AuditText>| text.as_ref().map_or_else(String::new, ToString::to_string);
        for AuditEntry { number, at, deed, .. } in &entries {
            table.row([
                (number.to_string(), Style::Dim),
                (times.full(*at), Style::Plain),
                (deed.by.to_string(), Style::Strong),
                (deed.what.to_string(), Style::Plain),
                (deed.on.to_string(), Style::Plain),
                (text(&deed.before), Style::Dim),
                (text(&deed.after), Style::Plain),
            ]);
        }
        screen.table(table)?;
        if let Some(oldest) = entries.last().filter(|entry| entries.len() == self.limit && entry.number > 1) {
            screen.hint(format_args!("older ones: --before {}", oldest.number));
        }
        Ok(())
    }
}
