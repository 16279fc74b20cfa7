//! Memory in a file that several processes map: one of them writes, the others read.
//!
//! The file has its full length from the start, and is sparse. Each opened part is allocated first,
//! so a full disk causes an error and never a signal. The file never shrinks, and no holes are
//! punched in it: a reader that comes late, to memory that was taken out of use, must still find
//! memory there. Memory out of use is reused only after a word is incremented that such a reader
//! checks once more before it uses its copy.
//!
//! After the addresses comes the *map*: two words for each smallest chunk, with the facts about the
//! chunk that begins there which a successor needs when it takes over.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::{Error, Result};
use rustix::fs::{
    FallocateFlags, FlockOperation, OFlags, StatFs, fallocate, flock, fstatfs, fstatvfs,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap};
use rustix::process::{Resource, getrlimit};

use super::geometry::{
    BLOCK_BYTES, CHUNK_BYTES_MIN, Chunk, RESERVED_BYTES_MIN, SPACE_HEADER_NAME_AT,
};
use super::space_header::SpaceHeader;
use crate::schedule;

/// Bytes of the map for each smallest chunk.
const NOTE_BYTES: u64 = 16;
/// The kind of a chunk, in the low bits of the first word of its note.
const SEGMENT: u64 = 1;
const GROUP: u64 = 2;
const KIND_BITS: u32 = 2;
const ORDER_BITS: u32 = 4;
/// Bytes of a page.
const PAGE_BYTES: u64 = 4_096;
/// Retries of a huge page: two or three have sufficed, each of about a millisecond.
const COLLAPSE_TRIES: usize = 16;

/// The map's note of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentNote {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) used: u64,
    pub(crate) live: u64,
    /// Serial of the table whose records are in it.
    pub(crate) serial: u64,
}

/// The file of a shared space.
#[derive(Debug)]
pub(crate) struct SpaceFile {
    file: File,
    base: NonNull<u8>,
    reserved: u64,
    is_written: bool,
    /// Whether the file is in a memory file system.
    is_in_memory: bool,
}

/// Bytes of the addresses and the map of a shared space with this many addresses.
pub(crate) fn mapped_bytes(reserved: u64) -> u64 {
    reserved + reserved / CHUNK_BYTES_MIN * NOTE_BYTES
}

/// Returns the number of addresses of a file of this length.
fn reserved_of(mapped: u64) -> Option<u64> {
    let reserved = 1_u64.checked_shl(mapped.checked_ilog2()?)?;
    let is_valid = reserved >= RESERVED_BYTES_MIN && mapped_bytes(reserved) == mapped;
    is_valid.then_some(reserved)
}

/// Creates the file of a space with at most this many addresses; `header_name` says what the space
/// is part of. Returns the file and its number of addresses.
///
/// # Errors
/// `Unavailable`, `LimitExceeded`.
pub(super) fn create(path: &Path, reserved_max: u64, header_name: &[u8]) -> Result<(File, u64)> {
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(path)
        .map_err(|error| file_error("make", path, &error))?;
    // Beyond this limit the system sends a signal instead of an error.
    let longest = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    let mut reserved = reserved_max;
    while mapped_bytes(reserved) > longest && reserved > RESERVED_BYTES_MIN {
        reserved /= 2;
    }
    if mapped_bytes(reserved) > longest {
        let message = "the limit of file lengths is below the length of a shared copy; raise the \
            limit (ulimit -f)";
        return Err(Error::limit_exceeded(message, longest, mapped_bytes(reserved)));
    }
    file.set_len(mapped_bytes(reserved)).map_err(|error| file_error("make", path, &error))?;
    allocate(&file, 0, PAGE_BYTES)?;
    // This is written at once: otherwise no process could recognize the file after its creator was
    // killed.
    file.write_all_at(header_name, SPACE_HEADER_NAME_AT)
        .map_err(|error| file_error("write", path, &error))?;
    Ok((file, reserved))
}

/// Opens the file of an existing space; returns the file and its number of addresses.
///
/// # Errors
/// `NotFound` for a name that is gone; `Corrupt` if it is no such file; `Unavailable`.
pub(super) fn open(path: &Path, is_written: bool) -> Result<(File, u64)> {
    let file = File::options()
        .read(true)
        .write(is_written)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(path);
    let file = file.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::not_found("the file of the shared copy is gone"),
        _ => file_error("open", path, &error),
    })?;
    let metadata = file.metadata().map_err(|error| file_error("look at", path, &error))?;
    let reserved =
        reserved_of(metadata.size()).filter(|_| metadata.is_file()).ok_or_else(|| {
            Error::corrupt("the file of the shared copy is not a regular file of a valid length")
        })?;
    Ok((file, reserved))
}

