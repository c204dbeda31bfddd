//! What a server and a worker share of their metrics.
//!
//! | module | what it holds |
//! |---|---|
//! | [`exposition`] | the two text formats, and which of them a scraper gets |
//! | [`labels`] | at most so many values of a label |
//! | [`waits`] | how long jobs waited for a worker, by group |
//! | [`endpoint`] | `/metrics` of a process that serves nothing else |

pub mod endpoint;
pub mod exposition;
pub mod labels;
pub mod waits;

pub use endpoint::Endpoint;
pub use exposition::{Format, text};
pub use labels::{Labels, OTHER};
pub use waits::Waits;
