//! Program tasks.
use crate::context::Context;
use crate::failure::Failure;
use crate::handler::Handler;
use futures::future::BoxFuture;
use qo_core::{Error, ErrorKind, Json, Result, Store};
use std::path::Path;
use std::sync::Arc;
use tokio::time::Instant;

/// A program's control line.
#[derive(Debug)]
pub(crate) struct Control;
impl Control {
    pub fn until(&self, _at: Instant) {}
}
pub(crate) struct Program;
impl Program {
    pub fn new(_store: Arc<dyn Store>, _command: Vec<String>, _guard: Option<&Path>) -> Result<Self> {
        Err(Error::new(ErrorKind::Internal, "not yet"))
    }
}
impl Handler for Program {
    fn call(&self, _payload: Json, _context: Context) -> BoxFuture<'static, Result<Json, Failure>> {
        Box::pin(async { Err(Failure::Cancelled) })
    }
}
