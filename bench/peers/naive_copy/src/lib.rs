//! The naive copy: a copy of a RocksDB shard as the XDP-Rocks source does it, as the peer of
//! Forebay's copies. A single iterator reads, frames go through 64 KiB of buffer into one socket,
//! and each row is one `put` without the engine's log. The loop compares nothing, and cannot be
//! resumed.

use std::io::{BufReader, BufWriter, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DB, DBCompressionType, Options, ReadOptions,
    WriteOptions,
};

/// Buffer bytes of either end.
const BUFFER_BYTES: usize = 64 * 1024;
/// Marker after the last row: a length that no key has.
const END: u32 = u32::MAX;
/// Longest key or value that the target takes.
const BYTES_MAX: u32 = 64 << 20;

/// An error that ends a copy early.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Size of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopySize {
    /// Number of rows.
    pub rows: u64,
    /// Bytes of the keys and values.
    pub bytes: u64,
}

/// Returns the settings of both ends: those of a shard in a node with its default memory, which a
/// test compares.
#[must_use]
pub fn options() -> Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&Cache::new_lru_cache(64 << 20));
    blocks.set_bloom_filter(10.0, false);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    blocks.set_partition_filters(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    let mut options = Options::default();
    options.set_block_based_table_factory(&blocks);
    options.create_if_missing(true);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_bottommost_compression_type(DBCompressionType::Zstd);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_write_buffer_size(32 << 20);
    options.set_max_open_files(256);
    options
}

/// Sends all rows of the database in this folder, which no process writes to, to the first
/// connection.
///
/// # Errors
/// Fails if the database or the connection fails.
pub fn send(folder: &Path, listener: &TcpListener) -> Result<CopySize, Failure> {
    let db = DB::open_for_read_only(&options(), folder, false)?;
    let (socket, _) = listener.accept()?;
    socket.set_nodelay(true)?;
    let mut writer = BufWriter::with_capacity(BUFFER_BYTES, socket);
    let mut reading = ReadOptions::default();
    reading.fill_cache(false);
    let mut rows = db.raw_iterator_opt(reading);
    rows.seek_to_first();
    let mut copied = CopySize::default();
    while let Some((key, value)) = rows.item() {
        for bytes in [key, value] {
            writer.write_all(&u32::try_from(bytes.len())?.to_le_bytes())?;
            writer.write_all(bytes)?;
            copied.bytes += bytes.len() as u64;
        }
        copied.rows += 1;
        rows.next();
    }
    rows.status()?;
    writer.write_all(&END.to_le_bytes())?;
    writer.flush()?;
    Ok(copied)
}

/// Puts all received rows into a new database in this folder. The caller must close the returned
/// database, which flushes the last rows.
///
/// # Errors
/// Fails if the database or the connection fails, or the input does not end.
pub fn receive(folder: &Path, source: TcpStream) -> Result<(CopySize, DB), Failure> {
    let db = DB::open(&options(), folder)?;
    let mut writing = WriteOptions::default();
    writing.disable_wal(true);
    let mut from = BufReader::with_capacity(BUFFER_BYTES, source);
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let mut copied = CopySize::default();
    while read(&mut from, &mut key)? {
        if !read(&mut from, &mut value)? {
            return Err("a key without a value".into());
        }
        db.put_opt(&key, &value, &writing)?;
        copied.rows += 1;
        copied.bytes += (key.len() + value.len()) as u64;
    }
    Ok((copied, db))
}

/// Reads a key or a value; returns whether there is one.
fn read(from: &mut impl Read, buffer: &mut Vec<u8>) -> Result<bool, Failure> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length == END {
        return Ok(false);
    }
    if length > BYTES_MAX {
        return Err(format!("{length} bytes in one piece").into());
    }
    buffer.resize(length as usize, 0);
    from.read_exact(buffer)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn target_receives_every_row_of_the_source() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let db = DB::open(&options(), from.path()).unwrap();
        // The source would end at an empty key.
        db.put(b"", b"empty").unwrap();
        for number in 0..10_000_u32 {
            db.put(number.to_le_bytes(), vec![number as u8; number as usize % 300]).unwrap();
        }
        drop(db);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let folder = from.path().to_owned();
        let sending = thread::spawn(move || send(&folder, &listener).unwrap());
        let socket = TcpStream::connect(address).unwrap();
        let (copied, db) = receive(to.path(), socket).unwrap();
        assert_eq!(copied, sending.join().unwrap());
        assert_eq!(copied.rows, 10_001);
        assert_eq!(db.get(b"").unwrap().unwrap(), b"empty");
        assert_eq!(db.get(301_u32.to_le_bytes()).unwrap().unwrap(), [45]);
    }

    #[test]
    fn interrupted_copy_is_an_error() {
        let to = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        other.write_all(&[1, 0, 0, 0, b'k']).unwrap();
        drop(other);
        assert!(receive(to.path(), socket).is_err());
    }
}
