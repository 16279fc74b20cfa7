//! Proves that only one log at a time has a data directory open.

use std::sync::Arc;

use forebay_core::ErrorCode;
use forebay_log::disk::{Disk, RealDisk};
use forebay_log::embedded_log::{EmbeddedLog, EmbeddedOptions};

use super::{clock, code, open, sim_disk, sim_options};

#[tokio::test]
async fn directory_is_open_once_and_free_after_close() {
    let dir = tempfile::tempdir().unwrap();
    let options = EmbeddedOptions::new(dir.path());
    let open = || EmbeddedLog::open(Arc::new(RealDisk), clock(), options.clone());
    let first = open().await.unwrap();
    assert_eq!(code(open().await.map(|_| ())), ErrorCode::Conflict);
    // The refused open must not have released the first log's lock.
    assert_eq!(code(open().await.map(|_| ())), ErrorCode::Conflict);
    first.close().await;
    let second = open().await.unwrap();
    drop(first);
    assert_eq!(code(open().await.map(|_| ())), ErrorCode::Conflict);
    second.close().await;
}

#[tokio::test]
async fn lock_ends_with_its_holder_or_the_power() {
    let disk = sim_disk(1);
    let log = open(&disk, sim_options()).await.unwrap();
    assert_eq!(code(open(&disk, sim_options()).await.map(|_| ())), ErrorCode::Conflict);
    disk.power_cut(forebay_log::disk::sim::Loss::Everything);
    let second = open(&disk, sim_options()).await.unwrap();
    drop(log);
    assert_eq!(code(open(&disk, sim_options()).await.map(|_| ())), ErrorCode::Conflict);
    second.close().await;
    open(&disk, sim_options()).await.unwrap();
}

#[test]
fn lock_file_is_locked_until_its_lock_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let lock = RealDisk.lock(&path).unwrap();
    let error = RealDisk.lock(&path).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    drop(lock);
    RealDisk.lock(&path).unwrap();
}
