//! PostgreSQL 18 passes the conformance suite for a role that may only call the doors, at SERIALIZABLE by default, with a
//! connection that listens.

mod fixtures;

qo_testkit::conformance!(fixtures::Schemas::on("QO_TEST_POSTGRES_18").worker_at("serializable").listening());
