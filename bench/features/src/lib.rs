//! The benchmark of streams and views: bi(OS)' run of events and selects, as an open load, compared
//! with what the disk allows; the fold alone; freshness of materialized values; and inserts on
//! Kafka compared with a raw producer.
//!
//! Each module is one part of the benchmark; the test runs all parts with a handful of rows.

pub mod clients;
pub mod data;
pub mod figures;
pub mod kafka;
pub mod latency_window;
pub mod load;
pub mod node;
pub mod run;
pub mod selects;
