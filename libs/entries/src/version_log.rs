//! The logs of a store as one version of its documents follows them: under the store id of the
//! version, and from the offset at which the version was pushed.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::id::{Offset, PartitionCount, PartitionRef, StoreId};
use forebay_core::schema::Definition;
use forebay_core::versions::StoreVersion;
use forebay_core::{Error, Result};
use forebay_log::{AppendReceipt, Bounds, ChangeLog, ReadLimit, Records};

/// Returns the logs that a version of a store's documents follows, as given by the version's
/// definition. To their readers, the logs appear trimmed to the start of the version. If the
/// version is stored under the store's own id, the function returns the logs unchanged.
pub fn follow_version(log: Arc<dyn ChangeLog>, definition: &Definition) -> Arc<dyn ChangeLog> {
    let logs = definition.logs().store;
    if definition.store == logs {
        return log;
    }
    let version = definition.versions.by_storage_id(definition.store).cloned();
    Arc::new(VersionLog { log, logs, storage_id: definition.store, version })
}

struct VersionLog {
    log: Arc<dyn ChangeLog>,
    logs: StoreId,
    storage_id: StoreId,
    /// `None` once the version was dropped.
    version: Option<StoreVersion>,
}

impl VersionLog {
    fn at(&self, at: PartitionRef) -> PartitionRef {
        let store = if at.store == self.storage_id { self.logs } else { at.store };
        PartitionRef { store, ..at }
    }

    fn start_offset(&self, at: PartitionRef) -> Offset {
        let version = self.version.as_ref().filter(|_| at.store == self.storage_id);
        version.map_or(Offset(0), |version| version.start_offset(at.partition))
    }

    fn bounded(&self, at: PartitionRef, bounds: Bounds) -> Bounds {
        Bounds { start: bounds.start.max(self.start_offset(at)), ..bounds }
    }
}

#[async_trait]
impl ChangeLog for VersionLog {
    async fn create(&self, store: StoreId, partitions: PartitionCount) -> Result<()> {
        self.log.create(store, partitions).await
    }

    async fn delete(&self, store: StoreId) -> Result<()> {
        self.log.delete(store).await
    }

    async fn append(&self, at: PartitionRef, entry: Bytes) -> Result<AppendReceipt> {
        self.log.append(self.at(at), entry).await
    }

    async fn read(&self, at: PartitionRef, from: Offset, limit: ReadLimit) -> Result<Records> {
        if from < self.start_offset(at) {
            let bounds = self.bounds(at).await?;
            bounds.check(at, from)?;
        }
        self.log.read(self.at(at), from, limit).await
    }

    async fn bounds(&self, at: PartitionRef) -> Result<Bounds> {
        Ok(self.bounded(at, self.log.bounds(self.at(at)).await?))
    }

    async fn trim(&self, at: PartitionRef, before: Offset) -> Result<()> {
        if at.store != self.storage_id {
            return self.log.trim(at, before).await;
        }
        let message = "the log of a version is the store's log, which other versions follow too; \
            trim the store's log instead";
        Err(Error::unsupported(message).with_partition(at.partition))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use forebay_core::ErrorCode;
    use forebay_core::clock::SystemClock;
    use forebay_core::id::PartitionId;
    use forebay_core::key::KeyType;
    use forebay_core::schema::StoreSpec;
    use forebay_log::MemoryLog;

    use super::*;

    const LIMIT: ReadLimit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::ZERO };

    #[tokio::test]
    async fn version_sees_the_log_of_its_store_trimmed_to_its_beginning() {
        let log: Arc<dyn ChangeLog> = Arc::new(MemoryLog::new(Arc::new(SystemClock)));
        let first =
            StoreSpec::documents("users", KeyType::Int64).partitions(1).define(StoreId(1)).unwrap();
        log.create(StoreId(1), first.partitions).await.unwrap();
        let at = |store| PartitionRef { store: StoreId(store), partition: PartitionId(0) };
        for number in 0..5_u8 {
            log.append(at(1), Bytes::from(vec![number])).await.unwrap();
        }
        let definition = first.with_version(StoreId(8), vec![Offset(3)]).unwrap();
        let version_definition = Definition { store: StoreId(8), ..definition.clone() };
        let version_log = follow_version(Arc::clone(&log), &version_definition);
        assert_eq!(version_log.bounds(at(8)).await.unwrap().start, Offset(3));
        assert_eq!(version_log.bounds(at(1)).await.unwrap().start, Offset(0));
        let read = version_log.read(at(8), Offset(3), LIMIT).await.unwrap();
        assert_eq!(read.records.len(), 2);
        let error = version_log.read(at(8), Offset(2), LIMIT).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::TokenLost);
        version_log.append(at(8), Bytes::from(vec![5])).await.unwrap();
        assert_eq!(log.bounds(at(1)).await.unwrap().end, Offset(6));
        let error = version_log.trim(at(8), Offset(4)).await.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Unsupported);

        let plain = follow_version(Arc::clone(&log), &definition);
        assert_eq!(plain.bounds(at(1)).await.unwrap().start, Offset(0));
        plain.trim(at(1), Offset(2)).await.unwrap();
    }
}
