//! Readers that write checkpoints to a simulated disk.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::entropy::SeededEntropy;
use forebay_log::disk::SimDisk;
use forebay_reader::{
    CheckpointCounts, CheckpointOptions, PartitionStatus, Reader, ReaderOptions, ReaderParts,
};

use super::{SECOND, World};

pub const DIR: &str = "/data/reader";

pub fn disk() -> SimDisk {
    SimDisk::new(Arc::new(SeededEntropy::new(3)))
}

pub fn options(world: &World) -> ReaderOptions {
    let checkpoint = CheckpointOptions::new(DIR).interval(SECOND);
    world.options().checkpoint(checkpoint)
}

pub fn parts(world: &World, disk: &SimDisk) -> ReaderParts {
    ReaderParts { disk: Some(Arc::new(disk.clone())), ..world.parts() }
}

pub async fn open(world: &World, disk: &SimDisk) -> Reader {
    Reader::open(options(world), parts(world, disk)).await.unwrap()
}

pub fn status(reader: &Reader) -> PartitionStatus {
    reader.status().partitions[0].clone()
}

pub fn counts(reader: &Reader) -> CheckpointCounts {
    status(reader).counts.checkpoints
}

/// Waits until the first partition is as wanted; the paused clock bounds the wait.
pub async fn wait_until(reader: &Reader, is_reached: impl Fn(&PartitionStatus) -> bool) {
    let wait = async {
        while !is_reached(&status(reader)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let outcome = tokio::time::timeout(120 * SECOND, wait).await;
    outcome.unwrap_or_else(|_| panic!("{:#?}", reader.status()));
}

/// Waits until a checkpoint of the applied data is durable.
pub async fn checkpointed(reader: &Reader) {
    let written_before = counts(reader).written;
    wait_until(reader, |status| status.counts.checkpoints.written > written_before).await;
}

/// Ends a reader as the end of its process would, and waits until its directory is free.
pub async fn end(reader: Reader) {
    drop(reader);
    tokio::time::sleep(Duration::from_millis(1)).await;
}

pub fn files(disk: &SimDisk) -> Vec<PathBuf> {
    let mut files = disk.files(DIR.as_ref()).unwrap();
    files.retain(|path| path.extension().is_none_or(|extension| extension != "lock"));
    files
}
