//! Scans a segment frame by frame, and distinguishes a torn write from damage.

use std::io;

use bytes::Bytes;
use forebay_core::id::Offset;
use forebay_wire::entry::ENTRY_FRAME_BYTES_MAX;

use super::format::{FRAME_HEADER_BYTES, FormatError, FrameHeader, HEADER_BYTES};
use crate::LogRecord;
use crate::disk::DiskFile;

/// Bytes that a scan of a whole segment reads at a time.
pub(super) const SCAN_BYTES: usize = 1024 * 1024;

/// A scanner of consecutive frames, up to a given end of the file.
pub(super) struct Scanner<'a> {
    file: &'a dyn DiskFile,
    /// Byte offset of the next frame.
    at: u64,
    end: u64,
    offset_next: Offset,
    read_bytes: usize,
    buffer: Vec<u8>,
    buffer_at: u64,
}

/// A whole frame.
#[derive(Debug)]
pub(super) struct Frame {
    /// Byte offset of the frame in the segment.
    pub(super) at: u64,
    /// Header of the frame.
    pub(super) header: FrameHeader,
    /// Record of the frame.
    pub(super) record: LogRecord,
}

/// Result of one step of a scan.
#[derive(Debug)]
pub(super) enum ScanStep {
    Frame(Frame),
    End,
    /// Byte at which no whole frame starts, and how the damage shows.
    Damage(u64, &'static str),
}

impl<'a> Scanner<'a> {
    /// Scans from the byte offset and log offset of a frame up to `end`, reading at least
    /// `read_bytes` at a time.
    pub(super) fn new(
        file: &'a dyn DiskFile,
        (at, offset): (u64, Offset),
        end: u64,
        read_bytes: usize,
    ) -> Self {
        let (buffer, buffer_at) = (Vec::new(), at);
        Self { file, at, end, offset_next: offset, read_bytes, buffer, buffer_at }
    }

    /// Returns the byte offset of the next frame.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Returns the log offset of the next frame.
    pub(super) fn offset_next(&self) -> Offset {
        self.offset_next
    }

    /// Returns the next frame. After damage the scanner does not advance.
    pub(super) fn next(&mut self) -> io::Result<ScanStep> {
        if self.at == self.end {
            return Ok(ScanStep::End);
        }
        let at = self.at;
        let Some(header) = self.window(FRAME_HEADER_BYTES)?.and_then(|bytes| bytes.first_chunk())
        else {
            return Ok(ScanStep::Damage(at, "a frame's header is cut short"));
        };
        let header = match FrameHeader::decode(header) {
            Ok(header) => header,
            Err(error) => return Ok(ScanStep::Damage(at, words(error))),
        };
        let offset = self.offset_next;
        let Some(frame) = self.window(header.frame_bytes())? else {
            return Ok(ScanStep::Damage(at, "a frame is cut short"));
        };
        if let Err(error) = header.check(frame, at, offset) {
            return Ok(ScanStep::Damage(at, words(error)));
        }
        let entry = Bytes::copy_from_slice(&frame[FRAME_HEADER_BYTES as usize..]);
        let record = LogRecord { offset, append_time: header.append_time, entry };
        self.at += header.frame_bytes();
        self.offset_next = offset.next();
        Ok(ScanStep::Frame(Frame { at, header, record }))
    }

    /// Returns the next bytes, or `None` if fewer remain.
    fn window(&mut self, bytes: u64) -> io::Result<Option<&[u8]>> {
        if bytes > self.end - self.at {
            return Ok(None);
        }
        let bytes = bytes as usize;
        let skipped = (self.at - self.buffer_at) as usize;
        if self.buffer.len() < skipped + bytes {
            let length = bytes.max(self.read_bytes).min((self.end - self.at) as usize);
            let mut buffer = vec![0; length];
            let read = self.file.read_at(&mut buffer, self.at)?;
            buffer.truncate(read);
            (self.buffer, self.buffer_at) = (buffer, self.at);
        }
        let skipped = (self.at - self.buffer_at) as usize;
        Ok(self.buffer.get(skipped..skipped + bytes))
    }
}

fn words(error: FormatError) -> &'static str {
    match error {
        FormatError::Damaged(damage) => damage,
        FormatError::Version(_) => "the version is unknown",
    }
}

/// Returns whether damage at byte `damaged_at` of a segment, where the frame of offset `expected`
/// should start, hit durable bytes: a later whole frame proves it.
///
/// The function reads the rest of the segment into memory. A checksum is computed only if the
/// header names a plausible offset and a durable length past the damage, so the cost is about one
/// pass.
pub(super) fn was_durable(
    file: &dyn DiskFile,
    damaged_at: u64,
    expected: Offset,
    end: u64,
) -> io::Result<bool> {
    let mut bytes = vec![0; (end - damaged_at) as usize];
    let read = file.read_at(&mut bytes, damaged_at)?;
    bytes.truncate(read);
    let offset_max = expected.0.saturating_add(bytes.len() as u64 / FRAME_HEADER_BYTES);
    for skipped in 1..bytes.len() {
        let Some(header) = bytes[skipped..].first_chunk() else { break };
        let Ok(header) = FrameHeader::decode(header) else { continue };
        let at = damaged_at + skipped as u64;
        let proves = (damaged_at + 1..=at).contains(&header.synced_bytes)
            && (expected.0..=offset_max).contains(&header.offset.0);
        if !proves {
            continue;
        }
        let frame = bytes.get(skipped..skipped + header.frame_bytes() as usize);
        if frame.is_some_and(|frame| header.check(frame, at, header.offset).is_ok()) {
            return Ok(true);
        }
    }
    Ok(false)
}

const _: () = assert!(HEADER_BYTES > 0 && ENTRY_FRAME_BYTES_MAX < u32::MAX as usize);
