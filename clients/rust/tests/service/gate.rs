//! A log with a gate: while the gate is closed, appends of changes wait.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::Result;
use forebay_core::change::EntryBody;
use forebay_core::id::{Offset, PartitionCount, PartitionId, PartitionRef, StoreId};
use forebay_log::{AppendReceipt, Bounds, ChangeLog, ReadLimit, Records};
use forebay_wire::entry::decode_entry;
use tokio::sync::watch;

pub struct GatedLog {
    inner: Arc<dyn ChangeLog>,
    scope: watch::Sender<GateScope>,
}

/// The appends of changes that wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GateScope {
    Nowhere,
    At(PartitionId),
    Everywhere,
}

impl GateScope {
    fn holds(self, at: PartitionRef) -> bool {
        match self {
            Self::Nowhere => false,
            Self::At(partition) => at.partition == partition,
            Self::Everywhere => true,
        }
    }
}

impl GatedLog {
    pub fn new(inner: Arc<dyn ChangeLog>) -> Self {
        Self { inner, scope: watch::Sender::new(GateScope::Nowhere) }
    }

    /// Closes the gate: from now on appends of changes wait.
    pub fn close(&self) {
        self.scope.send_replace(GateScope::Everywhere);
    }

    /// Closes the gate for appends of changes to this partition.
    pub fn close_at(&self, partition: PartitionId) {
        self.scope.send_replace(GateScope::At(partition));
    }

    /// Opens the gate: all waiting appends continue, and later ones do not wait.
    pub fn open(&self) {
        self.scope.send_replace(GateScope::Nowhere);
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

    async fn append(&self, at: PartitionRef, entry: Bytes) -> Result<AppendReceipt> {
        if matches!(decode_entry(&entry)?.body, EntryBody::Changes(_)) {
            let mut gate = self.scope.subscribe();
            gate.wait_for(|scope| !scope.holds(at)).await.expect("the gate outlives the log");
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
