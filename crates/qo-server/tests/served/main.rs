//! The store over the network: real TCP, real gRPC, servers in this process.

#[path = "../../../qo-object/tests/fixtures/mod.rs"]
mod logs;
#[path = "../../../qo-postgres/tests/fixtures/mod.rs"]
mod schemas;

mod calls;
mod cut;
mod http;
mod messages;
mod metrics;
mod moving;
mod protocol;
mod sizes;
mod stage;
mod worker;

/// The conformance suite, over gRPC.
mod on_a_directory {
    use crate::{logs::Logs, stage::Behind};

    qo_testkit::conformance!(Behind(Logs::on_a_directory()));
}

/// The same in front of PostgreSQL.
mod on_postgresql {
    use crate::{schemas::Schemas, stage::Behind};

    qo_testkit::conformance!(Behind(Schemas::on("QO_TEST_POSTGRES")));
}
