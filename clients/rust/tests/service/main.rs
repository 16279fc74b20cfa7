//! The client and its reader against the real node, over a log in memory that a test can break.

mod admin_test;
mod coalescer_test;
#[path = "../common/mod.rs"]
mod common;
mod connection_test;
mod events_test;
mod fault_test;
mod follower;
mod gate;
mod kill_test;
mod ordered_reads_test;
mod owners_test;
mod select_test;
mod stream_test;
mod value_test;
mod world;
mod write_test;
