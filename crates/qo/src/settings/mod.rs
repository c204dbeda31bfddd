//! Settings: what `.qo.toml`, the environment and flags say, as plain data.
//!
//! A file `.qo.toml` is looked for in the current directory and then upwards. The environment beats the file, flags
//! beat both. Reading does not stop at the first mistake: all mistakes are listed, each with its place, its value and
//! the rule.
//!
//! | part of the file | becomes |
//! |---|---|
//! | `store` | [`Settings::store`] |
//! | `app` | [`Settings::app`] |
//! | `[concurrency]` `[queues.NAME]` `[schedules.NAME]` `[retention]` | the [`Configuration`] that a worker pushes |
//! | `max_concurrent` of `[tasks.NAME]` | a limit of that configuration |
//! | `[tasks.NAME]` | [`TaskSettings`]: programs, and options of tasks |
//! | `[worker]` | [`WorkerOptions`] |

mod reading;
mod schedule;
mod source;
mod task;
mod worker;

pub use qo_text::{nearest, parse_ms, show_ms};
pub use reading::Shown;
pub use source::{Environment, Source};
pub use task::{Command, TaskSettings};

use crate::connect::Directory;
use crate::worker::WorkerOptions;
use qo_core::default_app;
use qo_core::{Configuration, Error, ErrorKind, GroupRef, Name, PartialRetention, Result, Retention, caps};
use reading::{Entry, Reading, Section};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::de::DeTable;

/// The name of the configuration file.
pub const FILE: &str = ".qo.toml";

/// A store in the directory of the configuration file, or in the current one.
const DEFAULT_STORE: &str = "file:.qo";

/// A file larger than this is no configuration.
const FILE_BYTES: u64 = 16 << 20;

/// Where settings are looked for.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// Where the search for the file begins; also what relative paths of flags and variables are relative to.
    pub directory: PathBuf,
    /// The file, if the search is to be skipped.
    pub file: Option<PathBuf>,
    /// The environment.
    pub environment: Environment,
    /// Flags, such as `--queues`, and their values.
    pub flags: BTreeMap<&'static str, String>,
}

/// Everything that file, environment and flags say together.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The file that was read, if there was one.
    pub file: Option<PathBuf>,
    /// The store's URL; the path of a `file:` store is absolute. Defaults to `file:.qo` beside the file, else in the
    /// current directory.
    pub store: String,
    /// The service whose configuration and code this is. Defaults to `default`.
    pub app: Name,
    /// Limits, priorities, schedules and retention: what a worker pushes when it starts.
    pub configuration: Configuration,
    /// Tasks, by name.
    pub tasks: BTreeMap<Name, TaskSettings>,
    /// How a worker works; it has the same configuration, if there is a file.
    pub worker: WorkerOptions,
    /// Every setting in force, with its source.
    pub shown: Vec<Shown>,
    /// What looks like a mistake but need not be one.
    pub warnings: Vec<String>,
}

impl Settings {
    /// Reads the settings from the current directory and the environment of the process, without flags.
    pub fn of_process() -> Result<Self> {
        Self::load(Places {
            directory: current_directory()?,
            environment: Environment::of_process(),
            ..Places::default()
        })
    }

