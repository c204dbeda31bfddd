//! A JSON object whose mistakes are named.

use crate::nearest;
use qo_core::{Error, Result};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The fields of a JSON object. What reads them takes one after the other; a field that is left over is a mistake.
pub struct Fields {
    all: BTreeMap<String, Box<RawValue>>,
    /// What the object is, in errors: `a job`.
    what: &'static str,
    known: Vec<&'static str>,
}

impl Fields {
    /// Reads a JSON object. `field` is its name in the error, `what` says what it is: `a job`.
    pub fn parse(field: &'static str, what: &'static str, text: &str) -> Result<Self> {
        let all = serde_json::from_str(text)
            .map_err(|error| Error::invalid(field, text, format_args!("must be a JSON object: {error}")))?;
        Ok(Self { all, what, known: Vec::new() })
    }

    /// Takes a field, in either spelling (`max_attempts`, `max-attempts`); `null` is none.
    pub fn take<T>(
        &mut self,
        name: &'static str,
        read: impl Fn(&RawValue) -> Result<T, String>,
    ) -> Result<Option<T>> {
        match self.take_raw(name).filter(|raw| raw.get() != "null") {
            Some(raw) => read(&raw).map(Some).map_err(|rule| Error::invalid(name, raw.get(), rule)),
            None => Ok(None),
        }
    }

    /// Takes a field that must be there.
    pub fn need<T>(
        &mut self,
        name: &'static str,
        read: impl Fn(&RawValue) -> Result<T, String>,
    ) -> Result<T> {
        self.take(name, read)?.ok_or_else(|| Error::invalid(name, "", "must be given"))
    }

    /// Takes a field as it is written, also `null`.
    pub fn take_raw(&mut self, name: &'static str) -> Option<Box<RawValue>> {
        self.known.push(name);
        let dashed = name.replace('_', "-");
        self.all.remove(name).or_else(|| self.all.remove(&dashed))
    }

    /// Ends the reading. `Invalid` for a field that nothing has taken.
    pub fn finish(self) -> Result<()> {
        let Some(name) = self.all.keys().next() else { return Ok(()) };
        let what = self.what;
        let rule = match nearest(name, self.known.iter().copied()) {
            Some(near) => format!("is not an option of {what}; did you mean {near}?"),
            None if self.known.is_empty() => format!("is not an option of {what}; there are none"),
            None => format!("is not an option of {what}; there are: {}", self.known.join(", ")),
        };
        Err(Error::invalid(name, name, rule))
    }
}

/// A text.
pub fn plain(raw: &RawValue) -> Result<String, String> {
    serde_json::from_str(raw.get()).map_err(|_| "must be a text".into())
}

/// A text that is read further.
pub fn text<T>(read: impl Fn(&str) -> Result<T, String>) -> impl Fn(&RawValue) -> Result<T, String> {
    move |raw| read(&plain(raw)?)
}

/// A list of texts that are read further.
pub fn texts<T>(read: impl Fn(&str) -> Result<T, String>) -> impl Fn(&RawValue) -> Result<Vec<T>, String> {
    move |raw| {
        let all: Vec<String> =
            serde_json::from_str(raw.get()).map_err(|_| "must be a list of texts".to_owned())?;
        all.iter().map(|text| read(text).map_err(|rule| format!("{text:?} {rule}"))).collect()
    }
}

/// A whole number.
pub fn number<T: DeserializeOwned>(raw: &RawValue) -> Result<T, String> {
    serde_json::from_str(raw.get()).map_err(|_| "must be a whole number that fits".into())
}

/// A whole number of 64 bits: as a text, as answers have it, or as a number.
pub fn wide(raw: &RawValue) -> Result<u64, String> {
    const RULE: &str = "must be a whole number, as a text such as \"42\"";
    let text = plain(raw).unwrap_or_else(|_| raw.get().to_owned());
    text.parse().map_err(|_| RULE.into())
}

/// Yes or no.
pub fn truth(raw: &RawValue) -> Result<bool, String> {
    serde_json::from_str(raw.get()).map_err(|_| "must be true or false".into())
}

/// A length of time in milliseconds: a text with its unit, or a number of seconds.
pub fn duration(raw: &RawValue) -> Result<u64, String> {
    match serde_json::from_str::<u64>(raw.get()) {
        Ok(seconds) => crate::parse_ms(&format!("{seconds}s")),
        Err(_) => crate::parse_ms(&plain(raw)?),
    }
}

/// One of a few words.
pub fn choice<T: Copy>(words: &'static [(&'static str, T)]) -> impl Fn(&RawValue) -> Result<T, String> {
    move |raw| {
        let word = plain(raw)?;
        let found = words.iter().find(|(name, _)| *name == word).map(|&(_, value)| value);
        found.ok_or_else(|| {
            let names: Vec<_> = words.iter().map(|(name, _)| *name).collect();
            format!("must be one of {}", names.join(", "))
        })
    }
}
