//! PostgreSQL passes the conformance suite, whoever of two processes is asked.

mod fixtures;

qo_testkit::conformance!(fixtures::Schemas::on("QO_TEST_POSTGRES"));
