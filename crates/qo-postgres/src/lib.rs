//! qo on PostgreSQL: the rules as functions of a schema, called once per exchange.
//!
//! A namespace is a schema. Its tables hold the jobs, its functions (`src/functions/*.sql`) decide: this crate checks
//! what needs no state, calls one function in one short transaction, and reads the answer. What it does itself is what
//! SQL cannot: reckon with cron expressions, keep connections, wait for notifications.
//!
//! - [`PostgresStore`]: the store.
//! - [`Url`]: where a namespace is.
//! - [`migrate`]: making and raising the schema.
//! - [`doctor`]: is the namespace well?

mod call;
pub mod doctor;
mod exchange;
mod fire;
mod listen;
pub mod migrate;
mod said;
mod store;
mod url;
mod values;

pub use store::{Options, PostgresStore};
/// The client library whose transactions [`PostgresStore::submit_in`] takes.
pub use tokio_postgres;
pub use url::Url;
