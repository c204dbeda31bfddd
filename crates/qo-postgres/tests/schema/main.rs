//! A schema: its doors, its words, its versions, and calls beside each other. In one program, because linking a program
//! takes longer than running most of them.

mod concurrency;
mod doors;
#[path = "../fixtures/mod.rs"]
mod fixtures;
mod interleaving;
mod migration;
mod words;
