//! Creation of shared copies: of those that do not exist yet, and of those that cannot be used.

use forebay_core::id::{PartitionId, StoreId};
use forebay_core::replica_state::Phase;
use forebay_core::{ErrorCode, Result};
use xxhash_rust::xxh3::xxh3_64;

use super::directory::SharedCopyDirectory;
use super::header_file::{HeaderDescription, HeaderFile, PublishedWords, boot_id};
use super::spaces::{Spaces, header_to_write};
use crate::generation::Generation;
use crate::header_words::Status;
use crate::key::SeededHash;
use crate::memory::file_error;

/// Ensures that a partition has a header of this boot.
pub(crate) fn make(
    directory: &SharedCopyDirectory,
    store: StoreId,
    partition: PartitionId,
    hash: SeededHash,
    addresses: u64,
) -> Result<()> {
    let path = directory.header(store, partition);
    match header_to_write(directory, store, partition) {
        Ok((published, spaces)) => return keep_or_begin(&published, &spaces, hash, addresses),
        Err(error) if error.code() == ErrorCode::Unavailable => return Err(error),
        Err(_) => {}
    }
    let mut salt = hash.seed().to_le_bytes().to_vec();
    salt.extend(path.as_os_str().as_encoded_bytes());
    salt.extend(std::process::id().to_le_bytes());
    let memory_dir = directory.memory_dir.clone();
    let description = HeaderDescription { boot: boot_id(), token: xxh3_64(&salt), memory_dir };
    let spaces = Spaces::new(directory, &description, store, partition);
    let space = spaces.create(0, hash, addresses, None)?;
    let new_path = path.with_extension("new");
    let header = HeaderFile::create(&new_path, description)?;
    let words = header.words();
    words.publish(&Status { generation: space.generation, ..Status::START });
    words.store_generation(space.generation);
    std::fs::rename(&new_path, &path).map_err(|error| file_error("name", &path, &error))
}

/// Leaves a copy as it is if its space exists. The space may be gone: the memory file system of a
/// container, for example, ends with the container.
fn keep_or_begin(
    published: &PublishedWords,
    spaces: &Spaces,
    hash: SeededHash,
    addresses: u64,
) -> Result<()> {
    match spaces.open(published.load_generation(), false) {
        Ok(_) => Ok(()),
        Err(error) if error.code() == ErrorCode::Unavailable => Err(error),
        Err(_) => begin_empty(published, spaces, hash, addresses).map(drop),
    }
}

/// Replaces a space that cannot be used by an empty one.
pub(super) fn begin_empty(
    published: &PublishedWords,
    spaces: &Spaces,
    hash: SeededHash,
    addresses: u64,
) -> Result<Generation> {
    let previous = published.load_generation();
    let empty = Generation::new_in(spaces.create(previous, hash, addresses, None)?);
    published.store_phase_release(Phase::Bootstrapping);
    let turn = published.prepare(&empty.status());
    published.store_generation(empty.space.generation);
    published.take_turn(turn);
    spaces.remove(previous);
    Ok(empty)
}
