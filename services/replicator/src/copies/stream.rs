//! Messages of one range of a frozen shard: its rows, compressed while that pays off, or the bytes
//! of a file.

use bytes::Bytes;
use forebay_core::Result;
use forebay_core::limits::COPY_BLOCK_BYTES;
use forebay_core::rows_digest::RowsDigest;
use forebay_shard::{Export, PartEnd};
use forebay_wire::shard_copy::RowsBlock;
use forebay_wire::v1;
use lz4_flex::block::{compress_into, get_maximum_output_size};
use tokio::sync::mpsc;
use tonic::Status;

/// Capacity of a block of rows of usual size in bytes; the last row of a block exceeds the block
/// size.
const BLOCK_BYTES: usize = COPY_BLOCK_BYTES + COPY_BLOCK_BYTES / 8;
/// Number of blocks sent uncompressed after a block that compression has not made smaller.
const BLOCKS_LEFT_OUT: u32 = 15;
/// A block is sent compressed if its compressed size is below this percentage of its size.
const WORTH_PERCENT: usize = 85;

/// Channel to the stream that sends the messages.
pub(super) type Sender = mpsc::Sender<Result<v1::CopyBlock, Status>>;

/// Reads the requested range to its end, or until the receiver has gone; calls `note_block` after
/// each block.
///
/// # Errors
/// As [`Export::rows`] and [`Export::file`], and disk errors.
pub(super) fn read_range(
    export: &Export,
    request: &v1::CopyRowsRequest,
    sender: &Sender,
    note_block: impl Fn(),
) -> Result<()> {
    let range = request.range as usize;
    if export.plan().files.is_empty() {
        let mut rows = export.rows(range, request.behind.as_deref())?;
        let mut compression = Compression::default();
        return send(sender, || {
            let mut block = RowsBlock::with_capacity(BLOCK_BYTES);
            let end = rows.next(&mut block)?;
            note_block();
            let length = block.bytes().len();
            Ok((compression.pack(block.into_bytes()), length, end))
        });
    }
    // Table files are compressed already.
    let mut file = export.file(range, request.behind_bytes)?;
    send(sender, || {
        let (block, end) = file.next_block()?;
        note_block();
        let length = block.len();
        Ok((block.into(), length, end))
    })
}

/// Sends block by block. `next` returns the bytes to send, the uncompressed length, and the end of
/// a part, if the block ends one.
fn send(
    sender: &Sender,
    mut next: impl FnMut() -> Result<(Bytes, usize, Option<PartEnd>)>,
) -> Result<()> {
    loop {
        let (block, raw_bytes, end) = next()?;
        let is_over = end.is_some_and(|end| end.is_range_end);
        let message = v1::CopyBlock {
            crc32c: crc32c::crc32c(&block),
            block,
            // A block ends after the row that fills a MiB, and rows are far below 4 GiB.
            raw_bytes: raw_bytes as u32,
            part_end: end.map(part_end),
        };
        if sender.blocking_send(Ok(message)).is_err() || is_over {
            return Ok(());
        }
    }
}

fn part_end(end: PartEnd) -> v1::CopyPartEnd {
    let PartEnd { digest: RowsDigest { rows, sum }, is_range_end } = end;
    v1::CopyPartEnd { rows, digest: sum.to_le_bytes().to_vec().into(), is_range_end }
}

/// Compressor of one stream of blocks.
#[derive(Default)]
pub(super) struct Compression {
    left_out: u32,
    buffer: Vec<u8>,
}

impl Compression {
    /// Returns a block in the form in which it is sent.
    pub fn pack(&mut self, block: Vec<u8>) -> Bytes {
        if self.left_out > 0 {
            self.left_out -= 1;
            return block.into();
        }
        self.buffer.resize(get_maximum_output_size(block.len()), 0);
        match compress_into(&block, &mut self.buffer) {
            Ok(length) if length * 100 < block.len() * WORTH_PERCENT => {
                Bytes::copy_from_slice(&self.buffer[..length])
            }
            _ => {
                self.left_out = BLOCKS_LEFT_OUT;
                block.into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::entropy::{Entropy, SeededEntropy};
    use forebay_wire::shard_copy::block_of;

    use super::*;

    fn unpack(block: Bytes, raw_bytes: u32) -> Result<Bytes> {
        let crc32c = crc32c::crc32c(&block);
        block_of(&v1::CopyBlock { block, raw_bytes, crc32c, part_end: None })
    }

    #[test]
    fn packed_bytes_unpack_to_the_original() {
        let mut compression = Compression::default();
        let plain = vec![7; 100_000];
        let packed = compression.pack(plain.clone());
        assert!(packed.len() < 2_000);
        assert_eq!(unpack(packed.clone(), 100_000).unwrap(), plain);
        assert!(unpack(packed.clone(), 100_001).is_err());
        assert!(unpack(packed.slice(..packed.len() - 1), 100_000).is_err());
        assert!(unpack(packed, u32::MAX).is_err());
        assert_eq!(unpack(compression.pack(vec![]), 0).unwrap(), &b""[..]);
    }

    #[test]
    fn incompressible_bytes_are_sent_plain_for_a_while() {
        let mut compression = Compression::default();
        let entropy = SeededEntropy::new(1);
        let random: Vec<_> = (0..10_000).map(|_| entropy.next_u64().unwrap() as u8).collect();
        for _ in 0..20 {
            assert_eq!(compression.pack(random.clone()), random);
        }
        let plain = vec![7; 10_000];
        let sizes: Vec<_> = (0..32).map(|_| compression.pack(plain.clone()).len()).collect();
        assert!(sizes.iter().filter(|size| **size == 10_000).count() < 16, "{sizes:?}");
    }
}
