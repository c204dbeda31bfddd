//! `qo serve`: any store behind one address, for workers, programs and people without credentials of the store.
//!
//! | module | what it holds |
//! |---|---|
//! | `caller` | who calls, and the store as that caller may use it |
//! | [`options`] | what a server may use, and what it waits for |
//! | [`listen`] | which addresses it may listen on |
//! | [`server`] | connections: how many, how they begin, how they end |
//! | `grpc` | each call of the protocol as a call of the store |
//! | `wake` | which waiting workers are woken when there is work |
//! | `maintain` | sweeping: what is over ends, schedules fire |
//! | `http` | is it alive, is it ready; which names it answers to |
//! | [`route`] | each path and method, and what its caller must be allowed to do |
//! | `shared` | what the handlers share |
//! | `api` | the calls of the store as HTTP and JSON |
//! | `page` | the page for people |
//! | `metrics` | numbers for monitoring |
//!
//! gRPC and HTTP share one port: an axum router has the routes of both, and a connection of either version of HTTP is
//! served by it.

mod api;
mod caller;
mod grpc;
mod http;
pub mod listen;
mod maintain;
mod metrics;
pub mod options;
mod page;
pub mod route;
pub mod server;
mod shared;
mod wake;

pub use listen::bind;
pub use options::Options;
pub use route::{Needs, Route};
pub use server::{Server, Stopper};
