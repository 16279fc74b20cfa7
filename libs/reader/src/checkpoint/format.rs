//! The bytes of a checkpoint: `proto/spec/checkpoint.md`. Decoders take any bytes.

use forebay_core::clock::Timestamp;
use forebay_core::dedup::ClientWindow;
use forebay_core::fold::PartitionState;
use forebay_core::id::{
    ClientId, Epoch, LogId, Offset, PartitionCount, PartitionId, PartitionRef, Position,
    SchemaVersion, Sequence, StoreId,
};
use forebay_core::key::Key;
use forebay_core::limits::CHECKPOINT_BLOCK_BYTES_MAX;
use forebay_core::{Error, Result};
use forebay_log::Bounds;

const MAGIC: u32 = u32::from_le_bytes(*b"FBRC");
const FORMAT_VERSION: u16 = 1;
const FLAG_APPEND_TIME: u16 = 1;
const FLAG_CLOCK_ERROR: u16 = 1 << 1;

/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 132;
/// Bytes of a block before its body.
pub(super) const BLOCK_HEAD_BYTES: usize = 16;
/// Bytes of the end block's body.
pub(super) const END_BODY_BYTES: usize = 12;

/// Everything of a partition's checkpoint but its rows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Head {
    /// The fold's state.
    pub state: PartitionState,
    /// Append time of the last entry applied.
    pub append_time: Option<Timestamp>,
    /// The clock error as last measured, in microseconds.
    pub clock_error_us: Option<i64>,
    /// The log's bounds when the copy was first opened.
    pub opened: Bounds,
}

/// How many items a checkpoint has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Items {
    pub windows: u64,
    pub sources: u64,
    pub rows: u64,
}

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Kind {
    Windows = 1,
    Sources = 2,
    Rows = 3,
    End = 4,
}

impl Kind {
    fn from_byte(byte: u8) -> Result<Self> {
        let kinds = [Self::Windows, Self::Sources, Self::Rows, Self::End];
        let found = kinds.into_iter().find(|kind| *kind as u8 == byte);
        found.ok_or_else(|| damaged("a block of no known kind"))
    }
}

/// The first bytes of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockHead {
    pub kind: Kind,
    pub items: u32,
    pub body_bytes: usize,
    crc32c: u32,
    covered: u32,
}

pub(super) fn damaged(what: &str) -> Error {
    Error::corrupt(format!("the checkpoint is damaged: {what}; it is ignored"))
}

/// Encodes a header.
///
/// # Errors
/// `Internal` for a state that follows no log yet.
pub(super) fn encode_header(head: &Head, items: Items) -> Result<[u8; HEADER_BYTES]> {
    let state = &head.state;
    let log_id = state.log_id.ok_or_else(|| Error::internal("a checkpoint of no log"))?;
    let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
    let flags = flag(head.append_time.is_some(), FLAG_APPEND_TIME)
        | flag(head.clock_error_us.is_some(), FLAG_CLOCK_ERROR);
    let append_time = head.append_time.map_or(0, Timestamp::as_micros);
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend_from_slice(&MAGIC.to_le_bytes());
    bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes.extend_from_slice(&flags.to_le_bytes());
    bytes.extend_from_slice(&state.partition.store.0.to_le_bytes());
    bytes.extend_from_slice(&state.partition.partition.0.to_le_bytes());
    bytes.extend_from_slice(&state.partitions.0.to_le_bytes());
    bytes.extend_from_slice(&log_id.0.to_le_bytes());
    bytes.extend_from_slice(&state.offset_applied.0.to_le_bytes());
    put_position(&mut bytes, state.position);
    bytes.extend_from_slice(&[0; 2]);
    bytes.extend_from_slice(&state.partition_time.as_micros().to_le_bytes());
    bytes.extend_from_slice(&state.schema_version.0.to_le_bytes());
    bytes.extend_from_slice(&state.drop_all_count.to_le_bytes());
    bytes.extend_from_slice(&append_time.to_le_bytes());
    bytes.extend_from_slice(&head.clock_error_us.unwrap_or(0).to_le_bytes());
    for number in [head.opened.start.0, head.opened.end.0] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    for number in [items.windows, items.sources, items.rows] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    let crc32c = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&crc32c.to_le_bytes());
    bytes.try_into().map_err(|_| Error::internal("a header of another length than its own"))
}

