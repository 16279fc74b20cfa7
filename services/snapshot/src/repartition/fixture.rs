//! Fixture: a store of two partitions, of which a version has three, on a log in memory.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::catalog::{Catalog, ControlRecord};
use forebay_core::change::EntryBody;
use forebay_core::clock::SystemClock;
use forebay_core::entropy::SystemEntropy;
use forebay_core::id::{Offset, PartitionCount, PartitionRef, SchemaVersion, StoreId};
use forebay_core::key::KeyType;
use forebay_core::schema::{Definition, StoreSpec};
use forebay_entries::{CatalogFollower, open_log};
use forebay_log::{MemoryLog, SingleMember};
use forebay_runtime::ServiceContext;
use forebay_snapshot::SnapshotStore;

use crate::context::{SnapshotOptions, SnapshotParts};
use crate::definitions::append;

pub(super) fn users() -> Definition {
    StoreSpec::documents("users", KeyType::Int64).partitions(2).define(StoreId(1)).unwrap()
}

pub(super) fn parts(folder: &tempfile::TempDir) -> SnapshotParts {
    let snapshots = format!("file://{}", folder.path().display());
    let mut catalog = Catalog::default();
    catalog.apply(ControlRecord::Define(Box::new(users())));
    SnapshotParts {
        context: ServiceContext {
            log: Arc::new(MemoryLog::new(Arc::new(SystemClock))),
            catalog: Arc::new(CatalogFollower::standing(catalog)),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            membership: Arc::new(SingleMember::default()),
            snapshots: None,
        },
        replicators: Arc::new(String::new()),
        snapshots: SnapshotStore::open(&snapshots).unwrap(),
        options: SnapshotOptions::new(Duration::from_secs(60), 1).unwrap(),
    }
}

pub(super) async fn append_heartbeat(parts: &SnapshotParts, at: PartitionRef) {
    let (log, entropy) = (&*parts.context.log, &*parts.context.entropy);
    let log_id = open_log(log, entropy, at).await.unwrap();
    append(parts, at, log_id, SchemaVersion(1), EntryBody::Heartbeat).await.unwrap();
}

/// Returns a definition with a version of three partitions. The logs of both versions end at
/// offset 5; the entries from the offsets 2 and 3 of the first two are forwarded.
pub(super) async fn create_repartition(parts: &SnapshotParts) -> Definition {
    let (first, start_offsets) = (users(), vec![Offset(2), Offset(3)]);
    let definition =
        first.with_repartitioned_version(StoreId(8), PartitionCount(3), start_offsets).unwrap();
    for logs in [first.write_logs(), definition.versions.newest().logs] {
        parts.context.log.create(logs.store, logs.partitions).await.unwrap();
        for at in logs.all() {
            for _ in 0..4 {
                append_heartbeat(parts, at).await;
            }
        }
    }
    definition
}
