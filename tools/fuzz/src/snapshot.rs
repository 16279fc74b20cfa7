//! Snapshots and backups: manifests, the messages in them, chunks, rows of deltas, and logs.

use bytes::Bytes;
use forebay_snapshot::{
    Backup, ChunkId, DeltaBlocks, LogBlocks, Manifest, decode_chunk, delta_rows, kept_records,
};
use forebay_wire::v1;
use prost::Message;

/// Decodes the input: kind u8, modulo 6, then the bytes of a manifest, the message in a manifest, a
/// chunk's object, a delta's chunk, a backup, or a log's chunk.
///
/// # Panics
/// Panics if decoded data does not encode to its own bytes.
pub fn snapshot_decode(input: &[u8]) {
    let Some((mode, rest)) = input.split_first() else { return };
    match mode % 6 {
        0 => drop(Manifest::decode(rest).map(|manifest| check_round_trip(&manifest))),
        1 => {
            let Ok(message) = v1::SnapshotManifest::decode(rest) else { return };
            drop(Manifest::try_from(message).map(|manifest| check_round_trip(&manifest)));
        }
        2 => {
            // The bytes of a plain chunk: their hash is known, so only the frame decides.
            let id = ChunkId::of(rest.get(16..).unwrap_or_default(), 1);
            if let Ok(bytes) = decode_chunk(&id, &Bytes::copy_from_slice(rest)) {
                assert_eq!(ChunkId::of(&bytes, 1), id);
            }
        }
        3 => {
            let mut blocks = DeltaBlocks::default();
            let mut encoded = Vec::new();
            for row in delta_rows(rest).map_while(Result::ok) {
                encoded.extend(blocks.push(row.0, row.1).unwrap_or_default());
            }
            encoded.extend(blocks.take().unwrap_or_default());
            assert!(rest.starts_with(&encoded));
        }
        4 => {
            if let Ok(backup) = Backup::decode(rest) {
                let object = backup.encode().unwrap();
                assert_eq!(Backup::decode(&object).unwrap().encode().unwrap(), object);
            }
        }
        _ => {
            let mut blocks = LogBlocks::default();
            let mut encoded = Vec::new();
            for record in kept_records(rest).map_while(Result::ok) {
                encoded.extend(blocks.push(record).unwrap_or_default());
            }
            encoded.extend(blocks.take().unwrap_or_default());
            assert!(rest.starts_with(&encoded));
        }
    }
}

fn check_round_trip(manifest: &Manifest) {
    // Compared by bytes, because a NaN default differs from itself.
    let object = manifest.encode().unwrap();
    assert_eq!(Manifest::decode(&object).unwrap().encode().unwrap(), object);
}
