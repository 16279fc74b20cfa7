//! Readers that share a directory of the real disk.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_log::disk::RealDisk;
use forebay_reader::{CheckpointOptions, ReaderOptions, ReaderParts};

use super::World;

/// The longest wait in these tests.
pub const LONG: Duration = Duration::from_secs(60);

/// Returns options with the documents in the same directory, where tests look for them.
pub fn options(world: &World, dir: &Path) -> ReaderOptions {
    let checkpoint = CheckpointOptions::new(dir).memory_dir(None);
    world.options().checkpoint(checkpoint)
}

pub fn parts(world: &World) -> ReaderParts {
    ReaderParts { disk: Some(Arc::new(RealDisk)), ..world.parts() }
}

/// Deletes the shared copies of a directory and leaves its checkpoints, as a restart of the machine
/// does.
pub fn forget_copies(dir: &Path) {
    for path in std::fs::read_dir(dir).unwrap().map(|name| name.unwrap().path()) {
        if path.extension().is_none_or(|extension| extension != "checkpoint") {
            std::fs::remove_file(path).unwrap();
        }
    }
}
