//! The runtime inside one process: real workers on real stores.

mod bucket;
mod client;
mod endings;
mod faults;
mod handlers;
mod idle;
mod leases;
mod limits;
mod operator;
mod stage;
