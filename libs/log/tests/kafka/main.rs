//! The log on Kafka, on one real broker that all tests of this binary share: held to the suite, and
//! to what only Kafka and those who use it can do to it.

mod flow_test;
mod others_test;
mod settings_test;
mod support;

use support::fixture;

use forebay_log::change_log_conformance;

change_log_conformance!(kafka, fixture);
