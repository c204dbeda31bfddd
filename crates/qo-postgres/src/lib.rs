//! qo on PostgreSQL: the rules as functions of a schema, called once per exchange.
//!
//! A namespace is a schema. Its tables hold the jobs, and its functions (`src/functions/*.sql`) decide. This crate
//! checks what needs no state, calls one function in one short transaction, and reads the answer. It does only what
//! SQL cannot: compute cron, keep connections, wait for notifications. `docs/adr/0012-alone-and-beside-others.md`
//! says how the functions work together.
//!
//! - [`PostgresStore`]: the store.
//! - [`Url`]: where a namespace is.
//! - [`migrate`]: making and upgrading the schema.
//! - [`doctor`]: examining and repairing a namespace.

mod call;
mod connect;
pub mod doctor;
mod exchange;
mod fire;
mod listen;
pub mod migrate;
mod said;
mod store;
mod tls;
mod url;
mod values;

pub use store::{Options, PostgresStore};
/// The client library whose transactions [`PostgresStore::submit_in`] takes.
pub use tokio_postgres;
pub use url::Url;
