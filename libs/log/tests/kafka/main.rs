//! The log on Kafka, on one real broker that all tests of this binary share: held to the suite, and
//! to what only Kafka can do to it.

mod support;

use support::fixture;

use forebay_log::change_log_conformance;

change_log_conformance!(kafka, fixture);
