//! Pages of a partition's dead letters.

use forebay_core::change::EntryBody;
use forebay_core::dead_letter::{DeadLetter, LastLetter};
use forebay_core::id::PartitionRef;
use forebay_core::{Error, Result};
use forebay_entries::find_log_id;
use forebay_log::ChangeLog;
use forebay_wire::dead_letter::Cursor;
use forebay_wire::entry::decode_entry;

use super::tail::{READ, bounds};

/// Returns the letters after a cursor and the start of the next page; `None` if the log has no
/// records. A page has at least one record of the log and at most about `letters_max` letters.
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
            let entry = decode_entry(&record.entry).ok().filter(|entry| entry.log_id == log_id);
            let found = match entry.map(|entry| entry.body) {
                Some(EntryBody::DeadLetters(found)) => found,
                // The record holds no letters: it is a log header entry, or one that every reader
                // of this log skips.
                _ => Vec::new(),
            };
            if !letters.is_empty() && letters.len() + found.len() > letters_max {
                return Ok((letters, Some(cursor)));
            }
            let is_first = |letter: &DeadLetter| LastLetter::admit(&mut cursor.last, letter);
            letters.extend(found.into_iter().filter(is_first));
            cursor.offset = record.offset.next();
        }
    }
    Ok((letters, Some(cursor)))
}
