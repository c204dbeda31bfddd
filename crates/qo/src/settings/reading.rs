//! Reading settings: every value carries its source, and every mistake is kept, not only the first.

use super::source::{Environment, Known, Source};
use super::{nearest, parse_ms};
use qo_core::{Error, Json};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use toml::de::{DeTable, DeValue};

/// A setting in force, for people: its name, its value and its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shown {
    /// Its place in a configuration file, as in `worker.queues`.
    pub setting: String,
    /// Its value, as JSON; `null` for none.
    pub value: serde_json::Value,
    /// Where it comes from.
    #[serde(flatten)]
    pub source: Source,
}

/// What has been read so far. All sections share it.
#[derive(Default)]
pub(super) struct Reading {
    pub file: String,
    pub lines: Vec<usize>,
    pub environment: Environment,
    pub flags: BTreeMap<&'static str, String>,
    /// Each with its line, if it is in the file.
    pub mistakes: RefCell<Vec<(Option<usize>, Error)>>,
    pub shown: RefCell<Vec<Shown>>,
}

impl Reading {
    /// Keeps a mistake in a flag, the environment or several places.
    pub fn mistake(&self, mistake: Error) {
        self.mistakes.borrow_mut().push((None, mistake));
    }

    /// Keeps a mistake in a line of the file.
    pub fn mistake_at(&self, line: usize, field: &str, value: impl fmt::Display, rule: impl fmt::Display) {
        let mistake = Error::invalid(field, value, rule).found_in(format_args!("{}:{line}", self.file));
        self.mistakes.borrow_mut().push((Some(line), mistake));
    }

    /// Keeps what a check found in a section of the file.
    pub fn error_at(&self, line: usize, section: &str, error: &Error) {
        let mistake = error.clone().at(section).found_in(format_args!("{}:{line}", self.file));
        self.mistakes.borrow_mut().push((Some(line), mistake));
    }

    /// The mistakes, in the order of their lines; mistakes outside the file come last.
    pub fn take_mistakes(&self) -> Vec<Error> {
        let mut mistakes = self.mistakes.take();
        mistakes.sort_by_key(|(line, _)| line.unwrap_or(usize::MAX));
        mistakes.into_iter().map(|(_, mistake)| mistake).collect()
    }

    pub fn show(&self, setting: impl Into<String>, value: serde_json::Value, source: Source) {
        self.shown.borrow_mut().push(Shown { setting: setting.into(), value, source });
    }

    /// The line of a byte of the file.
    pub fn line(&self, byte: usize) -> usize {
        self.lines.partition_point(|&start| start <= byte)
    }

