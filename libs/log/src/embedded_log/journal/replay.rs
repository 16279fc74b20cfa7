//! Replays the journals that a crash left: writes their records to the segments again, before
//! recovery reads the segments.
//!
//! Each record was durable before the next one was written, and a half was started only when all
//! earlier records were durable. Therefore only two things can be torn: the last record of the
//! newer half, or the header of a half that was being started. Everything else that is invalid is
//! damage to acknowledged entries.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_core::{Error, Result};

use super::format::{
    HEADER_BLOCK_BYTES, HEADER_BYTES, HalfHeader, Piece, RECORD_HEADER_BYTES, Record, SegmentName,
};
use crate::disk::{Disk, DiskFile};
use crate::embedded_log::errors::{damage_error, io_error, too_new};
use crate::embedded_log::format::{FormatError, HEADER_BYTES as SEGMENT_HEADER_BYTES};
use crate::embedded_log::paths::{self, Paths};

/// Acknowledged bytes of each segment, as far as the journals say so.
pub(in crate::embedded_log) type JournaledEnds = BTreeMap<SegmentName, u64>;

/// Journals whose records are in their segments again, durably.
#[derive(Debug, Default)]
pub(in crate::embedded_log) struct ReplayedJournals {
    journals: Vec<PathBuf>,
    pub(in crate::embedded_log) journaled: JournaledEnds,
}

/// Damage that no crash can cause: its offset in the journal, and how it shows.
type Damage = (u64, &'static str);

/// Writes the records of every journal to their segments again. A missing segment was trimmed, or
/// its store was deleted.
pub(in crate::embedded_log) fn replay(
    disk: &Arc<dyn Disk>,
    paths: &Paths,
) -> Result<ReplayedJournals> {
    let mut replayed = ReplayedJournals::default();
    let names = match disk.list(&paths.logs) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(replayed),
        names => names.map_err(|error| io_error("list", &paths.logs, &error))?,
    };
    for name in names {
        let path = paths.logs.join(&name);
        if paths::is_journal_temp(&name) {
            disk.remove(&path).map_err(|error| io_error("remove", &path, &error))?;
        } else if paths::is_journal(&name) {
            let halves = read_halves(disk, &path)?;
            let pieces = pieces(&halves).map_err(|(at, damage)| damage_error(&path, at, damage))?;
            rewrite(disk, paths, &path, pieces, &mut replayed.journaled)?;
            replayed.journals.push(path);
        }
    }
    Ok(replayed)
}

impl ReplayedJournals {
    /// Removes the journals durably. The caller must open the segments first: if that fails, the
    /// next attempt needs the journals to distinguish damage from a torn write.
    pub(in crate::embedded_log) fn retire(
        &self,
        disk: &Arc<dyn Disk>,
        paths: &Paths,
    ) -> Result<()> {
        if self.journals.is_empty() {
            return Ok(());
        }
        for path in &self.journals {
            disk.remove(path).map_err(|error| io_error("remove", path, &error))?;
        }
        let result = disk.sync_dir(&paths.logs);
        result.map_err(|error| io_error("make durable", &paths.logs, &error))
    }
}

/// A half of a journal: its header, if valid, and its bytes.
struct ReplayHalf {
    header: Option<HalfHeader>,
    /// Byte offset of the half in the journal.
    start: u64,
    bytes: Vec<u8>,
}

/// Reads both halves of a journal. At least one header must confirm the length of the file.
fn read_halves(disk: &Arc<dyn Disk>, path: &Path) -> Result<[ReplayHalf; 2]> {
    let unreadable = |error: io::Error| io_error("read", path, &error);
    let file = disk.open(path).map_err(|error| io_error("open", path, &error))?;
    let half_bytes = file.size().map_err(unreadable)? / 2;
    let header = |start| read_header(&*file, path, start, half_bytes);
    let headers = [(header(0)?, 0), (header(half_bytes)?, half_bytes)];
    if headers.iter().all(|(header, _)| header.is_none()) {
        return Err(damage_error(path, 0, "both headers are damaged"));
    }
    let half = |(header, start)| -> Result<ReplayHalf> {
        let mut bytes = vec![0; half_bytes as usize];
        let read = file.read_at(&mut bytes, start).map_err(unreadable)?;
        bytes.truncate(read);
        Ok(ReplayHalf { header, start, bytes })
    };
    let [first, second] = headers;
    Ok([half(first)?, half(second)?])
}

