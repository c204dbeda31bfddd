//! Connections that fail: they hang, they are lost, there are none left, the server restarts or another takes its place.
//! Whatever happens, a caller hears in time what it must do, nothing happens twice, and the store goes on by itself.

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod crowded;
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
