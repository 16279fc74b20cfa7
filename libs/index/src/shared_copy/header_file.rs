//! The header file of a partition with a shared copy: a page that all processes map.
//!
//! The words come first. After them comes the description, which never changes: it is written
//! before the file gets its name. [`PublishedWords`] refers to the words of a header in such a
//! file, or in the process's own memory.

use std::fs::File;
use std::io::Write;
use std::ops::Deref;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, OnceLock};

use forebay_core::{Error, Result};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::header_words::{Status, Words};
use crate::memory::file_error;

/// Bytes of a header file.
const HEADER_BYTES: usize = 4_096;
/// Offset of the description.
const DESCRIPTION_AT: usize = 2_048;
const MAGIC: [u8; 8] = *b"FBLIVE\0\0";
/// Format of headers and spaces.
const VERSION: u32 = 4;
/// Bytes of the longest name of a memory directory or a header.
pub(super) const NAME_BYTES_MAX: usize = 1_024;

const _: () = assert!(size_of::<Words>() <= DESCRIPTION_AT, "the words end before the description");

/// The description in a header file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeaderDescription {
    /// The id of the boot of the machine in which the file was created.
    pub(super) boot: [u8; 16],
    /// Part of the names of the header's spaces.
    pub(super) token: u64,
    /// The directory of spaces that are not next to the header.
    pub(super) memory_dir: Option<PathBuf>,
}

/// A header file, mapped.
#[derive(Debug)]
pub(crate) struct HeaderFile {
    base: NonNull<u8>,
    description: HeaderDescription,
}

// SAFETY: the page is mapped until this value is dropped, and is only accessed as atomics.
unsafe impl Send for HeaderFile {}
// SAFETY: as above.
unsafe impl Sync for HeaderFile {}

impl HeaderFile {
    /// Creates a header under a temporary name; the caller renames it when it is complete.
    pub(super) fn create(new_path: &Path, description: HeaderDescription) -> Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(new_path)
            .map_err(|error| file_error("make", new_path, &error))?;
        let mut page = vec![0; HEADER_BYTES];
        let encoded = encode(&description)?;
        page[DESCRIPTION_AT..DESCRIPTION_AT + encoded.len()].copy_from_slice(&encoded);
        // The page is written and not extended by a truncate, so that it has its space on the disk.
        let write_result = (&file).write_all(&page).and_then(|()| file.sync_data());
        write_result.map_err(|error| file_error("write", new_path, &error))?;
        let header = Self::map(&file, description, true, new_path)?;
        header.words().publish(&Status::START);
        Ok(header)
    }

    /// Opens the header of this name.
    ///
    /// # Errors
    /// `NotFound` without a header, or for a header of another boot of the machine; `Unsupported`
    /// for a header of another build; `Corrupt` for any other file; `Unavailable`.
    pub(crate) fn open(path: &Path, is_written: bool) -> Result<Self> {
        let file = File::options().read(true).write(is_written).open(path);
        let file = file.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::not_found("there is no shared copy here yet"),
            _ => file_error("open", path, &error),
        })?;
        let mut page = vec![0; HEADER_BYTES];
        let size = file.metadata().map_err(|error| file_error("look at", path, &error))?.len();
        if size != HEADER_BYTES as u64 {
            return Err(Error::corrupt("the header of a shared copy has the wrong length"));
        }
        file.read_exact_at(&mut page, 0).map_err(|error| file_error("read", path, &error))?;
        let description = decode(&page[DESCRIPTION_AT..])?;
        if description.boot != boot_id() {
            return Err(Error::not_found("the shared copy is from before the host's last restart"));
        }
        Self::map(&file, description, is_written, path)
    }

    fn map(
        file: &File,
        description: HeaderDescription,
        is_written: bool,
        path: &Path,
    ) -> Result<Self> {
        let mut protect = ProtFlags::READ;
        protect.set(ProtFlags::WRITE, is_written);
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
        let mapped = unsafe { mmap(null_mut(), HEADER_BYTES, protect, MapFlags::SHARED, file, 0) };
        let base = mapped.map_err(|error| file_error("map", path, &error.into()))?;
        let base =
            NonNull::new(base.cast()).ok_or_else(|| Error::internal("a mapping at address 0"))?;
        Ok(Self { base, description })
    }

    /// The words of the header.
    #[inline]
    pub(crate) fn words(&self) -> &Words {
        // SAFETY: a page is aligned for the words, is longer than they are, and is mapped as long
        // as `self` lives; any bytes are valid words.
        unsafe { self.base.cast().as_ref() }
    }

    pub(super) fn description(&self) -> &HeaderDescription {
        &self.description
    }
}

