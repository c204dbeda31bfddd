//! Connections that fail: they hang, they are lost, none is left, the server restarts or another takes its place. In
//! every case a caller learns in time what to do, nothing happens twice, and the store recovers by itself.

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod crowded;
mod encrypted;
mod failover;
mod hanging;
mod lost;
mod notified;
mod own;
mod proxy;
mod restart;
mod server;
mod stage;
mod worker;
