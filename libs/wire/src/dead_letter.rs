//! Conversion of dead letters, and of the cursors of their listings, to and from the messages of
//! `dead_letter.proto` and `replicator.proto`.

use bytes::Bytes;
use forebay_core::clock::Timestamp;
use forebay_core::dead_letter::{DeadLetter, LastLetter};
use forebay_core::id::{Epoch, LogId, Offset};
use forebay_core::limits::DEAD_LETTER_BYTES_MAX;
use forebay_core::{Error, Result};
use prost::Message;

use crate::decode_error::unset_error;
use crate::v1;

impl From<&DeadLetter> for v1::DeadLetter {
    fn from(letter: &DeadLetter) -> Self {
        Self {
            home_log_id: letter.home_log.0,
            epoch: letter.epoch.0,
            offset: letter.offset.0,
            append_time_us: letter.append_time.as_micros(),
            reason: Some((&letter.reason).into()),
            entry: Bytes::copy_from_slice(&letter.entry),
            entry_bytes: letter.entry_bytes,
        }
    }
}

impl TryFrom<v1::DeadLetter> for DeadLetter {
    type Error = Error;

    fn try_from(wire: v1::DeadLetter) -> Result<Self> {
        let bytes = wire.entry.len() as u64;
        if bytes > DEAD_LETTER_BYTES_MAX as u64 || bytes > wire.entry_bytes {
            return Err(Error::invalid_argument("the dead letter is too large"));
        }
        let reason = wire.reason.ok_or_else(|| unset_error("the reason of a dead letter"))?;
        Ok(Self {
            home_log: LogId(wire.home_log_id),
            epoch: Epoch(wire.epoch),
            offset: Offset(wire.offset),
            append_time: Timestamp::from_micros(wire.append_time_us),
            reason: reason.into(),
            entry: wire.entry.into(),
            entry_bytes: wire.entry_bytes,
        })
    }
}

/// Start of a page of a partition's dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Id of the dead-letter log.
    pub log_id: LogId,
    /// First offset of the page in the dead-letter log.
    pub offset: Offset,
    /// The previous letter, by which the listing recognizes repeats.
    pub last: Option<LastLetter>,
}

impl Cursor {
    /// Encodes the cursor.
    pub fn encode(&self) -> Bytes {
        let message = v1::DeadLetterCursor {
            log_id: self.log_id.0,
            offset: self.offset.0,
            home_log_id: self.last.map(|last| last.home_log.0),
            home_offset: self.last.map_or(0, |last| last.offset.0),
        };
        message.encode_to_vec().into()
    }

    /// Decodes a cursor that a page returned.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for any other bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let wire = v1::DeadLetterCursor::decode(bytes).map_err(|_| {
            let message = "the cursor is not a cursor of a page of dead letters; pass its bytes on \
                unchanged, or begin without a cursor";
            Error::invalid_argument(message)
        })?;
        let offset = Offset(wire.home_offset);
        let last = wire.home_log_id.map(|log| LastLetter { home_log: LogId(log), offset });
        Ok(Self { log_id: LogId(wire.log_id), offset: Offset(wire.offset), last })
    }
}
