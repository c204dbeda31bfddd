//! A namespace on a directory: its log, what disturbs it, what repairs it. In one program, because linking a program
//! takes longer than running most of them.

mod bad_jobs;
mod doctor;
mod faults;
#[path = "../fixtures/mod.rs"]
mod fixtures;
mod foreign;
mod log;
mod namespace;
