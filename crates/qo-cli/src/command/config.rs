//! `qo config`

use crate::by_hand::by_hand;
use crate::cli::Format;
use crate::output::{Screen, Style, Table};
use crate::place::{Place, times};
use crate::trouble::{Done, FAILED, Trouble};
use clap::{Args, Subcommand};
use qo::core::{Configuration, Pushed, Setting, SettingChange, app::changes};
use qo::settings::{Source, show_ms};
use std::collections::BTreeMap;

/// See the settings in force; compare them with the store, push them, and see what was pushed.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Show every setting in force and where it comes from.
    #[command(after_help = "\
Examples:
  qo config show
  QO_MAX_CONCURRENT_TASKS=8 qo config show --json

A flag beats the environment, which beats .qo.toml, which beats the default.")]
    Show(OfApp),
    /// Show what `apply` would change in the store: limits, queue priorities, schedules, retention.
    #[command(after_help = "\
Examples:
  qo config diff
  qo config diff --app billing --config billing/.qo.toml

It compares .qo.toml with what the same app pushed to the store last, and changes nothing.
Exit codes: 0 nothing to change, 1 something to change.")]
    Diff(OfApp),
    /// Push limits, queue priorities, schedules and retention, as a worker does when it starts.
    #[command(after_help = "\
Examples:
  qo config apply
  qo config apply --app billing --config billing/.qo.toml

It replaces everything that the same app pushed before, and nothing of other apps. To remove everything that an app
pushed, apply a file that names the app and nothing else. Workers register the tasks that they run.")]
    Apply(OfApp),
    /// Show the last pushes that changed something: when, which app, and by name what was added, changed and removed.
    #[command(after_help = "Examples:\n  qo config history\n  qo config history --json")]
    History(Format),
}

/// The app of a configuration.
#[derive(Debug, Args)]
pub struct OfApp {
    /// The app whose configuration this is [default: QO_APP, else the app of the configuration, else default].
    #[arg(long, value_name = "NAME")]
    app: Option<String>,
    #[command(flatten)]
    format: Format,
}

/// What a push changed, and the app of the push.
#[derive(Debug, serde::Serialize)]
struct Applied<'a> {
    app: &'a str,
    #[serde(flatten)]
    pushed: Pushed,
}

impl Config {
    /// Its flags that are settings.
    pub fn flags(&self) -> BTreeMap<&'static str, String> {
        let app = match self {
            Self::Show(of) | Self::Diff(of) | Self::Apply(of) => of.app.clone(),
            Self::History(_) => None,
        };
        app.map(|app| ("--app", app)).into_iter().collect()
    }

    /// Shows or pushes them.
    pub async fn run(self, place: &Place, screen: &mut Screen) -> Done {
        match self {
            Self::Show(of) => show(place, screen, of.format),
            Self::Diff(of) => diff(place, screen, of.format).await,
            Self::Apply(of) => apply(place, screen, of.format).await,
            Self::History(format) => history(place, screen, format).await,
        }
    }
}

fn show(place: &Place, screen: &mut Screen, format: Format) -> Done {
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
        table.row([(shown.setting.clone(), Style::Plain), (value, style), (shown.source.to_string(), style)]);
    }
    screen.table(table)
}

/// The file, as people see it. A usage error if there is none: an empty configuration would take everything back.
fn file(place: &Place) -> Done<String> {
    match &place.settings.file {
        Some(file) => Ok(file.display().to_string()),
        None => Err(Trouble::usage("configuration: none found (.qo.toml, here or in a directory above)")
            .hint("--config FILE or QO_CONFIG names one")),
    }
}

