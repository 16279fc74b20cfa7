//! Reads of a partition's dead-letter log: its end, on start and after any append that failed or is
//! of unknown outcome, and pages of its letters.

use std::time::Duration;

use forebay_core::change::EntryBody;
use forebay_core::dead_letter::{DeadLetter, LastLetter};
use forebay_core::id::{LogId, Offset, PartitionRef};
use forebay_core::limits::DEAD_LETTERS_PAGE_BYTES_MAX;
use forebay_core::{Error, ErrorCode, Result};
use forebay_entries::find_log_id;
use forebay_log::{Bounds, ChangeLog, LogRecord, ReadLimit};
use forebay_wire::dead_letter::Cursor;
use forebay_wire::entry::decode_entry;

const READ: ReadLimit =
    ReadLimit { bytes_max: DEAD_LETTERS_PAGE_BYTES_MAX, wait_max: Duration::ZERO };
/// Limit of a read of one record.
const FIRST_READ: ReadLimit = ReadLimit { bytes_max: 1, wait_max: Duration::ZERO };

/// State of a partition's dead-letter log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeadLetterTail {
    /// Id of the log; `None` before its log header entry.
    pub(super) log_id: Option<LogId>,
    /// First offset in the log.
    pub(super) start: Offset,
    /// The last letter in the log.
    pub(super) last: Option<LastLetter>,
}

/// Returns the bounds of a log; `None` if it was never created.
pub(super) async fn bounds(log: &dyn ChangeLog, at: PartitionRef) -> Result<Option<Bounds>> {
    match log.bounds(at).await {
        Ok(bounds) => Ok(Some(bounds)),
        Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the end of the dead-letter log; returns `None` if it was never created.
///
/// The function reads two records, unless the log's last record holds no letters.
pub(super) async fn read_back(
    log: &dyn ChangeLog,
    at: PartitionRef,
) -> Result<Option<DeadLetterTail>> {
    let Some(bounds) = bounds(log, at).await? else { return Ok(None) };
    let (found, start) = (find_log_id(log, at, bounds).await?, bounds.start);
    let mut tail = DeadLetterTail { log_id: found, start, last: None };
    let Some(log_id) = found else { return Ok(Some(tail)) };
    let last = Offset(bounds.end.0.saturating_sub(1));
    let records = log.read(at, last, FIRST_READ).await?.records;
    if let Some(last) = records.first().and_then(|record| last_letter(record, log_id)) {
        return Ok(Some(DeadLetterTail { last: Some(last), ..tail }));
    }
    let mut from = bounds.start;
    while from < bounds.end {
        let records = log.read(at, from, READ).await?.records;
        let Some(last) = records.last() else { break };
        from = last.offset.next();
        let found = records.iter().filter_map(|record| last_letter(record, log_id)).next_back();
        tail.last = found.or(tail.last);
    }
    Ok(Some(tail))
}

/// Returns the letters of a record. A log header entry, and an entry that every reader of this log
/// skips, have none.
fn letters_of(record: &LogRecord, log_id: LogId) -> Vec<DeadLetter> {
    let entry = decode_entry(&record.entry).ok().filter(|entry| entry.log_id == log_id);
    match entry.map(|entry| entry.body) {
        Some(EntryBody::DeadLetters(letters)) => letters,
        _ => Vec::new(),
    }
}

/// Returns the last letter of a record.
fn last_letter(record: &LogRecord, log_id: LogId) -> Option<LastLetter> {
    let letters = letters_of(record, log_id);
    letters.last().map(|letter| LastLetter { home_log: letter.home_log, offset: letter.offset })
}

/// Returns the letters after a cursor and the start of the next page, which is the given cursor if
/// the log has no records. A page has at least one record of the log and at most about
/// `letters_max` letters.
///
/// # Errors
/// `TokenLost` for a cursor of another log, else as the log's reads.
pub(crate) async fn list(
    log: &dyn ChangeLog,
    at: PartitionRef,
    cursor: Option<Cursor>,
    letters_max: usize,
) -> Result<(Vec<DeadLetter>, Option<Cursor>)> {
    let Some(bounds) = bounds(log, at).await? else { return Ok((Vec::new(), cursor)) };
    let Some(log_id) = find_log_id(log, at, bounds).await? else {
        return Ok((Vec::new(), cursor));
    };
    let mut cursor = cursor.unwrap_or(Cursor { log_id, offset: bounds.start, last: None });
    if cursor.log_id != log_id {
        let message = "the dead-letter log of the cursor is gone; begin without a cursor";
        return Err(Error::token_lost(message).with_partition(at.partition));
    }
    // Skips the records that were trimmed since.
    cursor.offset = cursor.offset.max(bounds.start);
    let mut letters = Vec::new();
    while letters.is_empty() && cursor.offset < bounds.end {
        let records = log.read(at, cursor.offset, READ).await?.records;
        if records.is_empty() {
            break;
        }
        for record in records {
            let found = letters_of(&record, log_id);
            if !letters.is_empty() && letters.len() + found.len() > letters_max {
                return Ok((letters, Some(cursor)));
            }
            let is_first = |letter: &DeadLetter| LastLetter::advance(&mut cursor.last, letter);
            letters.extend(found.into_iter().filter(is_first));
            cursor.offset = record.offset.next();
        }
    }
    Ok((letters, Some(cursor)))
}