    /// A setting that flags, the environment and the file can give, in this order. A mistake in an overridden source is
    /// reported too.
    pub fn pick<T: Clone + Into<serde_json::Value>>(
        &self,
        known: Known,
        in_file: Option<Entry<'_>>,
        read: impl Fn(&Raw<'_>) -> Result<T, String>,
    ) -> Option<(T, Source)> {
        let in_file = in_file.and_then(|entry| Some((entry.clone().read(&read)?, entry.source())));
        let variables = [Some(known.variable), known.bare];
        let variable =
            variables.into_iter().flatten().find_map(|name| Some((name, self.environment.get(name)?)));
        let in_environment = variable.and_then(|(name, text)| {
            let value = self.checked(name, &Raw::Text(text), &read)?;
            Some((value, Source::Environment(name)))
        });
        let flag = self.flags.get(known.flag).and_then(|text| {
            let value = self.checked(known.flag, &Raw::Text(text), &read)?;
            Some((value, Source::Flag(known.flag)))
        });
        flag.or(in_environment).or(in_file)
    }

    /// The same, for a setting with a default; it is noted as in force.
    pub fn settle<T: Clone + Into<serde_json::Value>>(
        &self,
        known: Known,
        in_file: Option<Entry<'_>>,
        default: T,
        read: impl Fn(&Raw<'_>) -> Result<T, String>,
    ) -> T {
        let (value, source) = self.pick(known, in_file, read).unwrap_or((default, Source::Default));
        self.show(known.field, value.clone().into(), source);
        value
    }

    /// The same, for a setting that may be left out.
    pub fn settle_optional<T: Clone + Into<serde_json::Value>>(
        &self,
        known: Known,
        in_file: Option<Entry<'_>>,
        read: impl Fn(&Raw<'_>) -> Result<T, String>,
    ) -> Option<T> {
        let (value, source) = match self.pick(known, in_file, read) {
            Some((value, source)) => (Some(value), source),
            None => (None, Source::Default),
        };
        let shown = value.clone().map_or(serde_json::Value::Null, Into::into);
        self.show(known.field, shown, source);
        value
    }

    fn checked<T>(
        &self,
        place: &str,
        raw: &Raw<'_>,
        read: impl Fn(&Raw<'_>) -> Result<T, String>,
    ) -> Option<T> {
        read(raw).map_err(|rule| self.mistake(Error::invalid(place, raw.shown(), rule))).ok()
    }
}

/// A value as it was written: in the file, or as a text elsewhere.
#[derive(Clone, Copy)]
pub(super) enum Raw<'a> {
    Text(&'a str),
    Toml(&'a DeValue<'a>),
}

impl Raw<'_> {
    pub fn shown(&self) -> String {
        match self {
            Self::Text(text) => (*text).into(),
            Self::Toml(DeValue::String(text)) => text.to_string(),
            Self::Toml(value) => value_as_json(value).map_or_else(|rule| rule, |json| json.to_string()),
        }
    }

    pub fn integer(&self, range: RangeInclusive<i64>) -> Result<i64, String> {
        let rule = || format!("must be a whole number from {} to {}", range.start(), range.end());
        let number = match self {
            Self::Text(text) => text.trim().parse().ok(),
            Self::Toml(DeValue::Integer(number)) => i64::from_str_radix(number.as_str(), number.radix()).ok(),
            Self::Toml(_) => None,
        };
        number.filter(|number| range.contains(number)).ok_or_else(rule)
    }

    pub fn number(&self, range: RangeInclusive<u32>) -> Result<u32, String> {
        let number = self.integer((*range.start()).into()..=(*range.end()).into())?;
        u32::try_from(number).map_err(|error| error.to_string())
    }

    /// Seconds, which need not be whole, in milliseconds.
    pub fn seconds_as_ms(&self, range_ms: RangeInclusive<u64>) -> Result<u64, String> {
        let (least, most) = (*range_ms.start() as f64 / 1_000.0, *range_ms.end() as f64 / 1_000.0);
        let number: Option<f64> = match self {
            Self::Text(text) => text.trim().parse().ok(),
            Self::Toml(DeValue::Integer(_)) => self.integer(0..=i64::MAX).ok().map(|number| number as f64),
            Self::Toml(DeValue::Float(number)) => number.as_str().parse().ok(),
            Self::Toml(_) => None,
        };
        let seconds = number.filter(|number| (least..=most).contains(number));
        let seconds = seconds.ok_or_else(|| format!("must be a number of seconds from {least} to {most}"))?;
        Ok((seconds * 1_000.0).round() as u64)
    }

    pub fn milliseconds(&self, range: RangeInclusive<u64>) -> Result<u64, String> {
        let bound = |ms: &u64| i64::try_from(*ms).unwrap_or(i64::MAX);
        let number = self.integer(bound(range.start())..=bound(range.end()))?;
        u64::try_from(number).map_err(|error| error.to_string())
    }

    /// A length of time with its unit, in milliseconds.
    pub fn duration_ms(&self) -> Result<u64, String> {
        match self {
            Self::Text(text) => parse_ms(text),
            Self::Toml(DeValue::String(text)) => parse_ms(text),
            Self::Toml(_) => {
                Err("must be a length of time in quotes, such as \"90s\", \"10m\" or \"14d\"".into())
            }
        }
    }

    pub fn boolean(&self) -> Result<bool, String> {
        match self {
            Self::Text("true") | Self::Toml(DeValue::Boolean(true)) => Ok(true),
            Self::Text("false") | Self::Toml(DeValue::Boolean(false)) => Ok(false),
            _ => Err("must be true or false".into()),
        }
    }

    pub fn text(&self) -> Result<String, String> {
        match self {
            Self::Text(text) => Ok((*text).into()),
            Self::Toml(DeValue::String(text)) => Ok(text.to_string()),
            Self::Toml(_) => Err("must be a text in quotes".into()),
        }
    }

    /// Texts: a list in the file, one with commas elsewhere.
    pub fn texts(&self) -> Result<Vec<String>, String> {
        match self {
            Self::Text(text) => Ok(text.split(',').map(|part| part.trim().to_owned()).collect()),
            Self::Toml(DeValue::Array(values)) => {
                values.iter().map(|value| Raw::Toml(value.get_ref()).text()).collect()
            }
            Self::Toml(_) => Err("must be a list of texts, as in [\"a\", \"b\"]".into()),
        }
    }

    /// Any value, as JSON.
    pub fn json(&self) -> Result<Json, String> {
        let value = match self {
            Self::Text(text) => return Json::parse("value", text).map_err(|error| error.message().into()),
            Self::Toml(value) => value_as_json(value)?,
        };
        Json::parse("value", &value.to_string()).map_err(|error| error.message().into())
    }
}

/// What a value of a file is in JSON. Dates become texts; JSON has no infinity.
pub(super) fn value_as_json(value: &DeValue<'_>) -> Result<serde_json::Value, String> {
    use serde_json::Value;
    Ok(match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(Value::from)
            .map_err(|_| "must be a whole number of 64 bits")?,
        DeValue::Float(number) => {
            let number = number.as_str().parse().ok().and_then(serde_json::Number::from_f64);
            Value::Number(number.ok_or("must be a number that JSON knows")?)
        }
        DeValue::Datetime(moment) => Value::String(moment.to_string()),
        DeValue::Array(values) => {
            values.iter().map(|value| value_as_json(value.get_ref())).collect::<Result<_, _>>()?
        }
        DeValue::Table(table) => {
            let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
                let key: &std::borrow::Cow<'_, str> = key.get_ref();
                Ok((key.to_string(), value_as_json(value.get_ref())?))
            };
            Value::Object(table.iter().map(entry).collect::<Result<_, String>>()?)
        }
    })
}

/// A value in the file: its field, its line and itself.
#[derive(Clone)]
pub(super) struct Entry<'a> {
    pub reading: &'a Reading,
    pub field: String,
    pub line: usize,
    pub raw: Raw<'a>,
}

