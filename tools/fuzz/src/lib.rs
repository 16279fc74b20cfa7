//! The promises of Forebay's decoders about arbitrary bytes, one function each; a broken promise
//! panics.
//!
//! Every function takes a fuzzer's input. The first byte selects the interpretation of the rest, so
//! that checksums and versions, which no fuzzer guesses, do not stop the fuzzer at the first check.

mod canary;
mod checkpoint;
mod copy;
mod edits;
mod entry;
mod journal;
mod key;
mod message;
mod row;
mod segment;
mod shard;
mod snapshot;
mod tile;
mod token;

pub use canary::canary;
pub use checkpoint::{checkpoint_restore, sound_checkpoint};
pub use copy::copy_decode;
pub use entry::entry_decode;
pub use journal::embedded_journal;
pub use key::key_decode;
pub use message::{MESSAGES, message_decode};
pub use row::{LAYOUT_NAMES, row_decode};
pub use segment::{embedded_segment, sound_segment};
pub use shard::{MODE_OF_ROW, mode_of_key, shard_rows};
pub use snapshot::snapshot_decode;
pub use tile::{tile_aggregates, tile_decode};
pub use token::token_decode;

/// A target and the name of its corpus folder.
pub type Target = (&'static str, fn(&[u8]));

/// All targets except the canary.
pub const TARGETS: [Target; 12] = [
    ("row_decode", row_decode),
    ("entry_decode", entry_decode),
    ("token_decode", token_decode),
    ("embedded_segment", embedded_segment),
    ("embedded_journal", embedded_journal),
    ("checkpoint_restore", checkpoint_restore),
    ("key_decode", key_decode),
    ("message_decode", message_decode),
    ("shard_rows", shard_rows),
    ("copy_decode", copy_decode),
    ("snapshot_decode", snapshot_decode),
    ("tile_decode", tile_decode),
];

/// Creates a runtime of the calling thread, with virtual time.
fn runtime() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().expect("a runtime")
}
