//! qo: a client and a worker, on any store.
//!
//! | module | what it holds |
//! |---|---|
//! | [`connect`] | from a URL to a [`Store`] |
//! | [`settings`] | what `.qo.toml`, the environment and flags say |

pub mod connect;
pub mod settings;

pub use connect::{connect, connect_to_submit};
pub use qo_core as core;
pub use qo_core::{Error, ErrorKind, Result, Store};
pub use settings::Settings;
