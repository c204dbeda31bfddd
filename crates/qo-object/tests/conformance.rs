//! The log passes the conformance suite, whoever of two processes is asked.

mod fixtures;

qo_testkit::conformance!(fixtures::Logs::in_memory());
