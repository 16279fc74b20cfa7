//! A log whose appends of changes stop at a gate while it is closed.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::Result;
use forebay_core::change::EntryBody;
use forebay_core::id::{Offset, PartitionCount, PartitionRef, StoreId};
use forebay_log::{Appended, Bounds, ChangeLog, ReadLimit, Records};
use forebay_wire::entry::decode_entry;
use tokio::sync::watch;

pub struct GatedLog {
    inner: Arc<dyn ChangeLog>,
    is_closed: watch::Sender<bool>,
}

impl GatedLog {
    pub fn new(inner: Arc<dyn ChangeLog>) -> Self {
        Self { inner, is_closed: watch::Sender::new(false) }
    }

    /// From now on appends of changes wait.
    pub fn close(&self) {
        self.is_closed.send_replace(true);
    }

    /// All that wait go on, and later ones do not wait.
    pub fn open(&self) {
        self.is_closed.send_replace(false);
    }
}

#[async_trait]
impl ChangeLog for GatedLog {
    async fn create(&self, store: StoreId, partitions: PartitionCount) -> Result<()> {
        self.inner.create(store, partitions).await
    }

    async fn delete(&self, store: StoreId) -> Result<()> {
        self.inner.delete(store).await
    }

    async fn append(&self, at: PartitionRef, entry: Bytes) -> Result<Appended> {
        if matches!(decode_entry(&entry)?.body, EntryBody::Changes(_)) {
            let mut gate = self.is_closed.subscribe();
            gate.wait_for(|is_closed| !is_closed).await.expect("the gate outlives the log");
        }
        self.inner.append(at, entry).await
    }

    async fn read(&self, at: PartitionRef, from: Offset, limit: ReadLimit) -> Result<Records> {
        self.inner.read(at, from, limit).await
    }

    async fn bounds(&self, at: PartitionRef) -> Result<Bounds> {
        self.inner.bounds(at).await
    }

    async fn trim(&self, at: PartitionRef, before: Offset) -> Result<()> {
        self.inner.trim(at, before).await
    }
}
