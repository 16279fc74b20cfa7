//! The benchmark of streams and views: bi(OS)' run of events and selects, open, beside what the
//! disk allows; the fold alone; how fresh emitted values are; and inserts on Kafka beside a raw
//! producer.
//!
//! Each module is one part of it; the test runs all with a handful of rows.

pub mod clients;
pub mod data;
pub mod figures;
pub mod fold;
pub mod kafka;
pub mod load;
pub mod node;
pub mod run;
pub mod selects;
pub mod stretch;
