//! The rule book in memory passes the conformance suite.

qo_testkit::conformance!(qo_testkit::MemoryFixtures);
