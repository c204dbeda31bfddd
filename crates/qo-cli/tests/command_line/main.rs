//! The command line as people and scripts use it: the real program, in directories of its own.

mod bad_input;
mod bucket;
mod disk;
#[allow(dead_code)]
mod fixture;
mod host;
mod metrics;
mod operate;
mod postgres;
mod python;
mod run;
mod serve;
mod settings;
mod slot;
mod submit;
mod telemetry;