impl Drop for HeaderFile {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and every user of the page borrows this value.
        let _result = unsafe { munmap(self.base.as_ptr().cast(), HEADER_BYTES) };
    }
}

/// A reference to the words of a header, held by its readers or its writer.
#[derive(Clone, Debug)]
pub(crate) enum PublishedWords {
    /// Words in the process's own memory.
    Own(Arc<Words>),
    /// Words in a file.
    Shared(Arc<HeaderFile>),
}

impl Deref for PublishedWords {
    type Target = Words;

    #[inline]
    fn deref(&self) -> &Words {
        match self {
            Self::Own(words) => words,
            Self::Shared(file) => file.words(),
        }
    }
}

/// Returns the id of this boot of the machine; zeros if the system does not report one. No process
/// outlives a boot, so the id is read once.
pub(super) fn boot_id() -> [u8; 16] {
    static BOOT: OnceLock<[u8; 16]> = OnceLock::new();
    *BOOT.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits = text.chars().filter_map(|digit| digit.to_digit(16));
        let mut id = [0; 16];
        for (place, digit) in digits.take(32).enumerate() {
            id[place / 2] = id[place / 2] << 4 | digit as u8;
        }
        id
    })
}

fn encode(description: &HeaderDescription) -> Result<Vec<u8>> {
    let name = description.memory_dir.as_deref().map_or("", |dir| dir.to_str().unwrap_or(""));
    if name.len() > NAME_BYTES_MAX {
        let message = "the memory directory's name is too long; use a shorter one";
        return Err(Error::limit_exceeded(message, NAME_BYTES_MAX as u64, name.len() as u64));
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((name.len() as u32).to_le_bytes());
    bytes.extend(description.boot);
    bytes.extend(description.token.to_le_bytes());
    bytes.extend(name.as_bytes());
    Ok(bytes)
}

fn decode(bytes: &[u8]) -> Result<HeaderDescription> {
    let invalid = || Error::corrupt("the header of a shared copy is invalid");
    let (magic, rest) = bytes.split_first_chunk::<8>().ok_or_else(invalid)?;
    let (version, rest) = rest.split_first_chunk::<4>().ok_or_else(invalid)?;
    let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(invalid)?;
    let (boot, rest) = rest.split_first_chunk::<16>().ok_or_else(invalid)?;
    let (token, rest) = rest.split_first_chunk::<8>().ok_or_else(invalid)?;
    if *magic != MAGIC {
        return Err(invalid());
    }
    if u32::from_le_bytes(*version) != VERSION {
        let message =
            "another build wrote the shared copy; close its readers, or use another directory";
        return Err(Error::unsupported(message));
    }
    let name = rest.get(..u32::from_le_bytes(*length) as usize).ok_or_else(invalid)?;
    let name = std::str::from_utf8(name).map_err(|_| invalid())?;
    let memory_dir = (!name.is_empty()).then(|| PathBuf::from(name));
    Ok(HeaderDescription { boot: *boot, token: u64::from_le_bytes(*token), memory_dir })
}

#[cfg(test)]
mod tests {
    use forebay_core::ErrorCode;

    use super::*;

    fn description() -> HeaderDescription {
        HeaderDescription { boot: boot_id(), token: 7, memory_dir: Some("/dev/shm".into()) }
    }

    #[test]
    fn second_mapping_reads_the_written_header() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("live");
        let writer_mapping = HeaderFile::create(&path, description()).unwrap();
        let read = HeaderFile::open(&path, false).unwrap();
        assert_eq!(read.description(), &description());
        assert_eq!(read.words().status(), Status::START);
        let status = Status { generation: 9, ..Status::START };
        writer_mapping.words().publish(&status);
        assert_eq!(read.words().status(), status);
    }

    #[test]
    fn open_refuses_other_files_by_their_code() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("live");
        let code = |path: &Path| HeaderFile::open(path, false).unwrap_err().code();
        assert_eq!(code(&path), ErrorCode::NotFound);
        std::fs::write(&path, b"short").unwrap();
        assert_eq!(code(&path), ErrorCode::Corrupt);
        drop(
            HeaderFile::create(&path, HeaderDescription { boot: [1; 16], ..description() })
                .unwrap(),
        );
        assert_eq!(code(&path), ErrorCode::NotFound);
        drop(HeaderFile::create(&path, description()).unwrap());
        let sound = std::fs::read(&path).unwrap();
        for (place, expected) in
            [(0, ErrorCode::Corrupt), (8, ErrorCode::Unsupported), (15, ErrorCode::Corrupt)]
        {
            let mut bytes = sound.clone();
            bytes[DESCRIPTION_AT + place] ^= 0x80;
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(code(&path), expected, "byte {place}");
        }
    }
}
