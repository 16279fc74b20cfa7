//! A small file that notes which store last had a name, so that a reader can open local files
//! while it queries the control log. The note is only a hint: the reader uses the opened files only
//! if the control log returns the same store. `proto/spec/shared-copy.md` defines the bytes.

use std::io;
use std::path::Path;

use forebay_core::id::{PartitionCount, StoreId};
use forebay_core::partition::xxh3_64;
use forebay_log::disk::Disk;

const MAGIC: [u8; 8] = *b"FBSTORE\0";
const VERSION: u32 = 1;
const BYTES_BEFORE_NAME: usize = 28;
const BYTES_MAX: usize = 4_096;

/// The store that last had a name. The partition count of a store id never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamedStore {
    /// Id of the store.
    pub store: StoreId,
    /// Number of its partitions.
    pub partitions: PartitionCount,
}

impl NamedStore {
    /// Reads the note of a name from the directory; `None` if there is no valid note.
    pub(crate) fn read(disk: &dyn Disk, dir: &Path, name: &str) -> Option<Self> {
        let file = disk.open(&dir.join(file_name(name))).ok()?;
        let mut bytes = vec![0; BYTES_MAX];
        let read = file.read_at(&mut bytes, 0).ok()?;
        decode(&bytes[..read], name)
    }

    /// Writes the note and replaces an older one. The write is not made durable: after a power cut
    /// the file either fails its checksum or is as good as the one written.
    pub(crate) fn write(&self, disk: &dyn Disk, dir: &Path, name: &str) -> io::Result<()> {
        let path = dir.join(file_name(name));
        let new_path = path.with_extension("new");
        // The file of a reader that was killed here, or of one that writes the same note now.
        drop(disk.remove(&new_path));
        disk.create(&new_path)?.write_at(&encode(self, name), 0)?;
        disk.rename(&new_path, &path)
    }
}

fn file_name(name: &str) -> String {
    format!("store-{:016x}", xxh3_64(name.as_bytes()))
}

fn encode(named: &NamedStore, name: &str) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(named.partitions.0.to_le_bytes());
    bytes.extend(named.store.0.to_le_bytes());
    bytes.extend((name.len() as u32).to_le_bytes());
    bytes.extend(name.as_bytes());
    bytes.extend(xxh3_64(&bytes).to_le_bytes());
    bytes
}

fn decode(bytes: &[u8], name: &str) -> Option<NamedStore> {
    let (store, partitions) = (bytes.get(16..24)?, bytes.get(12..16)?);
    let store = StoreId(u64::from_le_bytes(store.try_into().ok()?));
    let partitions = PartitionCount(u32::from_le_bytes(partitions.try_into().ok()?));
    let named = NamedStore { store, partitions };
    let is_it = bytes.len() == BYTES_BEFORE_NAME + name.len() + 8 && encode(&named, name) == bytes;
    is_it.then_some(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_note_round_trips_and_damage_is_refused() {
        let named = NamedStore { store: StoreId(77), partitions: PartitionCount(4) };
        let bytes = encode(&named, "users");
        assert_eq!(decode(&bytes, "users"), Some(named));
        assert_eq!(decode(&bytes, "other"), None);
        for place in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[place] ^= 1;
            assert_eq!(decode(&flipped, "users"), None, "byte {place}");
            assert_eq!(decode(&bytes[..place], "users"), None, "{place} bytes");
        }
    }
}
