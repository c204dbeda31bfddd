//! One file per command.

mod argument;
pub mod audit;
#[cfg(feature = "bench")]
pub mod bench;
pub mod completions;
pub mod concurrency;
pub mod config;
pub mod demo;
pub mod doctor;
pub mod explain;
pub mod jobs;
pub mod migrate;
pub mod queues;
pub mod schedules;
pub mod serve;
pub mod slot;
pub mod submit;
pub mod token;
pub mod wait;
pub mod worker;
pub mod workers;
pub mod workflows;