impl SpaceFile {
    /// Maps a file over addresses that were reserved for it.
    ///
    /// # Safety
    /// As many bytes as the file has are reserved from `base` on, and no thread uses them.
    pub(super) unsafe fn map(
        file: File,
        base: NonNull<u8>,
        reserved: u64,
        is_written: bool,
    ) -> Result<Self> {
        let bytes = mapped_bytes(reserved) as usize;
        let mut protect = ProtFlags::READ;
        protect.set(ProtFlags::WRITE, is_written);
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the range is the caller's and unused.
        let mapped = unsafe { mmap(base.as_ptr().cast(), bytes, protect, flags, &file, 0) };
        mapped.map_err(|error| {
            Error::unavailable(format!(
                "a shared copy cannot be mapped: {error}; use another directory"
            ))
        })?;
        // SAFETY: our own mapping; core dumps leave it out, and reads work as before.
        let _result = unsafe { madvise(base.as_ptr().cast(), bytes, Advice::LinuxDontDump) };
        let is_in_memory = fstatfs(&file).is_ok_and(|stat| is_of_memory(&stat));
        Ok(Self { file, base, reserved, is_written, is_in_memory })
    }

    pub(super) fn is_in_memory(&self) -> bool {
        self.is_in_memory
    }

    /// Moves a block into a huge page, for all processes that map it; returns whether the system
    /// can do so.
    pub(super) fn collapse(&self, block: u64) -> bool {
        let mut tries = 0..COLLAPSE_TRIES;
        loop {
            // SAFETY: a block of our own mapping; its pages move, their content stays.
            let advice_result = unsafe {
                let start = self.base.as_ptr().add(block as usize);
                libc::madvise(start.cast(), BLOCK_BYTES as usize, libc::MADV_COLLAPSE)
            };
            match (advice_result, io::Error::last_os_error().raw_os_error()) {
                (0, _) => return true,
                // The system is using one of the block's small pages for a moment.
                (_, Some(libc::EAGAIN)) if tries.next().is_some() => {}
                (_, error) => return error != Some(libc::EINVAL),
            }
        }
    }

