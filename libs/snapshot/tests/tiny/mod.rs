//! Snapshots of a few bytes, built as a builder does it, for tests of their life cycle.

#![allow(dead_code)] // Each test binary uses a part of this module.

use forebay_core::clock::Timestamp;
use forebay_core::id::{
    Epoch, LogId, Offset, PartitionCount, PartitionId, PartitionRef, Position, SchemaVersion,
    StoreId,
};
use forebay_core::key::KeyType;
use forebay_core::replica_state::Progress;
use forebay_core::schema::StoreSpec;
use forebay_snapshot::{BaseLayer, ChunkId, Manifest, PartitionSnapshots};
use futures::TryStreamExt;

pub const AT: PartitionRef = PartitionRef { store: StoreId(7), partition: PartitionId(3) };
pub const LOG: LogId = LogId(0xfeed);

fn progress(offset: u64) -> Progress {
    Progress {
        position: Position { epoch: Epoch(1), offset: Offset(offset), index_in_entry: 0 },
        offset_applied: Offset(offset + 1),
        partition_time: Timestamp::from_micros(offset as i64),
        schema_version: SchemaVersion(1),
    }
}

/// Returns a manifest over these chunks, none of which is stored yet.
pub fn manifest(id: u64, offset: u64, chunks: Vec<ChunkId>) -> Manifest {
    let definition =
        StoreSpec::documents("users", KeyType::String).partitions(4).define(AT.store).unwrap();
    let progress = progress(offset);
    Manifest {
        id,
        at: AT,
        partitions: PartitionCount(4),
        store: "users".to_owned(),
        log_id: LOG,
        progress,
        definitions: vec![definition],
        base: BaseLayer { progress, documents: 5, chunks },
        deltas: Vec::new(),
    }
}

/// Builds a snapshot of these bytes, in chunks of four bytes, as a builder does it.
pub async fn build(
    to: &PartitionSnapshots,
    id: u64,
    offset: u64,
    bytes: &[u8],
) -> forebay_core::Result<Manifest> {
    let known_chunks = to.known_chunks().await?;
    let mut chunks = Vec::new();
    for bytes in bytes.chunks(4) {
        let chunk = ChunkId::of(bytes, id);
        match known_chunks.get(&chunk.hash) {
            Some(known_chunk) => chunks.push(*known_chunk),
            None => {
                to.put_chunk(chunk, bytes.to_vec().into()).await?;
                chunks.push(chunk);
            }
        }
    }
    let manifest = manifest(id, offset, chunks);
    to.publish(&manifest).await?;
    Ok(manifest)
}

pub async fn bytes_of(snapshots: &PartitionSnapshots, manifest: &Manifest) -> Vec<u8> {
    let chunks: Vec<_> =
        snapshots.chunks(manifest.base.chunks.clone()).try_collect().await.unwrap();
    chunks.concat()
}
