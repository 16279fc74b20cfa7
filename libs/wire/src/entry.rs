//! Entry frames, the byte form of an entry in a log. Bytes and rules: `proto/spec/entry.md`.

use bytes::{BufMut, Bytes, BytesMut};
use forebay_core::catalog::ControlRecord;
use forebay_core::change::{Entry, EntryBody};
use forebay_core::id::{Epoch, LogId, Offset, SchemaVersion};
use forebay_core::limits::{ENTRY_BYTES_MAX, ENTRY_CHANGES_MAX};
use forebay_core::{Error, Result};
use prost::Message;

use crate::decode_error::newer_error;
use crate::error::as_stored_error;
use crate::v1;
use crate::v1::entry::{
    Barrier, Body, Changes, DeadLetters, DefinitionChange, Heartbeat, LogHeader,
};

/// First four bytes of the frame.
pub const ENTRY_MAGIC: [u8; 4] = *b"FBEN";
/// Frame format that this build writes, and the newest that it reads.
pub const ENTRY_FORMAT_VERSION: u16 = 1;
/// Bytes of a frame before its body.
pub const ENTRY_HEADER_BYTES: usize = 24;
/// Largest frame, in bytes.
pub const ENTRY_FRAME_BYTES_MAX: usize = ENTRY_HEADER_BYTES + ENTRY_BYTES_MAX;

/// Position of the checksum in the header, after all header bytes that it covers.
const CHECKSUM_AT: usize = 20;
const _: () = assert!(ENTRY_BYTES_MAX <= u32::MAX as usize);

/// Encodes an entry with its frame.
///
/// The entry's changes must have passed [`Change::check`](forebay_core::change::Change::check);
/// every replica skips an entry in the log whose changes did not pass.
///
/// # Errors
/// Returns `LimitExceeded` over [`ENTRY_BYTES_MAX`] or [`ENTRY_CHANGES_MAX`]; `InvalidArgument` for
/// a change without sequence; for a definition, the errors of its
/// [check](forebay_core::schema::Definition::check).
pub fn encode_entry(entry: &Entry) -> Result<Bytes> {
    check_change_count(entry.change_count())?;
    check_body(&entry.body)?;
    let body = message_of_entry(entry);
    let body_bytes = body.encoded_len();
    check_body_bytes(body_bytes)?;
    let mut frame = BytesMut::with_capacity(ENTRY_HEADER_BYTES + body_bytes);
    frame.put_slice(&ENTRY_MAGIC);
    frame.put_u16_le(ENTRY_FORMAT_VERSION);
    frame.put_u16_le(0);
    frame.put_u64_le(entry.log_id.0);
    frame.put_u32_le(body_bytes as u32);
    frame.put_u32_le(0);
    body.encode(&mut frame).map_err(|error| Error::internal(error.to_string()))?;
    let checksum = checksum(&frame[..CHECKSUM_AT], &frame[ENTRY_HEADER_BYTES..]);
    frame[CHECKSUM_AT..ENTRY_HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    Ok(frame.freeze())
}

/// Decodes an entry from a frame, which must end where the bytes end.
///
/// Copies each key and value once; accepts any bytes and never panics.
///
/// # Errors
/// Returns `Corrupt` for bytes that no build of any version accepts: every replica skips the
/// record. Returns `UpgradeNeeded` for bytes that a newer build may accept: the partition halts at
/// this offset.
pub fn decode_entry(frame: &[u8]) -> Result<Entry> {
    let (log_id, body) = open_frame(frame)?;
    let shared = Bytes::copy_from_slice(body);
    let wire = v1::Entry::decode(shared).map_err(|error| {
        Error::corrupt(format!("the body of an entry cannot be decoded: {error}"))
    })?;
    entry_of_message(log_id, wire).map_err(as_stored_error)
}

/// Returns the log id of a frame with a valid checksum, without decoding its body.
///
/// # Errors
/// Returns the errors of [`decode_entry`] that concern the header.
pub fn frame_log_id(frame: &[u8]) -> Result<LogId> {
    open_frame(frame).map(|(log_id, _)| log_id)
}

/// Returns the id of a log, if this record determines it. For a log that starts at 0 the id is that
/// of the first log header entry, because a log that was recreated may begin with entries that were
/// in flight to the old log. For a log that no longer starts at 0 each well-formed entry has the
/// id.
pub fn peek_log_id(record: &[u8], log_start: Offset) -> Option<LogId> {
    if log_start > Offset(0) {
        return frame_log_id(record).ok();
    }
    let entry = decode_entry(record).ok()?;
    matches!(entry.body, EntryBody::LogHeader).then_some(entry.log_id)
}

fn open_frame(frame: &[u8]) -> Result<(LogId, &[u8])> {
    let short_error = || Error::corrupt("an entry is shorter than its header");
    let (covered_bytes, rest) = frame.split_first_chunk::<CHECKSUM_AT>().ok_or_else(short_error)?;
    let (stored_checksum, body) = rest.split_first_chunk::<4>().ok_or_else(short_error)?;
    let [m0, m1, m2, m3, v0, v1, f0, f1, log_id @ .., b0, b1, b2, b3] = *covered_bytes;
    if [m0, m1, m2, m3] != ENTRY_MAGIC {
        return Err(Error::corrupt("an entry does not begin with its magic"));
    }
    if u32::from_le_bytes([b0, b1, b2, b3]) as usize != body.len() {
        return Err(Error::corrupt("an entry is not as long as its header says"));
    }
    let (stored_checksum, found) =
        (u32::from_le_bytes(*stored_checksum), checksum(covered_bytes, body));
    if stored_checksum != found {
        let message =
            format!("an entry fails its checksum: stored {stored_checksum:08x}, found {found:08x}");
        return Err(Error::corrupt(message));
    }
    match u16::from_le_bytes([v0, v1]) {
        ENTRY_FORMAT_VERSION => {}
        0 => return Err(Error::corrupt("an entry has format version 0")),
        version => return Err(newer_error(&format!("entry format version {version}"))),
    }
    if [f0, f1] != [0, 0] {
        return Err(newer_error(&format!(
            "the flags {:#06x} of an entry",
            u16::from_le_bytes([f0, f1])
        )));
    }
    check_body_bytes(body.len()).map_err(as_stored_error)?;
    Ok((LogId(u64::from_le_bytes(log_id)), body))
}

fn checksum(covered_bytes: &[u8], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(covered_bytes), body)
}