/// Reads the header of a half; returns `None` if the header is damaged.
fn read_header(
    file: &dyn DiskFile,
    path: &Path,
    start: u64,
    half_bytes: u64,
) -> Result<Option<HalfHeader>> {
    let mut bytes = [0; HEADER_BYTES];
    let read = file.read_at(&mut bytes, start).map_err(|error| io_error("read", path, &error))?;
    match HalfHeader::decode(bytes.get(..read).unwrap_or_default()) {
        Ok(header) if header.half_bytes == half_bytes => Ok(Some(header)),
        Ok(_) => Err(damage_error(path, start, "the record's length is not the stated one")),
        Err(FormatError::Version(version)) => Err(too_new(path, version)),
        Err(FormatError::Damaged(_)) => Ok(None),
    }
}

/// Returns the pieces of a journal in write order.
fn pieces([first, second]: &[ReplayHalf; 2]) -> Result<Vec<Piece<'_>>, Damage> {
    let (older, newer) = match (first.header, second.header) {
        (Some(header), Some(other)) if header.first < other.first => (first, second),
        (Some(header), Some(other)) if header.first > other.first => (second, first),
        (Some(_), None) => (second, first),
        (None, Some(_)) => (first, second),
        _ => return Err((second.start, "the header is that of the other half")),
    };
    let end = newer.header.map_or(0, |header| header.first);
    let mut pieces = Vec::new();
    if let Some(begin) = older.first_record(end)? {
        let (next, at) = older.walk(begin, end, &mut pieces)?;
        if next != end {
            return Err((older.start + at as u64, "a record is damaged"));
        }
    }
    let (next, at) = newer.walk(end, u64::MAX, &mut pieces)?;
    match newer.has_record_after(next, at) {
        true => Err((newer.start + at as u64, "a record is damaged")),
        false => Ok(pieces),
    }
}

impl ReplayHalf {
    fn rest_from(&self, at: usize) -> &[u8] {
        self.bytes.get(at..).unwrap_or_default()
    }

    /// Returns the number of the first record of a half whose last record precedes `end`; `None` if
    /// the half was never used.
    ///
    /// A damaged header was being written to start the half again. In this case either the old
    /// records are still whole, or the half had none.
    fn first_record(&self, end: u64) -> Result<Option<u64>, Damage> {
        let begin = match self.header {
            Some(header) => header.first,
            None => {
                let records = self.rest_from(HEADER_BLOCK_BYTES);
                match Record::decode(records, |sequence| (1..end).contains(&sequence)) {
                    Some(record) => record.sequence,
                    None if records.iter().all(|byte| *byte == 0) => 0,
                    None => return Err((self.start, "the header is damaged")),
                }
            }
        };
        match begin {
            // The other half is the first one that was ever used.
            0 if end == 1 => Ok(None),
            0 => Err((self.start, "records are missing")),
            begin => Ok(Some(begin)),
        }
    }

    /// Collects the records numbered from `next` to `end`; returns the first number that was not
    /// found and the offset at which its record should be.
    fn walk<'a>(
        &'a self,
        mut next: u64,
        end: u64,
        pieces: &mut Vec<Piece<'a>>,
    ) -> Result<(u64, usize), Damage> {
        let mut at = HEADER_BLOCK_BYTES;
        while next < end
            && let Some(record) = Record::decode(self.rest_from(at), |sequence| sequence == next)
        {
            let record_pieces = record.pieces();
            pieces.extend(
                record_pieces.ok_or((self.start + at as u64, "a record's pieces are damaged"))?,
            );
            at += record.bytes();
            next = next.saturating_add(1);
        }
        Ok((next, at))
    }

    /// Returns whether a later record follows anywhere after an offset; if so, the missing record
    /// was durable. Remains of an earlier use of the half have lower numbers.
    fn has_record_after(&self, missing_sequence: u64, at: usize) -> bool {
        let bytes = self.rest_from(at);
        let max = missing_sequence.saturating_add((bytes.len() / RECORD_HEADER_BYTES) as u64);
        let is_later = |sequence| missing_sequence < sequence && sequence <= max;
        (1..bytes.len()).any(|skipped| {
            Record::decode(bytes.get(skipped..).unwrap_or_default(), is_later).is_some()
        })
    }
}

