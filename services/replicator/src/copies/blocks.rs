//! Blocks of a copy stream, checked and decompressed for the thread that writes them at the target.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use forebay_core::rows_digest::RowsDigest;
use forebay_core::{Error, Result};
use forebay_shard::{PartBlock, PartEnd, PartSource};
use forebay_wire::shard_copy::block_of;
use forebay_wire::v1;
use tokio::sync::mpsc;

/// Received blocks of one stream.
pub(super) struct Blocks {
    pub receiver: mpsc::Receiver<v1::CopyBlock>,
    /// Received bytes of rows, or of files, over all streams.
    pub received: Arc<AtomicU64>,
}

impl PartSource for Blocks {
    type Block = Bytes;

    fn next_block(&mut self) -> Result<PartBlock<Bytes>> {
        let rows = self.receiver.blocking_recv().ok_or_else(|| {
            Error::unavailable("the source of the copy ended the stream inside a part; copy again")
        })?;
        let bytes = block_of(&rows)?;
        self.received.fetch_add(rows.raw_bytes.into(), Ordering::Relaxed);
        let end = rows.part_end.as_ref().map(part_end).transpose()?;
        if rows.block.is_empty() && end.is_none() {
            return Err(Error::corrupt("the source of the copy sent an empty block; copy again"));
        }
        let was_compressed = rows.block.len() != rows.raw_bytes as usize;
        Ok(PartBlock { bytes, end, was_compressed })
    }
}

fn part_end(end: &v1::CopyPartEnd) -> Result<PartEnd> {
    let digest = RowsDigest::of(end.rows, &end.digest)?;
    Ok(PartEnd { digest, is_range_end: end.is_range_end })
}

#[cfg(test)]
mod tests {
    use forebay_core::ErrorCode;

    use super::*;

    /// Returns the error with which a target refuses a message that is damaged in transit.
    fn refusal_code(damage: impl FnOnce(&mut v1::CopyBlock)) -> ErrorCode {
        let block = Bytes::from_static(b"some rows");
        let (crc32c, raw_bytes) = (crc32c::crc32c(&block), block.len() as u32);
        let mut rows = v1::CopyBlock { block, raw_bytes, crc32c, part_end: None };
        damage(&mut rows);
        let (sender, receiver) = mpsc::channel(1);
        sender.try_send(rows).unwrap();
        let mut blocks = Blocks { receiver, received: Arc::default() };
        blocks.next_block().unwrap_err().code()
    }

    #[test]
    fn rows_damaged_in_transit_are_refused() {
        let corrupt = ErrorCode::Corrupt;
        assert_eq!(refusal_code(|rows| rows.block = Bytes::from_static(b"some rowS")), corrupt);
        assert_eq!(refusal_code(|rows| rows.crc32c ^= 1), corrupt);
        assert_eq!(refusal_code(|rows| rows.raw_bytes += 1), corrupt);
        assert_eq!(refusal_code(|rows| rows.part_end = Some(v1::CopyPartEnd::default())), corrupt);
        assert_eq!(refusal_code(|rows| *rows = v1::CopyBlock::default()), corrupt);
    }
}
