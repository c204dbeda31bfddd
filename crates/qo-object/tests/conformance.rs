//! The log passes the conformance suite, with calls that alternate between two processes.

mod fixtures;

qo_testkit::conformance!(fixtures::Logs::in_memory());
