//! `qo serve`: any store behind one address, for workers, programs and people without credentials of the store.
//!
//! | module | what it holds |
//! |---|---|
//! | `caller` | who calls, and the store as that caller may use it |
//! | `gate` | what every request passes, and what every answer carries |
//! | `tokens`, `rights` | the live tokens, and what a caller may do |
//! | `guarded` | the store of one caller: what each method needs, and what it hides |
//! | `origin`, `peer`, `rate`, `body` | names and sites, callers behind proxies, how often, how large and how slow |
//! | `refusal`, `request_id` | a request that no handler sees, in its caller's words; the id of a request |
//! | `sign_in`, `random` | people with a browser: a cookie for a token |
//! | [`tls`], `connection` | the certificate, read again when it changes; connections that say nothing |
//! | [`options`] | what a server may use, and what it waits for |
//! | [`listen`] | which addresses it may listen on |
//! | [`server`] | connections: how many, how they begin, how they end |
//! | `grpc` | each call of the protocol as a call of the store |
//! | `wake` | which waiting workers are woken when there is work |
//! | `maintain` | sweeping: what is over ends, schedules fire |
//! | `http` | is it alive, is it ready |
//! | [`route`] | each path and method, and what its caller must be allowed to do |
//! | `shared` | what the handlers share |
//! | `api` | the calls of the store as HTTP and JSON |
//! | `page` | the page for people |
//! | `metrics` | numbers for monitoring |
//!
//! gRPC and HTTP share one port: an axum router has the routes of both, and a connection of either version of HTTP is
//! served by it.

mod api;
mod body;
mod caller;
mod connection;
mod gate;
mod grpc;
mod guarded;
mod http;
pub mod listen;
mod maintain;
mod metrics;
pub mod options;
mod origin;
mod page;
mod peer;
mod random;
mod rate;
mod refusal;
mod request_id;
mod rights;
pub mod route;
pub mod server;
mod shared;
mod sign_in;
pub mod tls;
mod tokens;
mod wake;

pub use listen::{bind, bind_with};
pub use options::Options;
pub use peer::Cidr;
pub use route::{Needs, Route};
pub use server::{Server, Stopper, listed};
pub use tls::TlsFiles;