/// Writes pieces to their segments and makes them durable. The function also rewrites bytes that
/// the page cache shows: after a failed fdatasync the disk may not have them.
fn rewrite(
    disk: &Arc<dyn Disk>,
    paths: &Paths,
    journal: &Path,
    pieces: Vec<Piece<'_>>,
    journaled: &mut JournaledEnds,
) -> Result<()> {
    let mut segments: BTreeMap<SegmentName, Vec<Piece<'_>>> = BTreeMap::new();
    for piece in pieces {
        segments.entry((piece.at, piece.base)).or_default().push(piece);
    }
    for ((at, base), pieces) in segments {
        let path = paths::segment(&paths.partition(at), base);
        let file = match disk.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file.map_err(|error| io_error("open", &path, &error))?,
        };
        let end = rewrite_segment(&*file, &path, &pieces)?;
        tracing::info!(
            path = %path.display(),
            journal = %journal.display(),
            pieces = pieces.len(),
            end,
            "segment repaired from the journal"
        );
        journaled.insert((at, base), end);
    }
    Ok(())
}

/// Writes pieces to one segment and returns the end of the last piece. Bytes before a piece were
/// durable, in the segment or by earlier pieces, so a gap is damage.
fn rewrite_segment(file: &dyn DiskFile, path: &Path, pieces: &[Piece<'_>]) -> Result<u64, Error> {
    let mut size = file.size().map_err(|error| io_error("read", path, &error))?;
    let mut end_max = 0;
    for piece in pieces {
        if !(SEGMENT_HEADER_BYTES..=size).contains(&piece.place) {
            return Err(damage_error(
                path,
                size,
                "the segment is shorter than the journal expects",
            ));
        }
        let result = file.write_at(piece.bytes, piece.place);
        result.map_err(|error| io_error("write", path, &error))?;
        let end = piece.place + piece.bytes.len() as u64;
        (size, end_max) = (size.max(end), end_max.max(end));
    }
    file.sync_data().map_err(|error| io_error("make durable", path, &error))?;
    Ok(end_max)
}

#[cfg(test)]
mod tests {
    use super::super::format::encode_record;
    use super::*;
    use forebay_core::id::{Offset, PartitionId, PartitionRef, StoreId};

    const AT: PartitionRef = PartitionRef { store: StoreId(1), partition: PartitionId(0) };

    fn record(sequence: u64) -> Vec<u8> {
        // Record lengths differ, so that records of two uses of a half do not end at the same
        // offsets.
        let bytes = vec![sequence as u8; 50 + sequence as usize * 7 % 20];
        encode_record(
            sequence,
            &[Piece { at: AT, base: Offset(0), place: sequence, bytes: &bytes }],
        )
    }

    /// Returns a half that was started at record `first` and has `count` records, over the bytes of
    /// `before`.
    fn half(start: u64, first: u64, count: u64, before: Option<&ReplayHalf>) -> ReplayHalf {
        let records: Vec<u8> = (first..first + count).flat_map(record).collect();
        let mut bytes = before.map_or_else(|| vec![0; 6_000], |before| before.bytes.clone());
        bytes[HEADER_BLOCK_BYTES..HEADER_BLOCK_BYTES + records.len()].copy_from_slice(&records);
        let half_bytes = bytes.len() as u64;
        ReplayHalf { header: Some(HalfHeader { half_bytes, first }), start, bytes }
    }

    fn numbers(halves: &[ReplayHalf; 2]) -> Result<Vec<u64>, Damage> {
        Ok(pieces(halves)?.iter().map(|piece| piece.place).collect())
    }

    /// Returns the journal after record `last`, if a half takes three records.
    fn journal(last: u64) -> [ReplayHalf; 2] {
        let mut halves = [half(0, 1, 0, None), half(6_000, 0, 0, None)];
        for first in (1..=last).step_by(3) {
            let place = usize::from(first / 3 % 2 == 1);
            let count = 3.min(last - first + 1);
            halves[place] = half(halves[place].start, first, count, Some(&halves[place]));
        }
        halves
    }

    #[test]
    fn both_halves_are_replayed_in_write_order() {
        for last in 0..14_u64 {
            // The older half is whole; anything older was overwritten.
            let first = (last.saturating_sub(1) / 3 * 3 + 1).saturating_sub(3).max(1);
            let expected: Vec<u64> = (first..=last).collect();
            assert_eq!(numbers(&journal(last)), Ok(expected), "{last} records");
        }
    }

    /// Proves that a half without records ends the journal, whether its header is durable or torn.
    #[test]
    fn half_without_records_ends_the_journal() {
        for last in [3, 6, 9, 12] {
            let mut halves = journal(last);
            let next = usize::from(last / 3 % 2 == 1);
            let next_half = half(halves[next].start, last + 1, 0, Some(&halves[next]));
            halves[next] = next_half;
            assert_eq!(numbers(&halves), Ok((last - 2..=last).collect()), "after {last}");
            halves[next].header = None;
            // The old records of the half are still whole, and are read once more.
            let first = last.saturating_sub(5).max(1);
            assert_eq!(numbers(&halves), Ok((first..=last).collect()), "after {last}, torn");
        }
    }

    #[test]
    fn replay_accepts_only_a_torn_last_record() {
        for last in 2..12_u64 {
            let sound = journal(last);
            let newer = usize::from((last - 1) / 3 % 2 == 1);
            for number in [0, 1] {
                let first = sound[number].header.map_or(0, |header| header.first);
                let in_use = (first..=last.min(first + 2)).filter(|_| first > 0);
                let mut at = HEADER_BLOCK_BYTES;
                for sequence in in_use {
                    let mut halves = journal(last);
                    halves[number].bytes[at + 20] ^= 1;
                    let context = format!("record {sequence} of {last}");
                    match numbers(&halves) {
                        Ok(read) => {
                            assert!(number == newer && sequence == last, "{context}: {read:?}");
                            assert_eq!(read.last().copied().unwrap_or_default(), last - 1);
                        }
                        Err((place, _)) => {
                            assert_eq!(place, sound[number].start + at as u64, "{context}");
                            assert!(sequence < last, "{context}");
                        }
                    }
                    at += record(sequence).len();
                }
            }
        }
    }

    #[test]
    fn damaged_header_loses_no_record_silently() {
        for last in 1..12_u64 {
            let newer = usize::from((last - 1) / 3 % 2 == 1);
            let sound = numbers(&journal(last)).unwrap();
            let mut halves = journal(last);
            halves[1 - newer].header = None;
            assert_eq!(numbers(&halves), Ok(sound), "older of {last}");
            let mut halves = journal(last);
            halves[newer].header = None;
            let found = numbers(&halves).map_err(|(at, _)| at);
            assert_eq!(found, Err(halves[newer].start), "newer of {last}");
        }
    }

    #[test]
    fn halves_that_repeat_or_skip_records_are_damaged() {
        let [first, _] = journal(3);
        let twin = ReplayHalf { start: 6_000, ..journal(3).into_iter().next().unwrap() };
        assert!(numbers(&[first, twin]).is_err());
        let [first, mut second] = journal(6);
        second.header = Some(HalfHeader { first: 5, ..second.header.unwrap() });
        assert!(numbers(&[first, second]).is_err(), "record 4 is missing");
        let [_, second] = journal(6);
        assert!(numbers(&[half(0, 0, 0, None), second]).is_err(), "records 1 to 3 are missing");
    }
}
