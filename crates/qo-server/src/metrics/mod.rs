//! Numbers for monitoring, at `/metrics`.
//!
//! | module | what it holds |
//! |---|---|
//! | `count` | what this server counts itself: requests, connections, wake-ups, how long jobs waited |
//! | `sample` | what the store says about groups, queues and workers, read at most every five seconds |
//! | `shown` | a sample as metrics |
//!
//! Two kinds of numbers, so that each thing is counted once. Totals and states are the store's own, so every server of
//! a store shows the same. What only one process can know is counted by that process, and a sum over all of them
//! counts it once.

mod count;
mod sample;
mod shown;

pub(crate) use count::{Counts, count};

use crate::caller::Caller;
use crate::refusal::{Asked, Refusal};
use crate::route::{Needs, Routes};
use crate::shared::Shared;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use prometheus_client::registry::Registry;
use qo_core::{Scope, Store};
use qo_metrics::{Format, text};
use sample::Samples;
use shown::Shown;
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn routes() -> Routes {
    Routes::new().add(Method::GET, "/metrics", Needs::Scope(Scope::Read), show)
}

/// Most groups, and most queues, that are labels. The rest is summed under `other`.
pub(crate) const LABELS: usize = 1_000;

/// What a server shows at `/metrics`.
pub(crate) struct Numbers {
    samples: Samples,
    registry: Registry,
}

impl Numbers {
    pub fn new(store: Arc<dyn Store>, counts: &Counts, every: Duration) -> Arc<Self> {
        let samples = Samples::new(store, every);
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Shown(samples.newest())));
        counts.register(&mut registry);
        Arc::new(Self { samples, registry })
    }
}

/// The numbers are those of all queues, so a caller that is bound to some gets none.
async fn show(
    State(shared): State<Shared>,
    caller: Caller,
    Extension(asked): Extension<Asked>,
    headers: HeaderMap,
) -> Response {
    if let Err(error) = caller.need_every_queue("/metrics") {
        return Refusal::from(error).into_response(&asked);
    }
    let format = Format::accepted(headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()));
    shared.numbers.samples.refresh().await;
    match text(&shared.numbers.registry, format) {
        Ok(text) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