    /// Reads the settings. `Invalid`, with every mistake, if there is one; `NotFound` or `Unavailable` if the file
    /// cannot be read.
    pub fn load(places: Places) -> Result<Self> {
        let file = match &places.file {
            Some(file) => Some(places.directory.join(file)),
            None => find_upwards(&places.directory),
        };
        let text = file.as_deref().map(read_file).transpose()?.unwrap_or_default();
        let reading = Reading {
            file: file.as_deref().map(|file| shown_path(file, &places.directory)).unwrap_or_default(),
            lines: line_starts(&text),
            environment: places.environment,
            flags: places.flags,
            ..Reading::default()
        };
        for name in reading.environment.not_text() {
            let rule = "must be UTF-8, and is not";
            reading.mistake(Error::new(ErrorKind::Invalid, format!("{name}: {rule}")));
        }
        let (document, errors) = DeTable::parse_recoverable(&text);
        for error in errors {
            let line = reading.line(error.span().map_or(0, |span| span.start));
            let message = format!("{}:{line}: {}", reading.file, error.message());
            reading.mistakes.borrow_mut().push((Some(line), Error::new(ErrorKind::Invalid, message)));
        }
        fail(&reading)?;
        let home = file.as_deref().and_then(Path::parent).unwrap_or(&places.directory);
        let root = Section::new(&reading, String::new(), 1, document.get_ref());
        let mut settings = read(root, home, &places.directory);
        settings.check(&reading);
        fail(&reading)?;
        settings.warnings = reading.environment.suspects();
        // A worker without a file and without a cap of its own must not clear what another worker's file says.
        let says_something = file.is_some() || !settings.configuration.is_empty();
        settings.worker.configuration = says_something.then(|| settings.configuration.clone());
        settings.file = file;
        settings.shown = reading.shown.take();
        Ok(settings)
    }

    /// Checks the rules that concern more than one setting. Values that are wrong on their own have been dropped by
    /// now.
    fn check(&self, reading: &Reading) {
        let about_worker = |(_, mistake): &(Option<usize>, Error)| {
            let path = mistake.path().unwrap_or_default().to_lowercase();
            ["prefetch_buffer", "claim_lease_ms"].iter().any(|name| path.contains(name))
        };
        if reading.mistakes.borrow().iter().any(about_worker) {
            return;
        }
        if let Err(error) = self.worker.claim.check(&self.configuration) {
            let place = if reading.file.is_empty() { "settings" } else { &reading.file };
            reading.mistake(error.found_in(place));
        }
    }
}

/// The current directory, or `Unavailable`.
pub fn current_directory() -> Result<PathBuf> {
    std::env::current_dir().map_err(|error| {
        Error::new(ErrorKind::Unavailable, format!("the current directory cannot be used: {error}"))
    })
}

fn fail(reading: &Reading) -> Result<()> {
    Error::listed(reading.take_mistakes(), |many| {
        let listed = many.iter().take(caps::MISTAKES).map(|mistake| format!("\n  {}", mistake.message()));
        format!("{} mistakes in the settings:{}", many.len(), listed.collect::<String>())
    })
}

fn find_upwards(directory: &Path) -> Option<PathBuf> {
    directory.ancestors().map(|directory| directory.join(FILE)).find(|file| file.symlink_metadata().is_ok())
}

fn read_file(file: &Path) -> Result<String> {
    let shown = file.display();
    let failed = |error: std::io::Error| {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::InvalidData => ErrorKind::Invalid,
            _ => ErrorKind::Unavailable,
        };
        Error::new(kind, format!("{shown}: the configuration cannot be read: {error}"))
    };
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(Error::invalid(shown, FILE, "must be a file, and is not one"));
    }
    if metadata.len() > FILE_BYTES {
        return Err(Error::invalid(
            shown,
            metadata.len(),
            format_args!("must be at most {FILE_BYTES} bytes"),
        ));
    }
    std::fs::read_to_string(file).map_err(failed)
}

/// The file as people see it: without the directory that they are in.
fn shown_path(file: &Path, directory: &Path) -> String {
    file.strip_prefix(directory).unwrap_or(file).display().to_string()
}

fn line_starts(text: &str) -> Vec<usize> {
    std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect()
}

