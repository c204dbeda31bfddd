//! What the handlers of one server share.

use crate::Options;
use crate::metrics::Numbers;
use crate::wake::Wakes;
use qo_core::Store;
use std::sync::Arc;
use tokio::sync::watch;

/// What the handlers of one server share. A handler takes the store of its [`Caller`](crate::caller::Caller), never this
/// one: it refuses nothing.
#[derive(Clone)]
#[allow(dead_code, reason = "the page, the HTTP interface and the metrics read them")]
pub(crate) struct Shared {
    /// The store as the server itself uses it: for readiness and totals.
    pub store: Arc<dyn Store>,
    /// Which changes the server has heard of.
    pub wakes: Arc<Wakes>,
    /// What it shows at `/metrics`.
    pub numbers: Arc<Numbers>,
    /// How the server works.
    pub options: Arc<Options>,
    /// Becomes true when the server is told to stop. Streams end then.
    pub ending: watch::Receiver<bool>,
}
