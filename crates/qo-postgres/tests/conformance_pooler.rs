//! PostgreSQL passes the conformance suite through a pooler that gives every transaction another connection, at REPEATABLE
//! READ by default.

mod fixtures;

qo_testkit::conformance!(
    fixtures::Schemas::on("QO_TEST_POSTGRES_15").through("QO_TEST_PGBOUNCER").worker_at("repeatable read")
);