fn read(mut root: Section<'_>, home: &Path, directory: &Path) -> Settings {
    let reading = root.reading;
    let store = read_store(reading, root.take("store"), home, directory);
    let app = read_app(reading, root.take("app"));
    let mut configuration = Configuration::of(app.clone());
    let mut concurrency = root.take_section("concurrency");
    let (lease_ms, cap) = read_concurrency(reading, concurrency.as_mut());
    if let Some(limits) = concurrency.as_mut().and_then(|section| section.take_section("limits")) {
        read_limits(limits, &mut configuration);
    }
    if let Some(section) = concurrency {
        section.finish();
    }
    if let Some(cap) = cap
        && configuration.limits.insert(GroupRef::Cluster, cap).is_some()
    {
        let rule = "is given twice: as concurrency.limits.cluster too";
        reading.mistake(Error::invalid("cluster_wide_cap", cap, rule));
    }
    for (name, section) in named(root.take_section("queues")) {
        read_queue(name, section, &mut configuration);
    }
    let mut tasks = BTreeMap::new();
    for (name, section) in named(root.take_section("tasks")) {
        tasks.insert(name.clone(), task::read(name, section, home, &mut configuration));
    }
    let schedules = named(root.take_section("schedules")).into_iter();
    configuration.schedules =
        schedules.filter_map(|(name, section)| Some((name, schedule::read(section)?))).collect();
    let worker = worker::read(reading, root.take_section("worker"));
    let worker = WorkerOptions { lease: Duration::from_millis(lease_ms), app: Some(app.clone()), ..worker };
    configuration.retention = read_retention(reading, root.take_section("retention"));
    root.finish();
    let (shown, warnings) = (Vec::new(), Vec::new());
    Settings { file: None, store, app, configuration, tasks, worker, shown, warnings }
}

/// The sections of a table whose keys are names.
fn named(section: Option<Section<'_>>) -> Vec<(Name, Section<'_>)> {
    let entries = section.map(Section::take_all).unwrap_or_default();
    let named = entries.into_iter().filter_map(|(key, entry)| {
        let name = Name::parse("name", &key).map_err(|error| {
            entry.reading.mistake_at(entry.line, &entry.field, &key, error.rule());
        });
        Some((name.ok()?, entry.section()?))
    });
    named.collect()
}

fn read_store(reading: &Reading, in_file: Option<Entry<'_>>, home: &Path, directory: &Path) -> String {
    let (url, source) = reading
        .pick(source::STORE, in_file, |raw| raw.text())
        .unwrap_or_else(|| (DEFAULT_STORE.to_owned(), Source::Default));
    // A path in a flag or variable is relative to the current directory. A path in the file, or the default, is
    // relative to the file.
    let base = match source {
        Source::Flag(_) | Source::Environment(_) => directory,
        Source::File { .. } | Source::Default => home,
    };
    let url = match url.strip_prefix("file:") {
        Some(rest) => match Directory::parse(rest) {
            Ok(directory) => {
                let query = Some(Directory::parts(rest).1).filter(|query| !query.is_empty());
                let query = query.map_or_else(String::new, |query| format!("?{query}"));
                let path = base.join(directory.path);
                if path.to_str().is_none() {
                    let rule = "must be in a directory whose path is UTF-8";
                    reading.mistake(Error::invalid(format_args!("{source}: store"), path.display(), rule));
                }
                format!("file:{}{query}", path.display())
            }
            Err(rule) => {
                reading.mistake(Error::invalid(format_args!("{source}: store"), &url, rule));
                url
            }
        },
        None => url,
    };
    reading.show("store", without_password(&url).into(), source);
    url
}

/// A URL without its passwords, for people to see.
pub fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| *scheme != "file") else {
        return url.to_owned();
    };
    // A password that should have been percent-encoded may contain any character: hide everything before the last @.
    let before_query = rest.find('?').unwrap_or(rest.len());
    let at = rest[..before_query].rfind('@').or_else(|| rest.rfind('@'));
    let (user, place) = at.map_or((None, rest), |at| (Some(&rest[..at]), &rest[at + 1..]));
    let user = user.map(|user| match user.split_once(':') {
        Some((user, _)) => format!("{user}:***@"),
        None => format!("{user}@"),
    });
    let (place, query) = place.split_once('?').map_or((place, None), |(place, query)| (place, Some(query)));
    let hidden = |pair: &str| match pair.split_once('=') {
        Some((name, _)) if name.contains("password") => format!("{name}=***"),
        _ => pair.to_owned(),
    };
    let query = query.map(|query| query.split('&').map(hidden).collect::<Vec<_>>().join("&"));
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{scheme}://{}{place}{query}", user.unwrap_or_default())
}

