//! Pages through a partition's dead letters.

use forebay_core::change::EntryBody;
use forebay_core::dead_letter::{DeadLetter, LastLetter};
use forebay_core::id::PartitionRef;
use forebay_core::{Error, Result};
use forebay_log::{ChangeLog, find_log_id};
use forebay_wire::dead_letter::Cursor;
use forebay_wire::entry::decode_entry;

use super::tail::{READ, bounds};

/// Letters behind a cursor, at least one record of the log's and at most about `letters_max`, and
/// where the next page begins; `None` for a log that has none.
///
/// # Errors
/// `TokenLost` for the cursor of another log, else those of the log.
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
        let message = "the cursor is of a dead-letter log that is gone; begin without a cursor";
        return Err(Error::token_lost(message).with_partition(at.partition));
    }
    // What was trimmed since is gone.
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
                // No letters: an opening, or what every reader of this log skips.
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
