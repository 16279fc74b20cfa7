//! Reads acknowledged records from segment files.

use std::io;
use std::sync::Arc;

use forebay_core::id::Offset;
use forebay_core::{Error, ErrorCode, Result};

use super::errors::{damage_error, io_error};
use super::format::HEADER_BYTES;
use super::partition::{Partition, Plan, SegmentIndex};
use super::scan::{SCAN_BYTES, ScanStep, Scanner};
use super::state::LogState;
use crate::change_log::{LogRecord, Records};
use crate::disk::DiskFile;

/// Fewest bytes that a read requests from the disk at a time.
const READ_BYTES_MIN: usize = 64 * 1024;

impl LogState {
    /// Returns records from an offset on in one segment, as many as fit and at least one. Damage
    /// stops the log, as it does at open.
    pub(super) fn read_segment(
        &self,
        partition: &Arc<Partition>,
        from: Offset,
        bytes_max: usize,
    ) -> Result<Records> {
        let records = self.read_checked(partition, from, bytes_max);
        if let Err(error) = &records
            && error.code() == ErrorCode::Corrupt
        {
            // After a deletion the name may already refer to a recreated log.
            partition.bounds()?.check(partition.at, from)?;
            self.poison.set_damaged(error);
        }
        records
    }

    fn read_checked(
        &self,
        partition: &Arc<Partition>,
        from: Offset,
        bytes_max: usize,
    ) -> Result<Records> {
        let end = partition.bounds()?.end;
        let Some(mut plan) = partition.plan(from)? else {
            return Ok(Records { records: Vec::new(), end });
        };
        let file = match self.files.open(&plan.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // The segment was trimmed or deleted after the plan was computed; the bounds now
                // show it.
                partition.bounds()?.check(partition.at, from)?;
                return Err(damage_error(&plan.path, 0, "the segment file is missing"));
            }
            Err(error) => return Err(io_error("open", &plan.path, &error)),
        };
        // The first frame needs no index, so a reader of only the head of a log does not pay for a
        // scan of the whole segment.
        if plan.place.is_none() && from != plan.base {
            partition.keep_index(plan.base, index(&plan, &*file)?);
            let Some(indexed) = partition.plan(from)? else {
                return Ok(Records { records: Vec::new(), end: plan.end });
            };
            plan = indexed;
        }
        let records = read_records(&plan, &*file, from, bytes_max)?;
        // After a deletion the name may already refer to a recreated log.
        partition.bounds()?;
        Ok(Records { records, end: plan.end })
    }
}

/// Scans a whole segment and builds its index.
fn index(plan: &Plan, file: &dyn DiskFile) -> Result<SegmentIndex> {
    let mut index = SegmentIndex::default();
    let start = (HEADER_BYTES, plan.base);
    let mut scanner = Scanner::new(file, start, plan.bytes, SCAN_BYTES);
    while let Some((record, at)) = next(plan, &mut scanner)? {
        index.learn(record.offset, at);
    }
    if scanner.offset_next() != plan.segment_end {
        let damage = format!(
            "the segment ends at offset {} and should end at {}",
            scanner.offset_next(),
            plan.segment_end
        );
        return Err(damage_error(&plan.path, plan.bytes, &damage));
    }
    Ok(index)
}

fn read_records(
    plan: &Plan,
    file: &dyn DiskFile,
    from: Offset,
    bytes_max: usize,
) -> Result<Vec<LogRecord>> {
    let start = plan.place.unwrap_or((HEADER_BYTES, plan.base));
    let read_bytes = bytes_max.clamp(READ_BYTES_MIN, SCAN_BYTES);
    let mut scanner = Scanner::new(file, start, plan.bytes, read_bytes);
    let mut records = Vec::new();
    let mut bytes = 0;
    while let Some((record, _)) = next(plan, &mut scanner)? {
        if record.offset < from {
            continue;
        }
        bytes += record.entry.len();
        if bytes > bytes_max && !records.is_empty() {
            break;
        }
        records.push(record);
        if bytes >= bytes_max {
            break;
        }
    }
    match records.first() {
        Some(first) if first.offset == from => Ok(records),
        _ => {
            Err(Error::internal(format!("offset {from} is not in segment {}", plan.path.display())))
        }
    }
}

fn next(plan: &Plan, scanner: &mut Scanner<'_>) -> Result<Option<(LogRecord, u64)>> {
    match scanner.next() {
        Ok(ScanStep::Frame(frame)) => Ok(Some((frame.record, frame.at))),
        Ok(ScanStep::End) => Ok(None),
        Ok(ScanStep::Damage(at, damage)) => Err(damage_error(&plan.path, at, damage)),
        Err(error) => Err(io_error("read", &plan.path, &error)),
    }
}
