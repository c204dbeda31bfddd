//! qo: a client and a worker, on any store.
//!
//! | module | what it holds |
//! |---|---|
//! | [`connect`] | from a URL to a [`Store`] |

pub mod connect;

pub use connect::{connect, connect_to_submit};
pub use qo_core as core;
pub use qo_core::{Error, ErrorKind, Result, Store};
