//! Messages of one range of a frozen shard: its rows, or the bytes of a file.

use bytes::Bytes;
use forebay_core::Result;
use forebay_core::limits::COPY_BLOCK_BYTES;
use forebay_core::rows_digest::RowsDigest;
use forebay_shard::{Export, PartEnd};
use forebay_wire::shard_copy::RowsBlock;
use forebay_wire::v1;
use tokio::sync::mpsc;
use tonic::Status;

use super::compression::Compression;

/// Capacity of a block of rows of usual size in bytes; the last row of a block exceeds the block
/// size.
const BLOCK_BYTES: usize = COPY_BLOCK_BYTES + COPY_BLOCK_BYTES / 8;

/// Channel to the stream that sends the messages.
pub(super) type Sender = mpsc::Sender<Result<v1::CopyRows, Status>>;

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
        let message = v1::CopyRows {
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
