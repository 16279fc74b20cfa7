//! A request to push files, its progress and its result.

use forebay_core::id::{SchemaVersion, StoreId};
use forebay_core::schema::Definition;
use forebay_core::versions::{StoreVersions, VersionNumber};
use forebay_core::{Error, Result};
use forebay_snapshot::{FoundFile, SnapshotStore};

use super::changed_outcomes::ChangedOutcome;
use super::columns::ColumnNames;
use super::format::Format;
use super::limits::PushLimits;

/// A request to push files.
#[derive(Clone, Debug, PartialEq)]
pub struct Push {
    /// The store whose fields the columns are, and whose documents the files replace.
    pub store: String,
    /// Name of a new store that the files become instead.
    pub push_as: Option<String>,
    /// Number of partitions of the version, or of the new store; `None` keeps the number of the
    /// store.
    pub partitions: Option<u32>,
    /// URLs of the files and folders.
    pub inputs: Vec<String>,
    /// Format of all files; `None` takes the format from each file's extension.
    pub format: Option<Format>,
    /// Meaning of the columns.
    pub columns: ColumnNames,
    /// Limits on the rows.
    pub limits: PushLimits,
}

/// Progress of a push.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushProgress {
    /// Rows that were read.
    pub rows: u64,
    /// Bytes of the files that were read completely.
    pub bytes: u64,
    /// Bytes of all files.
    pub bytes_in_all: u64,
    /// Partitions that are finished.
    pub partitions_done: u32,
    /// Partitions of the version or the new store.
    pub partitions: u32,
}

/// Result of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushResult {
    /// Id of the store.
    pub store: StoreId,
    /// Number of the version.
    pub version: VersionNumber,
    /// Number of partitions.
    pub partitions: u32,
    /// Number of documents.
    pub documents: u64,
    /// The conditional changes since the push whose outcome differs from the previous version, as
    /// far as each partition retains them.
    pub changed_outcomes: Vec<ChangedOutcome>,
}

/// A file to read, and the folder that contains it.
pub(super) struct Input {
    pub(super) from: SnapshotStore,
    pub(super) file: FoundFile,
    pub(super) format: Format,
}

impl Push {
    /// Finds the files of the push.
    ///
    /// # Errors
    /// `InvalidArgument` if there are none, or the format of a file is unknown; else as the object
    /// store.
    pub(super) async fn find_inputs(&self) -> Result<Vec<Input>> {
        let mut inputs = Vec::new();
        for url in &self.inputs {
            let from = SnapshotStore::open(url)?;
            for file in from.files().await? {
                let format = self.format.map_or_else(|| Format::of_name(file.name()), Ok)?;
                inputs.push(Input { from: from.clone(), file, format });
            }
        }
        match inputs.is_empty() {
            true => Err(Error::invalid_argument("the push names no files; name the files")),
            false => Ok(inputs),
        }
    }

    /// Returns the words that identify a push on its host: pushes with the same words are the same
    /// push.
    pub(super) fn identity(&self, definition: &Definition, inputs: &[Input]) -> String {
        let files = inputs.iter().map(|input| (&input.file, input.format));
        // The identity of a push must not change when the push adds its version to the definition.
        let versions = StoreVersions::first(definition.store, definition.partitions);
        let definition = Definition { version: SchemaVersion(1), versions, ..definition.clone() };
        let Push { push_as, columns, limits, .. } = self;
        format!(
            "{push_as:?}\n{definition:?}\n{columns:?}\n{limits:?}\n{:?}",
            files.collect::<Vec<_>>()
        )
    }
}
