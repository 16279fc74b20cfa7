//! The journal at the target of a copy: a record of each durable part.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use forebay_core::Result;
use forebay_wire::shard_copy::{part_record, read_parts};
use forebay_wire::v1;

use super::files::disk_error;

/// The journal, open at its end.
pub(super) struct PartsJournal {
    file: File,
    /// Byte offset of the next record.
    end: u64,
}

impl PartsJournal {
    /// Opens the journal, truncates a torn tail, and returns the recorded parts.
    ///
    /// # Errors
    /// `Unavailable` if the disk refuses.
    pub fn open(path: &Path) -> Result<(Self, Vec<v1::CopyPart>)> {
        let opening = || {
            let mut file =
                File::options().read(true).write(true).create(true).truncate(false).open(path)?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            let (parts, end) = read_parts(&bytes);
            file.set_len(end)?;
            file.seek(SeekFrom::Start(end))?;
            Ok((Self { file, end }, parts))
        };
        opening().map_err(|error| disk_error("opening the parts of a copy", &error))
    }

    /// Appends a part durably.
    ///
    /// # Errors
    /// `Unavailable` if the disk refuses; the part does not count then.
    pub fn append(&mut self, part: &v1::CopyPart) -> Result<()> {
        let record = part_record(part);
        let mut appending = || {
            // The record overwrites the remains of a failed append.
            self.file.seek(SeekFrom::Start(self.end))?;
            self.file.write_all(&record)?;
            self.file.sync_data()
        };
        appending().map_err(|error| disk_error("noting a part of a copy", &error))?;
        self.end += record.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(range: u32, last_key: &[u8]) -> v1::CopyPart {
        let end = v1::CopyPartEnd { rows: 7, digest: vec![1; 16].into(), is_range_end: false };
        v1::CopyPart {
            range,
            file: range,
            last_key: last_key.to_vec().into(),
            bytes: 9,
            end: Some(end),
        }
    }

    #[test]
    fn torn_journal_end_is_cut_and_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("parts");
        let (mut journal, parts) = PartsJournal::open(&path).unwrap();
        assert!(parts.is_empty());
        let (first_part, second_part) = (part(1, b""), part(2, b"key"));
        journal.append(&first_part).unwrap();
        journal.append(&second_part).unwrap();
        let journal_bytes = std::fs::read(&path).unwrap();
        let first = part_record(&first_part).len();
        for length in 0..journal_bytes.len() {
            std::fs::write(&path, &journal_bytes[..length]).unwrap();
            let (mut journal, found) = PartsJournal::open(&path).unwrap();
            assert_eq!(
                found,
                if length < first { vec![] } else { vec![first_part.clone()] },
                "{length}"
            );
            journal.append(&second_part).unwrap();
            let (_, found) = PartsJournal::open(&path).unwrap();
            assert_eq!(found.last(), Some(&second_part));
        }
    }
}