    /// Whether somebody reads donated memory: the file has another name, or is locked.
    pub(crate) fn is_donated(&self) -> bool {
        // The space itself has one name for the file, or none once another space has replaced it.
        let has_other_name = self.file.metadata().map_or(true, |metadata| metadata.nlink() > 1);
        if has_other_name || flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return true;
        }
        // If the unlock fails, the lock ends with the file.
        let _result = flock(&self.file, FlockOperation::Unlock);
        false
    }

    pub(super) fn is_written(&self) -> bool {
        self.is_written
    }

    /// The words of the space.
    pub(super) fn header(&self) -> NonNull<SpaceHeader> {
        self.base.cast()
    }

    /// Makes addresses usable that are not in use yet, with their part of the map.
    ///
    /// # Errors
    /// `LimitExceeded` if there is no room for them.
    pub(super) fn open_addresses(&self, start: u64, bytes: u64) -> Result<()> {
        let note = |address: u64| self.reserved + address / CHUNK_BYTES_MIN * NOTE_BYTES;
        let notes = note(start) / PAGE_BYTES * PAGE_BYTES;
        allocate(&self.file, notes, note(start + bytes) - notes)?;
        allocate(&self.file, start, bytes)
    }

    fn note(&self, address: u64) -> [&AtomicU64; 2] {
        debug_assert!(self.is_written && address < self.reserved);
        let note_offset = self.reserved + address / CHUNK_BYTES_MIN * NOTE_BYTES;
        // SAFETY: the map is after the addresses, is long enough for all of them, and is only
        // accessed as atomics.
        [0, 1].map(|word| unsafe {
            &*self.base.as_ptr().add(note_offset as usize).cast::<AtomicU64>().add(word)
        })
    }

    /// Notes how far a segment is filled, and how many of its bytes are live.
    pub(super) fn note_segment(&self, chunk: &Chunk, used: u64, live: u64, serial: u64) {
        let [kind, fill] = self.note(chunk.address);
        schedule::store();
        fill.store(used << 32 | live, Ordering::Release);
        let order = u64::from(chunk.order) << KIND_BITS;
        schedule::store();
        kind.store(serial << (KIND_BITS + ORDER_BITS) | order | SEGMENT, Ordering::Release);
    }

    /// Updates the filled and live bytes of a segment that has a note.
    pub(super) fn note_fill(&self, address: u64, used: u64, live: u64) {
        schedule::store();
        self.note(address)[1].store(used << 32 | live, Ordering::Release);
    }

    /// Notes a time before which no document of a group expires.
    pub(super) fn note_group(&self, address: u64, expires: i64) {
        let [kind, time] = self.note(address);
        schedule::store();
        time.store(expires as u64, Ordering::Release);
        schedule::store();
        kind.store(GROUP, Ordering::Release);
    }

    /// Returns the noted expiry time; `None` if there is no note.
    pub(super) fn group_expires(&self, address: u64) -> Option<i64> {
        let [kind, time] = self.note(address);
        (kind.load(Ordering::Acquire) == GROUP).then(|| time.load(Ordering::Relaxed) as i64)
    }

    /// Notes that nothing begins at this address any more.
    pub(super) fn forget(&self, address: u64) {
        schedule::store();
        self.note(address)[0].store(0, Ordering::Release);
    }

    /// Returns all segments below this address.
    pub(super) fn segments(&self, opened: u64) -> Vec<SegmentNote> {
        let (mut notes, mut address) = (Vec::new(), BLOCK_BYTES);
        while address < opened {
            let [kind, fill] = self.note(address).map(|word| word.load(Ordering::Acquire));
            let order = kind >> KIND_BITS & ((1 << ORDER_BITS) - 1);
            let is_segment = kind & ((1 << KIND_BITS) - 1) == SEGMENT;
            let bytes = if is_segment { CHUNK_BYTES_MIN << order } else { CHUNK_BYTES_MIN };
            if is_segment {
                let (used, live) = (fill >> 32, fill & u64::from(u32::MAX));
                let serial = kind >> (KIND_BITS + ORDER_BITS);
                notes.push(SegmentNote { address, bytes, used, live, serial });
            }
            address += bytes;
        }
        notes
    }
}

/// Maps the donated part of another space's file, read-only.
///
/// # Safety
/// As many bytes are reserved from `base` on, and no thread uses them.
pub(super) unsafe fn map_donor(file: &File, base: NonNull<u8>, bytes: u64) -> Result<()> {
    let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE;
    let (start, bytes) = (base.as_ptr().cast(), bytes as usize);
    // SAFETY: the range is the caller's and unused.
    let mapped = unsafe { mmap(start, bytes, ProtFlags::READ, flags, file, 0) };
    mapped.map_err(|error| {
        Error::unavailable(format!(
            "the donor's memory cannot be mapped: {error}; use another directory"
        ))
    })?;
    // SAFETY: our own mapping; core dumps leave it out, and reads work as before.
    let _result = unsafe { madvise(start, bytes, Advice::LinuxDontDump) };
    Ok(())
}

/// Whether a file system is in memory.
pub(crate) fn is_of_memory(stat: &StatFs) -> bool {
    const TMPFS_MAGIC: i128 = 0x0102_1994;
    i128::from(stat.f_type) == TMPFS_MAGIC
}

/// Allocates a part of a file, so that writes there can never fail.
pub(super) fn allocate(file: &File, start: u64, bytes: u64) -> Result<()> {
    loop {
        return match fallocate(file, FallocateFlags::empty(), start, bytes) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::INTR) => continue,
            Err(rustix::io::Errno::NOSPC | rustix::io::Errno::NOMEM | rustix::io::Errno::DQUOT) => {
                let free =
                    fstatvfs(file).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
                let message = "the file system of the reader's files is full; make room there, or \
                    use a directory on a larger one";
                Err(Error::limit_exceeded(message, free, bytes))
            }
            Err(error) => Err(Error::unsupported(format!(
                "the file system of the reader's files cannot preallocate space ({error}); use a \
                 directory on a local file system (ext4, xfs, btrfs, tmpfs)"
            ))),
        };
    }
}

/// Returns the error for a failed operation on a file of a shared copy.
pub(crate) fn file_error(operation: &str, path: &Path, error: &io::Error) -> Error {
    let path = path.display();
    Error::unavailable(format!("could not {operation} {path}: {error}; correct the directory"))
}