/// Decodes a header.
///
/// # Errors
/// `Unsupported` for a format that this build does not know, `Corrupt` for damage.
pub(super) fn decode_header(bytes: &[u8; HEADER_BYTES]) -> Result<(Head, Items)> {
    let mut fields = Fields(bytes);
    if u32::from_le_bytes(fields.take()?) != MAGIC {
        return Err(damaged("it does not begin like one"));
    }
    let version = u16::from_le_bytes(fields.take()?);
    if version != FORMAT_VERSION {
        let message = format!(
            "the checkpoint has format version {version}, this build knows {FORMAT_VERSION}; it \
             is ignored"
        );
        return Err(Error::unsupported(message));
    }
    let (covered, crc32c) = bytes.split_at(HEADER_BYTES - 4);
    if crc32c != crc32c::crc32c(covered).to_le_bytes() {
        return Err(damaged("the checksum of its header"));
    }
    let flags = u16::from_le_bytes(fields.take()?);
    let partition = PartitionRef { store: StoreId(fields.u64()?), partition: fields.partition()? };
    let mut state = PartitionState::new(partition, PartitionCount(fields.u32()?));
    state.log_id = Some(LogId(fields.u64()?));
    state.offset_applied = Offset(fields.u64()?);
    state.position = fields.position()?;
    let zero: [u8; 2] = fields.take()?;
    if flags & !(FLAG_APPEND_TIME | FLAG_CLOCK_ERROR) != 0 || zero != [0; 2] {
        return Err(damaged("a bit of its header that must be 0"));
    }
    state.partition_time = fields.time()?;
    state.schema_version = SchemaVersion(fields.u32()?);
    state.drop_all_count = fields.u32()?;
    let append_time = fields.time()?;
    let clock_error_us = i64::from_le_bytes(fields.take()?);
    let (start, end) = (Offset(fields.u64()?), Offset(fields.u64()?));
    let items = Items { windows: fields.u64()?, sources: fields.u64()?, rows: fields.u64()? };
    let head = Head {
        state,
        append_time: (flags & FLAG_APPEND_TIME != 0).then_some(append_time),
        clock_error_us: (flags & FLAG_CLOCK_ERROR != 0).then_some(clock_error_us),
        opened: Bounds { start, end, server_time: None },
    };
    Ok((head, items))
}

/// Encodes the first bytes of a block.
pub(super) fn encode_block_head(kind: Kind, items: u32, body: &[u8]) -> [u8; BLOCK_HEAD_BYTES] {
    let mut bytes = [0; BLOCK_HEAD_BYTES];
    bytes[0] = kind as u8;
    bytes[4..8].copy_from_slice(&items.to_le_bytes());
    bytes[8..12].copy_from_slice(&(body.len() as u32).to_le_bytes());
    let crc32c = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), body);
    bytes[12..].copy_from_slice(&crc32c.to_le_bytes());
    bytes
}

/// Decodes the first bytes of a block; its body comes to [`BlockHead::check`].
///
/// # Errors
/// `Corrupt`.
pub(super) fn decode_block_head(bytes: &[u8; BLOCK_HEAD_BYTES]) -> Result<BlockHead> {
    let mut fields = Fields(bytes);
    let [kind, zeros @ ..]: [u8; 4] = fields.take()?;
    let (items, body_bytes) = (fields.u32()?, fields.u32()? as usize);
    if zeros != [0; 3] || body_bytes > CHECKPOINT_BLOCK_BYTES_MAX {
        return Err(damaged("the head of a block"));
    }
    let covered = crc32c::crc32c(&bytes[..12]);
    Ok(BlockHead {
        kind: Kind::from_byte(kind)?,
        items,
        body_bytes,
        crc32c: fields.u32()?,
        covered,
    })
}

