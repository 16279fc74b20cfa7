//! Tests of the log on Kafka, on one real broker that all tests of this binary share: the
//! conformance suite, and events that only Kafka and its other users can cause.

mod flow_test;
mod foreign_records_test;
mod settings_test;
mod support;

use support::fixture;

use forebay_log::change_log_conformance;

change_log_conformance!(kafka, fixture);
