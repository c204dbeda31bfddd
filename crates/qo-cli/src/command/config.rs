//! `qo config`

use crate::cli::Format;
use crate::output::{Screen, Style, Table};
use crate::place::Place;
use crate::trouble::Done;
use clap::Subcommand;
use qo::settings::Source;

/// See the settings in force.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Show every setting in force and where it comes from.
    #[command(after_help = "\
Examples:
  qo config show
  QO_MAX_CONCURRENT_TASKS=8 qo config show --json

A flag beats the environment, which beats .qo.toml, which beats the default.")]
    Show(Format),
}

impl Config {
    /// Shows them.
    pub fn run(self, place: &Place, screen: &mut Screen) -> Done {
        let Self::Show(format) = self;
        let settings = &place.settings;
        if format.json {
            return screen.json(&settings.shown);
        }
        match &settings.file {
            Some(file) => screen.line(format_args!("configuration: {}\n", file.display()))?,
            None => screen.line("configuration: none found (.qo.toml, here or in a directory above)\n")?,
        }
        let mut table = Table::new(&["SETTING", "VALUE", "FROM"]);
        for shown in &settings.shown {
            let value = match &shown.value {
                serde_json::Value::Null => "-".to_owned(),
                serde_json::Value::String(text) => text.clone(),
                value => value.to_string(),
            };
            let style = if shown.source == Source::Default { Style::Dim } else { Style::Plain };
            table.row([
                (shown.setting.clone(), Style::Plain),
                (value, style),
                (shown.source.to_string(), style),
            ]);
        }
        screen.table(table)
    }
}
