//! The state in an image next to the documents: the state of the fold, and the known facts about
//! the log. The bytes are *the reader's state* of `proto/spec/image.md`. Decoders accept any bytes.

use forebay_core::byte_reader::ByteReader;
use forebay_core::clock::Timestamp;
use forebay_core::dedup::ClientWindow;
use forebay_core::fold::PartitionState;
use forebay_core::id::{
    ClientId, LogId, Offset, PartitionCount, PartitionId, PartitionRef, Position,
};
use forebay_core::replica_state::{LogCursor, Progress};
use forebay_core::state_rows::RestoredState;
use forebay_core::{Error, Result};

const VERSION: u16 = 1;
const FLAG_APPEND_TIME: u16 = 1;
const FLAG_CLOCK_ERROR: u16 = 1 << 1;
const FLAG_UNOPENED: u16 = 1 << 2;
const FLAGS_KNOWN: u16 = FLAG_APPEND_TIME | FLAG_CLOCK_ERROR | FLAG_UNOPENED;

/// State of a partition's replica without the documents.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageState {
    /// State of the fold.
    pub state: PartitionState,
    /// Append time of the last applied entry.
    pub append_time: Option<Timestamp>,
    /// Last measured clock error, in microseconds.
    pub clock_error_us: Option<i64>,
    /// Start and end of the log when a reader first opened the replica; `None` if no reader has
    /// opened it yet, as in a snapshot.
    pub opened: Option<(Offset, Offset)>,
}

impl ImageState {
    /// Returns the state of a replica that no reader has opened yet.
    pub fn unopened(state: PartitionState, append_time: Option<Timestamp>) -> Self {
        Self { state, append_time, clock_error_us: None, opened: None }
    }

    /// Returns the state of a shard, for an image that no reader has opened yet.
    pub fn of_shard(shard: &RestoredState) -> Self {
        Self::unopened(shard.state.clone(), shard.follow_state.append_time)
    }

    /// Returns whether the partition has caught up, in the current run or an earlier one.
    pub fn has_caught_up(&self) -> bool {
        self.opened.is_some_and(|(_, end)| self.state.offset_applied >= end)
    }

    /// Returns the position and the clock of the log, as far as they are known.
    pub fn log_cursor(&self) -> LogCursor {
        LogCursor {
            log_id: self.state.log_id,
            append_time: self.append_time,
            clock_error_us: self.clock_error_us,
            opened: self.opened,
            drop_all_count: self.state.drop_all_count,
            copy: 1,
        }
    }

    /// Encodes the state, without the partition and the progress, which the image itself states.
    ///
    /// # Errors
    /// `Internal` for a state that follows no log yet.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let state = &self.state;
        let log_id = state.log_id.ok_or_else(|| Error::internal("the image has no log id"))?;
        let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        let flags = flag(self.append_time.is_some(), FLAG_APPEND_TIME)
            | flag(self.clock_error_us.is_some(), FLAG_CLOCK_ERROR)
            | flag(self.opened.is_none(), FLAG_UNOPENED);
        let append_time = self.append_time.map_or(0, Timestamp::as_micros);
        let (start, end) = self.opened.unwrap_or_default();
        let windows = state.dedup.windows();
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&flags.to_le_bytes());
        bytes.extend_from_slice(&state.drop_all_count.to_le_bytes());
        bytes.extend_from_slice(&log_id.0.to_le_bytes());
        bytes.extend_from_slice(&append_time.to_le_bytes());
        bytes.extend_from_slice(&self.clock_error_us.unwrap_or(0).to_le_bytes());
        for number in [start.0, end.0, windows.len() as u64, state.sources.len() as u64] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for (client, window) in windows {
            bytes.extend_from_slice(&client.0.to_le_bytes());
            bytes.extend_from_slice(&window.to_bytes());
        }
        for (partition, position) in &state.sources {
            bytes.extend_from_slice(&partition.0.to_le_bytes());
            bytes.extend_from_slice(&position.to_bytes());
        }
        Ok(bytes)
    }

    /// Decodes a state of this partition at the progress of its image.
    ///
    /// # Errors
    /// `Unsupported` for a version that this build does not know; `Corrupt` for damage.
    pub fn decode(
        at: PartitionRef,
        partitions: PartitionCount,
        progress: Progress,
        bytes: &[u8],
    ) -> Result<Self> {
        let mut reader = ByteReader::new(bytes, || damaged("the state is too short"));
        let version = reader.u16()?;
        if version != VERSION {
            let message = format!(
                "the state of the image has version {version}, and this build knows {VERSION}; the \
                 reader ignores the image"
            );
            return Err(Error::unsupported(message));
        }
        let flags = reader.u16()?;
        if flags & !FLAGS_KNOWN != 0 {
            return Err(damaged("a reserved bit of the state is set"));
        }
        let Progress { position, offset_applied, partition_time, schema_version } = progress;
        let mut state = PartitionState::new(at, partitions);
        (state.position, state.offset_applied) = (position, offset_applied);
        (state.partition_time, state.schema_version) = (partition_time, schema_version);
        state.drop_all_count = reader.u32()?;
        state.log_id = Some(LogId(reader.u64()?));
        let append_time = reader.time()?;
        let clock_error_us = i64::from_le_bytes(reader.take()?);
        let opened = (Offset(reader.u64()?), Offset(reader.u64()?));
        let (windows, sources) = (reader.u64()?, reader.u64()?);
        for _ in 0..windows {
            let client = ClientId(u128::from_le_bytes(reader.take()?));
            state.dedup.restore(client, ClientWindow::from_bytes(&reader.take()?));
        }
        for _ in 0..sources {
            let partition = PartitionId(reader.u32()?);
            state.sources.insert(partition, Position::from_bytes(&reader.take()?));
        }
        if !reader.rest().is_empty() {
            return Err(damaged("the state is too long"));
        }
        Ok(Self {
            state,
            append_time: (flags & FLAG_APPEND_TIME != 0).then_some(append_time),
            clock_error_us: (flags & FLAG_CLOCK_ERROR != 0).then_some(clock_error_us),
            opened: (flags & FLAG_UNOPENED == 0).then_some(opened),
        })
    }
}

fn damaged(problem: &str) -> Error {
    Error::corrupt(format!("the image is damaged: {problem}; the reader ignores the image"))
}
