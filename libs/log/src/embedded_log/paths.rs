//! Paths and names of the files of an embedded log.

use std::path::{Path, PathBuf};

use forebay_core::id::{Offset, PartitionId, PartitionRef, StoreId};

/// Name of a store's file inside its directory.
pub(super) const STORE_FILE: &str = "store";
/// Suffix of a store that is being created.
pub(super) const NEW: &str = ".new";
/// Suffix of a store that is being removed.
pub(super) const DELETED: &str = ".deleted";

const SEGMENT: &str = ".seg";
/// Suffix of a journal. A build without journals takes the file for a store that was being created
/// and fails to remove it as a directory; that build therefore refuses to open data that it would
/// not replay.
const JOURNAL: &str = ".journal.new";
/// Suffix of a journal that is being created; such a file stores no records.
const JOURNAL_BEING_MADE: &str = ".journal.making";

/// Paths below one data directory.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    /// The data directory.
    pub(super) data_dir: PathBuf,
    /// The directory of all stores.
    pub(super) logs: PathBuf,
}

impl Paths {
    pub(super) fn new(data_dir: &Path) -> Self {
        Self { data_dir: data_dir.to_path_buf(), logs: data_dir.join("logs") }
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.data_dir.join("lock")
    }

    pub(super) fn journal(&self, committer: usize) -> PathBuf {
        self.logs.join(format!("{committer:04}{JOURNAL}"))
    }

    pub(super) fn journal_temp(&self, committer: usize) -> PathBuf {
        self.logs.join(format!("{committer:04}{JOURNAL_BEING_MADE}"))
    }

    pub(super) fn store(&self, store: StoreId) -> PathBuf {
        self.logs.join(format!("{:016x}", store.0))
    }

    /// Returns the directory of a store that is being created or removed.
    pub(super) fn store_aside(&self, store: StoreId, ending: &str) -> PathBuf {
        self.logs.join(format!("{:016x}{ending}", store.0))
    }

    pub(super) fn partition(&self, at: PartitionRef) -> PathBuf {
        self.store(at.store).join(format!("{:04}", at.partition.0))
    }
}

pub(super) fn segment(partition_dir: &Path, base: Offset) -> PathBuf {
    partition_dir.join(format!("{:020}{SEGMENT}", base.0))
}

/// Returns whether a name in the directory of all stores is the name of a journal.
pub(super) fn is_journal(name: &str) -> bool {
    name.ends_with(JOURNAL)
}

/// Returns whether a name is the name of a journal that was being created.
pub(super) fn is_journal_temp(name: &str) -> bool {
    name.ends_with(JOURNAL_BEING_MADE)
}

/// Parses the base offset from a segment's name; returns `None` for any other name.
pub(super) fn segment_base(name: &str) -> Option<Offset> {
    let digits = name.strip_suffix(SEGMENT).filter(|digits| digits.len() == 20)?;
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok().map(Offset))?
}

/// Parses the store id from a directory's name; returns `None` for any other name.
pub(super) fn store_id(name: &str) -> Option<StoreId> {
    let id = u64::from_str_radix(name, 16).ok()?;
    (format!("{id:016x}") == name).then_some(StoreId(id))
}

/// Parses the partition id from a directory's name; returns `None` for any other name.
pub(super) fn partition_id(name: &str) -> Option<PartitionId> {
    let id = name.parse().ok()?;
    (format!("{id:04}") == name).then_some(PartitionId(id))
}
