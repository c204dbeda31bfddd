//! Tasks as a configuration file declares them: programs, and the options of tasks.

use super::reading::{Raw, Section};
use crate::{guard, program};
use qo_core::{Configuration, GroupRef, Name, RetryPolicy, TaskOptions, caps};
use std::path::{Path, PathBuf};
use toml::de::DeValue;

/// A task as the file, or `--task`, declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSettings {
    /// Its group, timeout and backoff; its limit is in the configuration.
    pub options: TaskOptions,
    /// The program that runs its jobs; none for a task whose handler is code.
    pub command: Option<Command>,
}

/// A program and where it is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The program and its arguments. A relative path is relative to the directory.
    pub arguments: Vec<String>,
    /// The directory that it is started in: the one of the configuration file, or the current one.
    pub directory: PathBuf,
}

impl Command {
    /// A command as a list of arguments.
    pub fn new(mut arguments: Vec<String>, directory: &Path) -> Result<Self, String> {
        let program = arguments.first_mut().filter(|program| !program.is_empty());
        let program = program.ok_or("must name a program, as in [\"./resize.sh\"]")?;
        // A bare name is looked up in PATH; anything with a slash is a path.
        if program.contains('/') {
            let path = directory.join(&*program).into_os_string();
            *program = path.into_string().map_err(|_| "must be in a directory whose path is UTF-8")?;
        }
        if arguments.iter().any(|argument| argument.contains('\0')) {
            return Err("must not contain NUL".into());
        }
        Ok(Self { arguments, directory: directory.to_owned() })
    }

    /// Whether the program exists, as far as that can be known before it is started; if not, the rule that it breaks.
    /// For a line that the shell reads, this checks the shell.
    pub fn check(&self) -> Result<(), String> {
        let program = self.arguments.first().map(String::as_str).unwrap_or_default();
        program::find(program, &self.directory).map(drop)
    }

    /// A command as one line, which the shell reads.
    pub fn line(line: &str, directory: &Path) -> Result<Self, String> {
        if line.trim().is_empty() {
            return Err("must name a program, as in \"./resize.sh --fast\"".into());
        }
        let script = format!("{}{line}", guard::LINE);
        Self::new(vec!["sh".into(), "-c".into(), script], directory)
    }
}

/// A task. Its `max_concurrent` is a limit that the configuration gives its group, like one of `[concurrency.limits]`.
pub(super) fn read(
    name: Name,
    mut section: Section<'_>,
    home: &Path,
    configuration: &mut Configuration,
) -> TaskSettings {
    let command = section.take("command").and_then(|entry| {
        entry.note(|raw| match raw {
            Raw::Toml(DeValue::String(line)) => Command::line(line, home),
            Raw::Toml(DeValue::Array(_)) => Command::new(raw.texts()?, home),
            _ => Err("must be a list, as in [\"./resize.sh\", \"--fast\"], or a line for the shell".into()),
        })
    });
    let number = |raw: &Raw<'_>| raw.number(0..=caps::LIMIT);
    let max_concurrent = section.take("max_concurrent");
    let limit = max_concurrent.clone().and_then(|entry| entry.note(number));
    let timeout = |raw: &Raw<'_>| raw.seconds_as_ms(1..=caps::DURATION_MS);
    let timeout_ms = section.take("timeout_secs").and_then(|entry| entry.note(timeout));
    let group = section.take("group").and_then(|entry| {
        entry.note(|raw| Name::parse("name", &raw.text()?).map_err(|error| error.rule().to_owned()))
    });
    let retry = section.take_section("retry").map(read_retry);
    section.finish();
    let options = TaskOptions { group, timeout_ms, retry, ..TaskOptions::new(name) };
    if let (Some(limit), Some(entry)) = (limit, max_concurrent) {
        let group = GroupRef::Group(options.group().clone());
        let other = configuration.limits.insert(group.clone(), limit);
        if other.is_some_and(|other| other != limit) {
            entry.wrong(&format!(
                "is given twice: [concurrency.limits], or another task of group {group}, says {}",
                other.unwrap_or_default()
            ));
        }
    }
    TaskSettings { options, command }
}

fn read_retry(mut section: Section<'_>) -> RetryPolicy {
    let default = RetryPolicy::default();
    let mut ms = |key, default| {
        let read = |raw: &Raw<'_>| raw.milliseconds(0..=caps::DURATION_MS);
        section.take(key).and_then(|entry| entry.note(read)).unwrap_or(default)
    };
    let (base_ms, max_ms) = (ms("base_ms", default.base_ms), ms("max_ms", default.max_ms));
    let mut percent = |key, most, default| {
        let read = |raw: &Raw<'_>| raw.number(0..=most);
        section.take(key).and_then(|entry| entry.note(read)).unwrap_or(default)
    };
    let policy = RetryPolicy {
        base_ms,
        factor_percent: percent("factor_percent", 10_000, default.factor_percent),
        max_ms,
        jitter_percent: percent("jitter_percent", 100, default.jitter_percent),
    };
    if let Err(error) = policy.check() {
        section.reading.error_at(section.line, &section.field, &error);
    }
    section.finish();
    policy
}
