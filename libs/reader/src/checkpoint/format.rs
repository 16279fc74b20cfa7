//! The bytes of what a checkpoint holds beside the documents: the reader's state in
//! `proto/spec/image.md`. Decoders take any bytes.

use forebay_core::clock::Timestamp;
use forebay_core::dedup::ClientWindow;
use forebay_core::fields::Fields;
use forebay_core::fold::PartitionState;
use forebay_core::id::{ClientId, LogId, Offset, PartitionId, Position};
use forebay_core::{Error, Result};
use forebay_index::{Following, ImageAbout, Progress};
use forebay_log::Bounds;

const STATE_VERSION: u16 = 1;
const FLAG_APPEND_TIME: u16 = 1;
const FLAG_CLOCK_ERROR: u16 = 1 << 1;

/// Everything of a partition's checkpoint but its documents.
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

impl Head {
    /// Whether the partition has caught up, in the run that wrote it or an earlier one.
    pub(crate) fn has_caught_up(&self) -> bool {
        self.state.offset_applied >= self.opened.end
    }

    /// What is known of the log.
    pub(crate) fn following(&self) -> Following {
        Following {
            log_id: self.state.log_id,
            append_time: self.append_time,
            clock_error_us: self.clock_error_us,
            opened: Some((self.opened.start, self.opened.end)),
            drop_all_count: self.state.drop_all_count,
            copy: 1,
        }
    }
}

fn damaged(what: &str) -> Error {
    Error::corrupt(format!("the checkpoint is damaged: {what}; it is ignored"))
}

/// Encodes the state beside an image of the documents at its position.
///
/// # Errors
/// `Internal` for a state that follows no log yet.
pub(super) fn encode(head: &Head) -> Result<Vec<u8>> {
    let state = &head.state;
    let log_id = state.log_id.ok_or_else(|| Error::internal("a checkpoint of no log"))?;
    let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
    let flags = flag(head.append_time.is_some(), FLAG_APPEND_TIME)
        | flag(head.clock_error_us.is_some(), FLAG_CLOCK_ERROR);
    let append_time = head.append_time.map_or(0, Timestamp::as_micros);
    let windows = state.dedup.windows();
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&STATE_VERSION.to_le_bytes());
    bytes.extend_from_slice(&flags.to_le_bytes());
    bytes.extend_from_slice(&state.drop_all_count.to_le_bytes());
    bytes.extend_from_slice(&log_id.0.to_le_bytes());
    bytes.extend_from_slice(&append_time.to_le_bytes());
    bytes.extend_from_slice(&head.clock_error_us.unwrap_or(0).to_le_bytes());
    for number in [head.opened.start.0, head.opened.end.0] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    for number in [windows.len() as u64, state.sources.len() as u64] {
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

/// Decodes the state of an image.
///
/// # Errors
/// `Unsupported` for a version that this build does not know, `Corrupt` for damage.
pub(super) fn decode(about: &ImageAbout, bytes: &[u8]) -> Result<Head> {
    let mut fields = Fields::new(bytes, || damaged("a short state"));
    let version = fields.u16()?;
    if version != STATE_VERSION {
        let message = format!(
            "the checkpoint has a state of version {version}, this build knows {STATE_VERSION}; \
             it is ignored"
        );
        return Err(Error::unsupported(message));
    }
    let flags = fields.u16()?;
    if flags & !(FLAG_APPEND_TIME | FLAG_CLOCK_ERROR) != 0 {
        return Err(damaged("a bit of its state that must be 0"));
    }
    let Progress { position, offset_applied, partition_time, schema_version } = about.progress;
    let mut state = PartitionState::new(about.partition, about.partitions);
    (state.position, state.offset_applied) = (position, offset_applied);
    (state.partition_time, state.schema_version) = (partition_time, schema_version);
    state.drop_all_count = fields.u32()?;
    state.log_id = Some(LogId(fields.u64()?));
    let append_time = fields.time()?;
    let clock_error_us = i64::from_le_bytes(fields.take()?);
    let (start, end) = (Offset(fields.u64()?), Offset(fields.u64()?));
    let (windows, sources) = (fields.u64()?, fields.u64()?);
    for _ in 0..windows {
        let client = ClientId(u128::from_le_bytes(fields.take()?));
        state.dedup.restore(client, ClientWindow::from_bytes(&fields.take()?));
    }
    for _ in 0..sources {
        let partition = PartitionId(fields.u32()?);
        state.sources.insert(partition, Position::from_bytes(&fields.take()?));
    }
    if !fields.rest().is_empty() {
        return Err(damaged("a state that is too long"));
    }
    Ok(Head {
        state,
        append_time: (flags & FLAG_APPEND_TIME != 0).then_some(append_time),
        clock_error_us: (flags & FLAG_CLOCK_ERROR != 0).then_some(clock_error_us),
        opened: Bounds { start, end, server_time: None },
    })
}
