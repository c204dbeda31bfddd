//! PostgreSQL passes the conformance suite, with two processes that are called alternately.

mod fixtures;

qo_testkit::conformance!(fixtures::Schemas::on("QO_TEST_POSTGRES"));
