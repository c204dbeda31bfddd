//! The log on a directory passes the conformance suite, with everything on the disk before it is acknowledged.

mod fixtures;

qo_testkit::conformance!(fixtures::Logs::on_a_directory());
