//! One checkpoint file, written from front to end and read back the same way. Neither holds more
//! than a block of it in memory.

use std::io;
use std::sync::Arc;

use forebay_core::dedup::ClientWindow;
use forebay_core::id::{ClientId, PartitionId, Position};
use forebay_core::key::Key;
use forebay_core::limits::CHECKPOINT_BLOCK_BYTES_AIM;
use forebay_core::{Error, Result};
use forebay_index::PartitionWriter;
use forebay_log::disk::DiskFile;

use super::format::{
    BLOCK_HEAD_BYTES, Fields, HEADER_BYTES, Head, Items, Kind, damaged, decode_block_head,
    decode_header, encode_block_head, encode_end, encode_header, put_row, put_source, put_window,
};

/// The items of one block.
pub(crate) enum Block {
    Windows(Vec<(ClientId, ClientWindow)>),
    Sources(Vec<(PartitionId, Position)>),
    Rows(Vec<(Key, Option<Vec<u8>>)>),
}

/// A file that is being written.
struct Output<'l> {
    file: Arc<dyn DiskFile>,
    at: u64,
    crc32c: u32,
    block: Vec<u8>,
    items: u32,
    is_late: &'l dyn Fn() -> bool,
}

/// Writes a whole checkpoint and makes its bytes durable; answers how many there are.
///
/// # Errors
/// `Unavailable` or `LimitExceeded` when the disk refuses; `Internal` when the rows are not as many
/// as the index says; `DeadlineExceeded` once it is late.
pub(super) fn write(
    file: Arc<dyn DiskFile>,
    head: &Head,
    rows: &PartitionWriter,
    is_late: &dyn Fn() -> bool,
) -> Result<u64> {
    let windows = head.state.dedup.windows();
    let sources = &head.state.sources;
    let items = Items {
        windows: windows.len() as u64,
        sources: sources.len() as u64,
        rows: rows.held().documents,
    };
    let mut output = Output { file, at: 0, crc32c: 0, block: Vec::new(), items: 0, is_late };
    output.put(&encode_header(head, items)?)?;
    for (client, window) in windows {
        output.item(Kind::Windows, |block| put_window(block, client, window))?;
    }
    output.end_block(Kind::Windows)?;
    for (partition, position) in sources {
        output.item(Kind::Sources, |block| put_source(block, *partition, *position))?;
    }
    output.end_block(Kind::Sources)?;
    let mut visited = 0;
    rows.visit_rows(|key, row| {
        visited += 1;
        output.item(Kind::Rows, |block| put_row(block, key, row))
    })?;
    output.end_block(Kind::Rows)?;
    if visited != items.rows {
        let message = format!("the index says {} rows and holds {visited}", items.rows);
        return Err(Error::internal(message));
    }
    let end = encode_end(output.crc32c, output.at);
    output.put(&encode_block_head(Kind::End, 0, &end))?;
    output.put(&end)?;
    output.file.sync_data().map_err(|error| refused("make durable", &error))?;
    Ok(output.at)
}

impl Output<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_at(bytes, self.at).map_err(|error| refused("write", &error))?;
        self.at += bytes.len() as u64;
        self.crc32c = crc32c::crc32c_append(self.crc32c, bytes);
        Ok(())
    }

    fn item(&mut self, kind: Kind, put: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        put(&mut self.block);
        self.items += 1;
        if self.block.len() < CHECKPOINT_BLOCK_BYTES_AIM {
            return Ok(());
        }
        self.end_block(kind)
    }

    fn end_block(&mut self, kind: Kind) -> Result<()> {
        if self.items == 0 {
            return Ok(());
        }
        if (self.is_late)() {
            let message = "the checkpoint takes too long to wait for; the one before stays";
            return Err(Error::deadline_exceeded(message));
        }
        let mut block = std::mem::take(&mut self.block);
        self.put(&encode_block_head(kind, self.items, &block))?;
        self.put(&block)?;
        block.clear();
        self.block = block;
        self.items = 0;
        Ok(())
    }
}

/// What the disk refused to do with a checkpoint.
pub(super) fn refused(doing: &str, error: &io::Error) -> Error {
    Error::unavailable(format!(
        "{doing} a checkpoint: {error}; look at the checkpoint directory and its disk"
    ))
}

/// A file that is being read.
#[derive(Debug)]
pub(crate) struct Input {
    file: Arc<dyn DiskFile>,
    size: u64,
    at: u64,
    crc32c: u32,
    /// What the header says and no block has brought yet.
    missing: Items,
    last: Kind,
}

impl Input {
    /// Reads the header; the state in it still lacks the windows and sources.
    ///
    /// # Errors
    /// `Unsupported` for a format that this build does not know, `Corrupt` for damage,
    /// `Unavailable` for bytes that cannot be read.
    pub(super) fn open(file: Arc<dyn DiskFile>) -> Result<(Self, Head)> {
        let size = file.size().map_err(|error| refused("open", &error))?;
        let (missing, last) = (Items::default(), Kind::Windows);
        let mut input = Self { file, size, at: 0, crc32c: 0, missing, last };
        let mut header = [0; HEADER_BYTES];
        input.fill(&mut header)?;
        let (head, items) = decode_header(&header)?;
        input.missing = items;
        Ok((input, head))
    }

    /// The next block; `None` once the whole file was read and found whole.
    ///
    /// # Errors
    /// As [`Input::open`].
    pub(crate) fn next_block(&mut self) -> Result<Option<Block>> {
        let crc32c = self.crc32c;
        let mut head = [0; BLOCK_HEAD_BYTES];
        self.fill(&mut head)?;
        let head = decode_block_head(&head)?;
        if head.body_bytes as u64 > self.size - self.at {
            return Err(damaged("a block that is longer than the file"));
        }
        let mut body = vec![0; head.body_bytes];
        self.fill(&mut body)?;
        head.check(&body)?;
        if head.kind < self.last {
            return Err(damaged("blocks out of their order"));
        }
        self.last = head.kind;
        let (mut fields, count) = (Fields(&body), head.items);
        let missing = &mut self.missing;
        let block = match head.kind {
            Kind::Windows => {
                Block::Windows(items(&mut missing.windows, count, || fields.window())?)
            }
            Kind::Sources => {
                Block::Sources(items(&mut missing.sources, count, || fields.source())?)
            }
            Kind::Rows => {
                let row = || fields.row().map(|(key, row)| (key, Some(row)));
                Block::Rows(items(&mut missing.rows, count, row)?)
            }
            Kind::End => {
                let is_end = fields.end()? == (crc32c, self.size) && self.at == self.size;
                if !is_end || count != 0 || self.missing != Items::default() {
                    return Err(damaged("its end does not fit what is before it"));
                }
                return fields.finish().map(|()| None);
            }
        };
        fields.finish()?;
        Ok(Some(block))
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            let at = self.at + filled as u64;
            let read = self.file.read_at(&mut buffer[filled..], at);
            match read.map_err(|error| refused("read", &error))? {
                0 => return Err(damaged("it ends too early")),
                read => filled += read,
            }
        }
        self.at += buffer.len() as u64;
        self.crc32c = crc32c::crc32c_append(self.crc32c, buffer);
        Ok(())
    }
}

/// Takes this many items off what is still missing.
fn items<T>(missing: &mut u64, count: u32, mut next: impl FnMut() -> Result<T>) -> Result<Vec<T>> {
    let left = missing.checked_sub(count.into());
    *missing = left.ok_or_else(|| damaged("more items than its header says"))?;
    (0..count).map(|_| next()).collect()
}
