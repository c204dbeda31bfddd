//! qo over the network: the protocol that `qo serve` speaks, and [`RemoteStore`], a [`Store`](qo_core::Store) that
//! speaks it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`pb`] | the messages and the service, generated from `proto/qo/v1/` |
//! | `convert` | from the types of qo-core to messages and back |
//! | [`status`] | kinds of errors as statuses of gRPC and HTTP: the one table |
//! | [`methods`] | every method, and whether it changes something |
//! | [`limits`] | how large a message may be, from the caps of qo-core |
//! | [`address`] | `http://host:port,host:port` |
//! | [`remote`] | the store: calls, failover, wake-ups |
//!
//! The protocol is told at the top of `proto/qo/v1/queue.proto`, for people who write a client in any language.

pub mod address;
mod convert;
pub mod limits;
pub mod methods;
#[allow(missing_docs, unused_qualifications, clippy::all)] // Generated; the `.proto` files have the documentation.
pub mod pb {
    tonic::include_proto!("qo.v1");

    /// The protocol as it describes itself: for reflection, and for the test that refuses breaking changes.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
}
pub mod remote;
pub mod served;
pub mod status;

pub use address::Addresses;
pub use remote::{Options, RemoteStore};

/// The level of the protocol that this release speaks.
///
/// It grows only when releases of one level cannot understand those of another; new calls and fields do not raise it.
pub const LEVEL: u32 = 1;

/// The lowest level that a server of this release understands.
pub const LEVEL_MIN: u32 = 1;
