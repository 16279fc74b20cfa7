//! Dead letters: copies of records that every replica of a partition skips, stored where people can
//! inspect them (`tools/docs/src/semantics.md`, section 3).

use crate::clock::Timestamp;
use crate::error::Error;
use crate::id::{Epoch, LogId, Offset};
use crate::limits::DEAD_LETTER_BYTES_MAX;

/// A copy of one skipped record, with its position in its own log, the home log.
#[derive(Clone, Debug, PartialEq)]
pub struct DeadLetter {
    /// Id of the home log.
    pub home_log: LogId,
    /// Home epoch according to the record; 0 if the record's bytes do not decode.
    pub epoch: Epoch,
    /// Offset in the home log.
    pub offset: Offset,
    /// Time at which the home log appended the record.
    pub append_time: Timestamp,
    /// Reason for which replicas skip the record.
    pub reason: Error,
    /// Bytes of the record in the home log, or the first [`DEAD_LETTER_BYTES_MAX`] of them.
    pub entry: Vec<u8>,
    /// Number of bytes in the home log.
    pub entry_bytes: u64,
}

impl DeadLetter {
    /// Returns whether the letter holds all bytes of its record.
    pub fn is_whole(&self) -> bool {
        self.entry.len() as u64 == self.entry_bytes
    }

    /// Returns as many of a record's bytes as a letter holds.
    pub fn held(entry: &[u8]) -> &[u8] {
        &entry[..entry.len().min(DEAD_LETTER_BYTES_MAX)]
    }
}

/// The last letter of a dead-letter log: all skipped records up to it were copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastLetter {
    /// Home log of the letter.
    pub home_log: LogId,
    /// Offset in the home log.
    pub offset: Offset,
}

impl LastLetter {
    /// Advances to the next letter, in the order of the dead-letter log. Returns whether the letter
    /// is the first of its position. A letter at or below the last one of its home log is a repeat:
    /// its copier did not learn the outcome of an append and appended again.
    pub fn advance(last: &mut Option<Self>, letter: &DeadLetter) -> bool {
        let next = Self { home_log: letter.home_log, offset: letter.offset };
        let is_first = !last.is_some_and(|last| last.covers(next.home_log, next.offset));
        if is_first {
            *last = Some(next);
        }
        is_first
    }

    /// Returns whether the record at this offset of this log was copied.
    pub fn covers(&self, home_log: LogId, offset: Offset) -> bool {
        self.home_log == home_log && offset <= self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(home_log: u64, offset: u64) -> DeadLetter {
        DeadLetter {
            home_log: LogId(home_log),
            epoch: Epoch(0),
            offset: Offset(offset),
            append_time: Timestamp::from_micros(1),
            reason: Error::corrupt("garbage"),
            entry: vec![1],
            entry_bytes: 1,
        }
    }

    #[test]
    fn dead_letter_position_counts_once_and_another_log_restarts_the_count() {
        let mut last = None;
        let copies = [(5, 3), (5, 3), (5, 7), (5, 4), (6, 0), (6, 0), (6, 9)];
        let counted_flags =
            copies.map(|(log, offset)| LastLetter::advance(&mut last, &letter(log, offset)));
        assert_eq!(counted_flags, [true, false, true, false, true, false, true]);
        assert_eq!(last, Some(LastLetter { home_log: LogId(6), offset: Offset(9) }));
    }

    #[test]
    fn dead_letter_is_cut_to_its_size_limit() {
        let large = vec![7; DEAD_LETTER_BYTES_MAX + 5];
        assert_eq!(DeadLetter::held(&large).len(), DEAD_LETTER_BYTES_MAX);
        assert_eq!(DeadLetter::held(&large[..9]), [7; 9]);
    }
}