impl BlockHead {
    /// Checks the body that follows.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(super) fn check(&self, body: &[u8]) -> Result<()> {
        if crc32c::crc32c_append(self.covered, body) == self.crc32c {
            return Ok(());
        }
        Err(damaged("the checksum of a block"))
    }
}

/// Encodes the body of the end block.
pub(super) fn encode_end(file_crc32c: u32, bytes_before: u64) -> [u8; END_BODY_BYTES] {
    let file_bytes = bytes_before + (BLOCK_HEAD_BYTES + END_BODY_BYTES) as u64;
    let mut bytes = [0; END_BODY_BYTES];
    bytes[..4].copy_from_slice(&file_crc32c.to_le_bytes());
    bytes[4..].copy_from_slice(&file_bytes.to_le_bytes());
    bytes
}

pub(super) fn put_window(bytes: &mut Vec<u8>, client: ClientId, window: &ClientWindow) {
    bytes.extend_from_slice(&client.0.to_le_bytes());
    bytes.extend_from_slice(&window.highest.0.to_le_bytes());
    bytes.extend_from_slice(&window.last_seen.as_micros().to_le_bytes());
    for word in window.below {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
}

pub(super) fn put_source(bytes: &mut Vec<u8>, partition: PartitionId, position: Position) {
    bytes.extend_from_slice(&partition.0.to_le_bytes());
    put_position(bytes, position);
}

pub(super) fn put_row(bytes: &mut Vec<u8>, key: &[u8], row: &[u8]) {
    bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(row.len() as u32).to_le_bytes());
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(row);
}

fn put_position(bytes: &mut Vec<u8>, position: Position) {
    bytes.extend_from_slice(&position.epoch.0.to_le_bytes());
    bytes.extend_from_slice(&position.offset.0.to_le_bytes());
    bytes.extend_from_slice(&position.place.to_le_bytes());
}

/// Fields that are taken off the front of some bytes.
pub(super) struct Fields<'b>(pub &'b [u8]);

impl<'b> Fields<'b> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk().ok_or_else(|| damaged("a short item"))?;
        self.0 = rest;
        Ok(*taken)
    }

    fn bytes(&mut self, count: u32) -> Result<&'b [u8]> {
        let found = self.0.split_at_checked(count as usize);
        let (taken, rest) = found.ok_or_else(|| damaged("a short item"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn time(&mut self) -> Result<Timestamp> {
        self.take().map(i64::from_le_bytes).map(Timestamp::from_micros)
    }

    fn partition(&mut self) -> Result<PartitionId> {
        self.u32().map(PartitionId)
    }

    fn position(&mut self) -> Result<Position> {
        let (epoch, offset) = (Epoch(self.u32()?), Offset(self.u64()?));
        Ok(Position { epoch, offset, place: u16::from_le_bytes(self.take()?) })
    }

    pub(super) fn window(&mut self) -> Result<(ClientId, ClientWindow)> {
        let client = ClientId(u128::from_le_bytes(self.take()?));
        let (highest, last_seen) = (Sequence(self.u64()?), self.time()?);
        let mut window = ClientWindow { highest, below: Default::default(), last_seen };
        for word in &mut window.below {
            *word = self.u64()?;
        }
        Ok((client, window))
    }

    pub(super) fn source(&mut self) -> Result<(PartitionId, Position)> {
        Ok((self.partition()?, self.position()?))
    }

    pub(super) fn row(&mut self) -> Result<(Key, Vec<u8>)> {
        let (key_bytes, row_bytes) = (self.u32()?, self.u32()?);
        let key = Key::from_identity_bytes(self.bytes(key_bytes)?);
        Ok((key, self.bytes(row_bytes)?.to_vec()))
    }

    /// The numbers of the end block: checksum and length of the file.
    pub(super) fn end(&mut self) -> Result<(u32, u64)> {
        Ok((self.u32()?, self.u64()?))
    }

    pub(super) fn finish(&self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(damaged("a block that is too long")) }
    }
}
