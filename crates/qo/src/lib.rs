//! qo: a client and a worker, on any store.
//!
//! | module | what it holds |
//! |---|---|
//! | [`mod@connect`] | from a URL to a [`Store`] |
//! | [`client`], [`submit`] | submitting jobs, waiting for them |
//! | [`handler`], [`context`], [`failure`] | functions that run jobs: what they get, what they return |
//! | [`worker`] | the worker: one session, one loop of exchanges, handlers under supervision |
//! | [`program`], [`guard`] | any executable as a task, and the process that kills it before it outlives its lease |
//! | [`metrics`] | what a worker counts |
//! | [`doctor`] | is a store whole, and how does a damaged one get going again |
//! | [`migrate`] | the version of a store, and raising it |
//! | [`bucket`] | a bucket: its requests, which are what it costs |
//! | [`postgres`] | PostgreSQL: its store, opened with options of your own, and its transactions |
//! | [`settings`] | what `.qo.toml`, the environment and flags say |

pub mod bucket;
pub mod client;
pub mod connect;
pub mod context;
pub mod doctor;
pub mod failure;
pub mod guard;
pub mod handler;
pub mod metrics;
pub mod migrate;
pub mod postgres;
pub mod program;
pub mod settings;
pub mod submit;
pub mod worker;

pub use client::Client;
pub use connect::{connect, connect_to_submit, slot_objects};
pub use context::{CancelReason, Context};
pub use failure::{Failure, IntoFailure};
pub use handler::{Handler, TaskConfig};
pub use metrics::Metrics;
pub use qo_core as core;
pub use qo_core::{Acquire, ConcurrencyManager, HeldSlot};
pub use qo_core::{Error, ErrorKind, Result, Store};
pub use qo_object::SlotObjects;
pub use settings::Settings;
pub use submit::Submit;
pub use worker::{ShutdownHandle, Worker, WorkerBuilder, WorkerOptions};

/// Compiles the example of the project's README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