fn read_app(reading: &Reading, in_file: Option<Entry<'_>>) -> Name {
    let read = |raw: &reading::Raw<'_>| {
        let text = raw.text()?;
        Name::parse("app", &text).map_err(|error| error.rule().to_owned()).map(String::from)
    };
    let app = reading.settle(source::APP, in_file, default_app().into(), read);
    Name::parse("app", &app).unwrap_or_else(|_| default_app())
}

fn read_concurrency(reading: &Reading, section: Option<&mut Section<'_>>) -> (u64, Option<u32>) {
    let (mut lease, mut cap) = (None, None);
    if let Some(section) = section {
        lease = section.take("default_lease_duration_secs");
        cap = section.take("cluster_wide_cap");
    }
    let range_ms = caps::LEASE_MIN_MS..=caps::LEASE_MAX_MS;
    let read = |raw: &reading::Raw<'_>| raw.seconds_as_ms(range_ms.clone());
    let (lease_ms, source) = reading.pick(source::LEASE, lease, read).unwrap_or((30_000, Source::Default));
    let seconds = match lease_ms.is_multiple_of(1_000) {
        true => (lease_ms / 1_000).into(),
        false => (lease_ms as f64 / 1_000.0).into(),
    };
    reading.show(source::LEASE.field, seconds, source);
    let cap = reading.settle_optional(source::CLUSTER, cap, |raw| raw.number(0..=caps::LIMIT));
    (lease_ms, cap)
}

fn read_limits(section: Section<'_>, configuration: &mut Configuration) {
    for (key, entry) in section.take_all() {
        match GroupRef::parse("group", &key) {
            Ok(group) => {
                if let Some(limit) = entry.note(|raw| raw.number(0..=caps::LIMIT)) {
                    configuration.limits.insert(group, limit);
                }
            }
            Err(error) => {
                entry.reading.mistake_at(entry.line, &entry.field, &key, error.rule());
            }
        }
    }
}

fn read_queue(name: Name, mut section: Section<'_>, configuration: &mut Configuration) {
    let priority = section.take("priority");
    if let Some(priority) = priority.and_then(|entry| entry.note(|raw| raw.number(1..=caps::QUEUE_PRIORITY)))
    {
        configuration.queue_priorities.insert(name.clone(), priority);
    }
    let limit = section.take("max_concurrency");
    if let Some(limit) = limit.and_then(|entry| entry.note(|raw| raw.number(0..=caps::LIMIT)))
        && configuration.limits.insert(GroupRef::Queue(name.clone()), limit).is_some()
    {
        section.missing(
            "max_concurrency",
            &format!("is given twice: in [concurrency.limits] as \"queue:{name}\" too"),
        );
    }
    section.finish();
}

fn read_retention(reading: &Reading, mut section: Option<Section<'_>>) -> PartialRetention {
    let default = Retention::default();
    let mut read = |key, default: u64| {
        let entry = section.as_mut().and_then(|section| section.take(key));
        if entry.is_none() {
            reading.show(format!("retention.{key}"), show_ms(default).into(), Source::Default);
        }
        entry.and_then(|entry| entry.note(|raw| raw.duration_ms()))
    };
    let retention = PartialRetention {
        succeeded_ms: read("succeeded", default.succeeded_ms),
        failed_ms: read("failed", default.failed_ms),
        cancelled_ms: read("cancelled", default.cancelled_ms),
        expired_ms: read("expired", default.expired_ms),
    };
    if let Some(section) = section {
        section.finish();
    }
    retention
}

#[cfg(test)]
mod tests;