fn check_body_bytes(body_bytes: usize) -> Result<()> {
    if body_bytes <= ENTRY_BYTES_MAX {
        return Ok(());
    }
    let advice = "the entry is too large; put fewer changes into one entry";
    Err(Error::limit_exceeded(advice, ENTRY_BYTES_MAX as u64, body_bytes as u64))
}

fn check_change_count(changes: usize) -> Result<()> {
    if changes <= ENTRY_CHANGES_MAX {
        return Ok(());
    }
    let advice = "the entry has too many changes; put fewer changes into one entry";
    Err(Error::limit_exceeded(advice, ENTRY_CHANGES_MAX as u64, changes as u64))
}

/// Refuses a body that every decoder would skip, before a log holds it.
fn check_body(body: &EntryBody) -> Result<()> {
    match body {
        EntryBody::Changes(batches) => {
            let mut changes = batches.iter().flat_map(|batch| &batch.changes);
            match changes.find(|change| change.sequence.0 == 0) {
                None => Ok(()),
                Some(change) => {
                    let message = "a change has no sequence; number a client's changes from 1";
                    let digest = change.key.digest();
                    Err(Error::invalid_argument(message).with_key_digest(digest))
                }
            }
        }
        EntryBody::Control(ControlRecord::Define(definition)) => definition.check(),
        _ => Ok(()),
    }
}

fn message_of_entry(entry: &Entry) -> v1::Entry {
    let body = match &entry.body {
        EntryBody::LogHeader => Body::LogHeader(LogHeader {}),
        EntryBody::Changes(batches) => {
            Body::Changes(Changes { batches: batches.iter().map(Into::into).collect() })
        }
        EntryBody::Definition => Body::Definition(DefinitionChange {}),
        EntryBody::Heartbeat => Body::Heartbeat(Heartbeat {}),
        EntryBody::Barrier => Body::Barrier(Barrier {}),
        EntryBody::Control(record) => Body::Control(record.into()),
        EntryBody::DeadLetters(letters) => {
            Body::DeadLetters(DeadLetters { letters: letters.iter().map(Into::into).collect() })
        }
    };
    v1::Entry {
        epoch: entry.epoch.0,
        schema_version: entry.schema_version.0,
        source: entry.source.map(Into::into),
        body: Some(body),
    }
}

fn entry_of_message(log_id: LogId, wire: v1::Entry) -> Result<Entry> {
    let body = match wire.body.ok_or_else(|| newer_error("the kind of an entry"))? {
        Body::LogHeader(_) => EntryBody::LogHeader,
        Body::Changes(changes) => {
            let count = changes.batches.iter().map(|batch| batch.changes.len()).sum();
            check_change_count(count)?;
            let batches = changes.batches.into_iter().map(TryInto::try_into);
            EntryBody::Changes(batches.collect::<Result<_>>()?)
        }
        Body::Definition(_) => EntryBody::Definition,
        Body::Heartbeat(_) => EntryBody::Heartbeat,
        Body::Barrier(_) => EntryBody::Barrier,
        Body::Control(record) => EntryBody::Control(record.try_into()?),
        Body::DeadLetters(DeadLetters { letters }) => {
            let letters = letters.into_iter().map(TryInto::try_into);
            EntryBody::DeadLetters(letters.collect::<Result<_>>()?)
        }
    };
    Ok(Entry {
        log_id,
        epoch: Epoch(wire.epoch),
        schema_version: SchemaVersion(wire.schema_version),
        source: wire.source.map(TryInto::try_into).transpose()?,
        body,
    })
}
