//! Where the files of an embedded log lie, and what their names say.

use std::path::{Path, PathBuf};

use forebay_core::id::{Offset, PartitionId, PartitionRef, StoreId};

/// Name of a store's file inside its directory.
pub(super) const STORE_FILE: &str = "store";
/// Ends the name of a store that is being made.
pub(super) const NEW: &str = ".new";
/// Ends the name of a store that is being removed.
pub(super) const DELETED: &str = ".deleted";

const SEGMENT: &str = ".seg";
/// Ends the name of a journal. A build that knows none takes it for a store that was being made,
/// fails to remove it as a directory, and so refuses to open what it would not read.
const JOURNAL: &str = ".journal.new";
/// Ends the name of a journal that is being made; it holds nothing.
const JOURNAL_BEING_MADE: &str = ".journal.making";

/// The places below one data directory.
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

    pub(super) fn journal_while_made(&self, committer: usize) -> PathBuf {
        self.logs.join(format!("{committer:04}{JOURNAL_BEING_MADE}"))
    }

    pub(super) fn store(&self, store: StoreId) -> PathBuf {
        self.logs.join(format!("{:016x}", store.0))
    }

    /// A store's directory while it is made or removed.
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

/// Whether a name below the directory of all stores is that of a journal.
pub(super) fn is_journal(name: &str) -> bool {
    name.ends_with(JOURNAL)
}

/// Whether it is that of a journal that was being made.
pub(super) fn is_journal_being_made(name: &str) -> bool {
    name.ends_with(JOURNAL_BEING_MADE)
}

/// The base offset that a segment's name says; `None` for any other name.
pub(super) fn segment_base(name: &str) -> Option<Offset> {
    let digits = name.strip_suffix(SEGMENT).filter(|digits| digits.len() == 20)?;
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok().map(Offset))?
}

/// The store that a directory's name says; `None` for any other name.
pub(super) fn store_id(name: &str) -> Option<StoreId> {
    let id = u64::from_str_radix(name, 16).ok()?;
    (format!("{id:016x}") == name).then_some(StoreId(id))
}

/// The partition that a directory's name says; `None` for any other name.
pub(super) fn partition_id(name: &str) -> Option<PartitionId> {
    let id = name.parse().ok()?;
    (format!("{id:04}") == name).then_some(PartitionId(id))
}
