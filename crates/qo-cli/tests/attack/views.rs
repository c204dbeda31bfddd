//! What people are told when a worker has died.
