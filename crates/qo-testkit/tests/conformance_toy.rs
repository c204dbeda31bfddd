//! The toy, written from the rules alone, passes the conformance suite as well: the cases test the rules and
//! not one implementation of them.

qo_testkit::conformance!(qo_testkit::ToyFixtures::default());
