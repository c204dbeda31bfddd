//! Which jobs a request is about.

use super::input::Query;
use qo_core::{IdPrefix, JobFilter, JobState, Key, Name, Result, Store, Time};
use qo_text::fields::{plain, text};
use qo_text::{Fields, Past, Zone, word};
use serde_json::value::RawValue;
use std::sync::Arc;

/// A filter whose moments may be told from now.
#[derive(Debug, Default)]
pub(super) struct Filter {
    states: Vec<JobState>,
    queue: Option<Name>,
    task: Option<Name>,
    group: Option<Name>,
    key: Option<Key>,
    workflow: Option<Name>,
    since: Option<Past>,
    until: Option<Past>,
    id: Option<IdPrefix>,
}

fn past(text: &str) -> Result<Past, String> {
    Past::parse(text, Zone::Given)
}

/// States, separated by commas.
fn states(text: &str) -> Result<Vec<JobState>, String> {
    text.split(',').map(word::state).collect()
}

/// One state, or a list of them.
fn state_field(raw: &RawValue) -> Result<Vec<JobState>, String> {
    match plain(raw) {
        Ok(text) => states(&text),
        Err(_) => qo_text::fields::texts(word::state)(raw),
    }
}

impl Filter {
    /// The filter of an address.
    pub fn of_query(query: &mut Query) -> Result<Self> {
        let mut all = Vec::new();
        for given in query.all("state") {
            let read = states(&given);
            all.extend(read.map_err(|rule| qo_core::Error::invalid("state", given, rule))?);
        }
        Ok(Self {
            states: all,
            queue: query.take("queue", word::name)?,
            task: query.take("task", word::name)?,
            group: query.take("group", word::name)?,
            key: query.take("key", word::key)?,
            workflow: query.take("workflow", word::name)?,
            since: query.take("since", past)?,
            until: query.take("until", past)?,
            id: query.take("id", word::id_prefix)?,
        })
    }

    /// The filter of a body.
    pub fn of_fields(fields: &mut Fields) -> Result<Self> {
        Ok(Self {
            states: fields.take("state", state_field)?.unwrap_or_default(),
            queue: fields.take("queue", text(word::name))?,
            task: fields.take("task", text(word::name))?,
            group: fields.take("group", text(word::name))?,
            key: fields.take("key", text(word::key))?,
            workflow: fields.take("workflow", text(word::name))?,
            since: fields.take("since", text(past))?,
            until: fields.take("until", text(past))?,
            id: fields.take("id", text(word::id_prefix))?,
        })
    }

    /// As the store takes it, by the store's time.
    pub async fn at(self, store: &Arc<dyn Store>) -> Result<JobFilter> {
        let is_relative = |past: Option<Past>| matches!(past, Some(Past::Ago(_)));
        let needs_now = is_relative(self.since) || is_relative(self.until);
        let now = if needs_now { store.now().await? } else { Time::from_millis(0) };
        let Self { states, queue, task, group, key, workflow, since, until, id } = self;
        Ok(JobFilter {
            states,
            queue,
            task,
            group,
            key,
            workflow,
            submitted_from: since.map(|since| since.from(now)),
            submitted_before: until.map(|until| until.from(now)),
            id_prefix: id,
            newest_first: false,
        })
    }
}
