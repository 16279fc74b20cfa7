//! A file that is read while it is being downloaded chunk by chunk, in any order: a read of a
//! missing chunk blocks until the chunk arrives.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use forebay_core::limits::READER_FETCHED_AHEAD_BYTES;
use forebay_index::ImageFile;
use forebay_log::disk::DiskFile;
use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

/// A partially downloaded file. A waiting read blocks its thread.
#[derive(Debug)]
pub(crate) struct PartialFile {
    file: Arc<dyn DiskFile>,
    bytes: u64,
    /// Size of each chunk except the last.
    chunk_bytes: u64,
    arrived: Mutex<PresentChunks>,
    changed: Condvar,
    /// End of the most recently requested byte range.
    wanted_end: watch::Sender<u64>,
}

#[derive(Debug)]
struct PresentChunks {
    /// Presence of each chunk, by chunk number.
    is_there: Vec<bool>,
    has_ended: bool,
}

impl PartialFile {
    /// Returns a file of `bytes` bytes in chunks of `chunk_bytes`, none of which is present yet.
    pub(crate) fn new(file: Arc<dyn DiskFile>, bytes: u64, chunk_bytes: u64) -> Self {
        let chunk_bytes = chunk_bytes.max(1);
        let is_there = vec![false; bytes.div_ceil(chunk_bytes) as usize];
        let arrived = Mutex::new(PresentChunks { is_there, has_ended: false });
        let (changed, wanted_end) = (Condvar::new(), watch::Sender::new(0));
        Self { file, bytes, chunk_bytes, arrived, changed, wanted_end }
    }

    /// Waits until the chunk at `offset` is close enough to the read position: a chunk that
    /// arrives earlier only fills memory.
    pub(crate) async fn wait_turn(&self, offset: u64) {
        let is_near =
            |wanted_end: &u64| offset <= wanted_end.saturating_add(READER_FETCHED_AHEAD_BYTES);
        // Never closed: `self` holds the sender.
        drop(self.wanted_end.subscribe().wait_for(is_near).await);
    }

    /// Lets all chunks arrive, regardless of the read position.
    pub(crate) fn want_all(&self) {
        self.wanted_end.send_replace(u64::MAX);
    }

    /// Notes that the chunk at `offset` is present and verified.
    pub(crate) fn note(&self, offset: u64) {
        let mut arrived = self.arrived.lock();
        if let Some(is_there) = arrived.is_there.get_mut((offset / self.chunk_bytes) as usize) {
            *is_there = true;
        }
        self.changed.notify_all();
    }

    /// Notes that no more chunks will arrive: reads that wait for a missing chunk fail.
    pub(crate) fn end(&self) {
        self.arrived.lock().has_ended = true;
        self.changed.notify_all();
    }

    /// Returns whether some chunk will never arrive.
    pub(crate) fn has_failed(&self) -> bool {
        let arrived = self.arrived.lock();
        arrived.has_ended && !arrived.is_there.iter().all(|is_there| *is_there)
    }

    fn wait_for(&self, bytes: Range<u64>) -> io::Result<()> {
        let first = (bytes.start / self.chunk_bytes) as usize;
        let end = bytes.end.min(self.bytes).div_ceil(self.chunk_bytes) as usize;
        self.wanted_end.send_if_modified(|wanted_end| {
            let is_new = *wanted_end != u64::MAX && *wanted_end != bytes.end;
            if is_new {
                *wanted_end = bytes.end;
            }
            is_new
        });
        let mut arrived = self.arrived.lock();
        loop {
            let wanted_chunks = arrived.is_there.get(first..end).unwrap_or_default();
            if wanted_chunks.iter().all(|is_there| *is_there) {
                return Ok(());
            }
            if arrived.has_ended {
                return Err(io::Error::other(
                    "snapshot download ended before the file was complete",
                ));
            }
            self.changed.wait(&mut arrived);
        }
    }
}

impl ImageFile for PartialFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.bytes)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.wait_for(offset..offset.saturating_add(buffer.len() as u64))?;
        self.file.read_at(buffer, offset)
    }

    /// Waits for the whole file: a mapping would show missing chunks as zeros.
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        // If a chunk never arrives, the caller falls back to `read_at`, which returns the error.
        self.wait_for(0..self.bytes).ok()?;
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use forebay_log::disk::open_file;

    use super::*;

    const CHUNK: u64 = 10;
    const BYTES: u64 = 35;

    fn partial() -> PartialFile {
        PartialFile::new(open_file(tempfile::tempfile().unwrap()), BYTES, CHUNK)
    }

    fn write(to: &PartialFile, chunk: u64) {
        let bytes = CHUNK.min(BYTES - chunk * CHUNK) as usize;
        to.file.write_at(&vec![chunk as u8; bytes], chunk * CHUNK).unwrap();
        to.note(chunk * CHUNK);
    }

    #[test]
    fn read_waits_only_for_its_own_chunks() {
        let file = partial();
        assert_eq!(file.size().unwrap(), BYTES);
        write(&file, 3);
        let mut last = [9; 10];
        assert_eq!(file.read_at(&mut last, 30).unwrap(), 5, "the file ends there");
        assert_eq!(last[..5], [3; 5]);
        thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut both_chunks = [9; 12];
                file.read_at(&mut both_chunks, 9).map(|read| (read, both_chunks))
            });
            write(&file, 1);
            thread::sleep(Duration::from_millis(10));
            assert!(!reading.is_finished());
            write(&file, 0);
            thread::sleep(Duration::from_millis(10));
            assert!(!reading.is_finished(), "a byte of the third is wanted, too");
            write(&file, 2);
            let (read, both_chunks) = reading.join().unwrap().unwrap();
            assert_eq!((read, both_chunks[0], both_chunks[11]), (12, 0, 2));
            assert!(both_chunks[1..11].iter().all(|byte| *byte == 1));
        });
        file.end();
        assert!(!file.has_failed());
        assert!(file.as_fd().is_some());
    }

    #[tokio::test]
    async fn fetches_far_ahead_of_the_reader_wait() {
        let file = partial();
        let far_offset = READER_FETCHED_AHEAD_BYTES + 1;
        file.wait_turn(far_offset - 1).await;
        let may_come = async |offset| {
            let outcome = tokio::time::timeout(Duration::from_millis(10), file.wait_turn(offset));
            outcome.await.is_ok()
        };
        assert!(!may_come(far_offset).await);
        write(&file, 0);
        file.read_at(&mut [0; 4], 0).unwrap();
        assert!(may_come(far_offset + 3).await);
        assert!(!may_come(far_offset + 4).await);
        // The end of the file is read first; that read does not count for later reads at lower
        // offsets.
        write(&file, 3);
        file.read_at(&mut [0; 4], 30).unwrap();
        assert!(may_come(far_offset + 20).await);
        file.read_at(&mut [0; 4], 0).unwrap();
        assert!(!may_come(far_offset + 20).await);
        file.want_all();
        file.read_at(&mut [0; 4], 0).unwrap();
        assert!(may_come(u64::MAX).await);
    }

    #[test]
    fn read_of_a_failed_download_is_an_error() {
        let file = partial();
        write(&file, 0);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| file.as_fd().is_none());
            file.end();
            assert!(waiting.join().unwrap());
        });
        assert!(file.has_failed());
        let mut bytes = [0; 4];
        assert_eq!(file.read_at(&mut bytes, 2).unwrap(), 4);
        file.read_at(&mut bytes, 8).unwrap_err();
    }
}
