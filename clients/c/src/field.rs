//! Resolved fields: a number in the reader's own table, combined with the reader's id, so that
//! callers need not close fields. Resolving the same field and type again returns the same number.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use forebay::reads::FieldHandle;
use forebay::{Error, Result};
use parking_lot::Mutex;

use crate::output::type_code;

const CHUNK_FIELDS: usize = 256;
const CHUNKS_MAX: usize = 256;
const NUMBER_BITS: u32 = 16;

type Chunk = Box<[OnceLock<FieldHandle>]>;

/// The fields that a reader's callers have resolved; the table only grows.
pub(crate) struct FieldTable {
    chunks: Box<[OnceLock<Chunk>]>,
    numbers: Mutex<BTreeMap<(u32, u32), u64>>,
}

impl FieldTable {
    pub(crate) fn new() -> Self {
        let chunks = (0..CHUNKS_MAX).map(|_| OnceLock::new()).collect();
        Self { chunks, numbers: Mutex::default() }
    }

    /// Returns the caller's number of a field of this reader.
    ///
    /// # Errors
    /// `LimitExceeded` beyond 65,536 different fields and types.
    pub(crate) fn keep(&self, reader: u64, handle: FieldHandle) -> Result<u64> {
        let mut numbers = self.numbers.lock();
        let next = numbers.len() as u64;
        let identity = (handle.field().0, type_code(handle.asked()));
        let number = match numbers.get(&identity) {
            Some(number) => *number,
            None => {
                let limit = CHUNK_FIELDS * CHUNKS_MAX;
                if next >= limit as u64 {
                    let message = "the reader has too many resolved fields; open another reader \
                        for other fields";
                    return Err(Error::limit_exceeded(message, limit as u64, next + 1));
                }
                let chunk = || (0..CHUNK_FIELDS).map(|_| OnceLock::new()).collect();
                let chunk = self.chunks[next as usize / CHUNK_FIELDS].get_or_init(chunk);
                chunk[next as usize % CHUNK_FIELDS].get_or_init(|| handle);
                numbers.insert(identity, next);
                next
            }
        };
        Ok((reader << NUMBER_BITS) | number)
    }

    /// Returns the field of a number; takes no lock.
    ///
    /// # Errors
    /// `InvalidArgument` for a number that does not come from this reader.
    pub(crate) fn get(&self, reader: u64, field: u64) -> Result<&FieldHandle> {
        let number = (field & ((1 << NUMBER_BITS) - 1)) as usize;
        let of_reader = field >> NUMBER_BITS == reader;
        let chunk = self.chunks[number / CHUNK_FIELDS].get().filter(|_| of_reader);
        chunk.and_then(|chunk| chunk[number % CHUNK_FIELDS].get()).ok_or_else(|| {
            Error::invalid_argument("the field is of another reader; resolve it on this one")
        })
    }
}