impl<'a> Entry<'a> {
    pub fn source(&self) -> Source {
        Source::File { file: self.reading.file.clone(), line: self.line }
    }

    /// Reads the value, or keeps the mistake.
    pub fn read<T>(self, read: impl Fn(&Raw<'_>) -> Result<T, String>) -> Option<T> {
        read(&self.raw).map_err(|rule| self.wrong(&rule)).ok()
    }

    /// Reads the value and notes it as in force.
    pub fn note<T>(self, read: impl Fn(&Raw<'_>) -> Result<T, String>) -> Option<T> {
        let value = self.clone().read(read)?;
        if let Raw::Toml(raw) = self.raw
            && let Ok(json) = value_as_json(raw)
        {
            self.reading.show(&self.field, json, self.source());
        }
        Some(value)
    }

    /// Keeps a mistake about the value.
    pub fn wrong(&self, rule: &str) {
        self.reading.mistake_at(self.line, &self.field, self.raw.shown(), rule);
    }

    /// The value as a section of its own.
    pub fn section(self) -> Option<Section<'a>> {
        match self.raw {
            Raw::Toml(DeValue::Table(table)) => {
                Some(Section::new(self.reading, self.field, self.line, table))
            }
            _ => {
                self.wrong(&format!("must be a section: [{}]", self.field));
                None
            }
        }
    }
}

/// A table of the file, from which known keys are taken; what is left over is a mistake.
pub(super) struct Section<'a> {
    pub reading: &'a Reading,
    pub field: String,
    pub line: usize,
    left: BTreeMap<String, (usize, &'a DeValue<'a>)>,
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    pub fn new(reading: &'a Reading, field: String, line: usize, table: &'a DeTable<'a>) -> Self {
        let entry = |(key, value): (&'a toml::Spanned<std::borrow::Cow<'a, str>>, &'a toml::Spanned<_>)| {
            (key.get_ref().to_string(), (reading.line(key.span().start), value.get_ref()))
        };
        Self { reading, field, line, left: table.iter().map(entry).collect(), known: Vec::new() }
    }

    fn field_of(&self, key: &str) -> String {
        let plain = key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
        let key = if plain && !key.is_empty() { key.to_owned() } else { format!("{key:?}") };
        if self.field.is_empty() { key } else { format!("{}.{key}", self.field) }
    }

    /// Takes a known key.
    pub fn take(&mut self, key: &'static str) -> Option<Entry<'a>> {
        self.known.push(key);
        let (line, value) = self.left.remove(key)?;
        Some(Entry { reading: self.reading, field: self.field_of(key), line, raw: Raw::Toml(value) })
    }

    /// Takes a known key that is a section.
    pub fn take_section(&mut self, key: &'static str) -> Option<Section<'a>> {
        self.take(key)?.section()
    }

    /// Takes every entry, where the keys are names that people chose.
    pub fn take_all(mut self) -> Vec<(String, Entry<'a>)> {
        let left = std::mem::take(&mut self.left);
        let entry = |(key, (line, value)): (String, (usize, &'a DeValue<'a>))| {
            let field = self.field_of(&key);
            (key, Entry { reading: self.reading, field, line, raw: Raw::Toml(value) })
        };
        left.into_iter().map(entry).collect()
    }

    /// Says that a key must be there.
    pub fn missing(&self, key: &str, rule: &str) {
        self.reading.mistake_at(self.line, &self.field_of(key), "", rule);
    }

    /// Reports every key that was not taken, with the setting that it probably means.
    pub fn finish(self) {
        for (key, (line, _)) in &self.left {
            let rule = match nearest(key, self.known.iter().copied()) {
                Some(near) => format!("is not a setting; did you mean {near}?"),
                None => format!("is not a setting; there are: {}", self.known.join(", ")),
            };
            self.reading.mistake_at(*line, &self.field_of(key), key, rule);
        }
    }
}