async fn diff(place: &Place, screen: &mut Screen, format: Format) -> Done {
    let file = file(place)?;
    let configuration = &place.settings.configuration;
    let app = &configuration.app;
    let store = place.open_existing().await?;
    let said = store.configurations().await?;
    let changes = changes(said.iter().find(|said| said.app == *app), configuration);
    let is_same = changes.is_empty();
    if format.json {
        screen.json(&Applied { app, pushed: Pushed { changes } })?;
    } else if is_same {
        screen.line(format_args!("app {app}: the store says what {file} says"))?;
        overruled(screen, configuration, &said);
    } else {
        screen.line(format_args!("app {app}: `qo config apply` would push {file}:"))?;
        list(screen, &changes)?;
    }
    if is_same { Ok(()) } else { Err(Trouble::Exit(FAILED)) }
}

async fn apply(place: &Place, screen: &mut Screen, format: Format) -> Done {
    let file = file(place)?;
    let configuration = &place.settings.configuration;
    let app = &configuration.app;
    let store = place.open().await?;
    let pushed = by_hand(&*store).configure(configuration.clone()).await?;
    if format.json {
        return screen.json(&Applied { app, pushed });
    }
    if pushed.is_empty() {
        screen.line(format_args!("app {app}: nothing changed; the store says what {file} says"))?;
    } else {
        screen.line(format_args!("app {app}: pushed {file}"))?;
        list(screen, &pushed.changes)?;
    }
    overruled(screen, configuration, &store.configurations().await?);
    Ok(())
}

async fn history(place: &Place, screen: &mut Screen, format: Format) -> Done {
    let store = place.open_existing().await?;
    let pushes = store.pushes().await?;
    if format.json {
        return screen.json(&pushes);
    }
    if pushes.is_empty() {
        screen.say(
            "no push has changed anything yet; a worker pushes when it starts, and so does `qo config apply`",
        );
        return Ok(());
    }
    let times = times(&store).await?;
    for (index, push) in pushes.iter().enumerate() {
        if index > 0 {
            screen.line("")?;
        }
        screen.line(format_args!("{}, app {}", times.full(push.at), push.app))?;
        list(screen, &push.changes)?;
        if push.unlisted > 0 {
            screen.line(format_args!("  … and {} more", push.unlisted))?;
        }
    }
    Ok(())
}

fn list(screen: &mut Screen, changes: &[SettingChange]) -> Done {
    for change in changes {
        screen.line(format_args!("  {:7} {}", change.verb(), in_words(change)))?;
    }
    Ok(())
}

/// Retention is stored in milliseconds; people read days.
fn in_words(change: &SettingChange) -> SettingChange {
    let mut change = change.clone();
    if change.setting == Setting::Retention {
        let shown = |ms: &String| ms.parse().map_or_else(|_| ms.clone(), show_ms);
        (change.old, change.new) = (change.old.as_ref().map(shown), change.new.as_ref().map(shown));
    }
    change
}

/// Notes which parts of a configuration do not count, because another app's push is newer.
fn overruled(screen: &mut Screen, configuration: &Configuration, said: &[Configuration]) {
    let app = &configuration.app;
    let newer = || said.iter().rev().take_while(|said| said.app != *app);
    let mut tell = |setting: Setting, name: &dyn std::fmt::Display, by: Option<&Configuration>| {
        if let Some(by) = by {
            screen.say(format_args!(
                "note: {setting} {name}: that of app {} counts, its push is newer",
                by.app
            ));
        }
    };
    for group in configuration.limits.keys() {
        tell(Setting::Limit, group, newer().find(|said| said.limits.contains_key(group)));
    }
    for queue in configuration.queue_priorities.keys() {
        tell(Setting::QueuePriority, queue, newer().find(|said| said.queue_priorities.contains_key(queue)));
    }
    for name in configuration.schedules.keys() {
        tell(Setting::Schedule, name, newer().find(|said| said.schedules.contains_key(name)));
    }
    for (state, _) in configuration.retention.named() {
        let names = |said: &Configuration| said.retention.named().any(|(other, _)| other == state);
        tell(Setting::Retention, &state, newer().find(|said| names(said)));
    }
}
