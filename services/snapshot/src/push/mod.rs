//! Pushes: bulk-load files as a version of a store's documents, or as a new store, without going
//! through a log.
//!
//! A push runs in three steps:
//!
//! 1. Read the files once, and spill their rows to disk by partition ([`spill`]).
//! 2. Check the limits.
//! 3. Fold each partition into an image, and publish the image as the partition's first snapshot.
//!
//! A repeated push resumes after the last completely read file and the last finished partition, and
//! creates the same store. On two hosts the same push is two pushes, neither of which touches the
//! parts of the other.

mod columns;
mod format;
mod limits;
mod place;
mod run;
mod service;
mod spill;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use forebay_core::clock::Clock;
use forebay_core::id::{PartitionCount, SchemaVersion, StoreId};
use forebay_core::partition::xxh3_64;
use forebay_core::schema::Definition;
use forebay_core::versions::{StoreVersions, VersionNumber};
use forebay_core::{Error, ErrorCode, Result};
use forebay_snapshot::{FoundFile, SnapshotStore};
use tracing::{info, warn};

pub use self::columns::ColumnNames;
pub use self::format::Format;
pub use self::limits::PushLimits;
pub use self::service::PushService;

pub(crate) use self::place::{Began, Place};
use self::run::Pushing;
use crate::define::alter_versions;
use crate::keeper::SnapshotParts;
use crate::new_store::{NewStore, check_free, id_of};
pub use crate::new_version::FlippedChange;
use crate::new_version::{NewVersion, drop_version};

/// Dependencies of pushes.
#[derive(Clone)]
pub struct PushParts {
    /// Dependencies of the snapshots.
    pub kept: SnapshotParts,
    /// Clock that gives the pushed documents their time.
    pub clock: Arc<dyn Clock>,
    /// Folder for spilled rows.
    pub scratch: PathBuf,
}

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
pub struct Pushed {
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
    pub flipped: Vec<FlippedChange>,
}

/// A file to read, and the folder that contains it.
struct Input {
    from: SnapshotStore,
    file: FoundFile,
    format: Format,
}

/// The version or the store that a push builds.
enum Target<'p> {
    Store(NewStore<'p>),
    Version(Box<NewVersion<'p>>),
}

impl PushParts {
    /// Builds a version of a store's documents, or a new store, from files; calls `tell` with the
    /// progress.
    ///
    /// # Errors
    /// - `Conflict` if the name is taken.
    /// - `Unavailable` if the same push is in progress.
    /// - `NotFound` if the store or a file does not exist.
    /// - `InvalidArgument` for files that the store cannot have or that violate a limit, with file
    ///   and row.
    /// - `LimitExceeded` without disk space or memory.
    ///
    /// After an error that another attempt would repeat, all parts are removed; after any other
    /// error the same push resumes from the existing parts.
    pub async fn push(&self, push: &Push, tell: impl Fn(PushProgress)) -> Result<Pushed> {
        self.kept.catch_up().await?;
        let (like, definition) = self.definition(push)?;
        push.limits.check(&definition)?;
        let inputs = inputs(push).await?;
        let words = words(push, &definition, &inputs);
        let place = Place::take(&self.scratch, xxh3_64(words.as_bytes()))?;
        let number = place.number(self.kept.entropy.next_u64()?)?;
        let id = id_of(&self.kept, &format!("{words}\n{number}"), &definition);
        let target = match &push.push_as {
            Some(name) => Target::Store(NewStore {
                parts: &self.kept,
                id,
                name,
                partitions: definition.partitions,
                like: std::slice::from_ref(&definition),
            }),
            None => Target::Version(Box::new(NewVersion {
                parts: &self.kept,
                definition: like,
                kept_as: id,
                partitions: definition.partitions,
                moving: OnceLock::new(),
            })),
        };
        let pushing = Pushing { parts: self, push, inputs: &inputs, place: &place, target };
        let pushed = pushing.run(&definition, tell).await;
        match &pushed {
            Ok(pushed) => info!(store = push.store, documents = pushed.documents, "pushed"),
            Err(error) if !is_for_good(error) => return pushed,
            Err(error) => {
                warn!(store = push.store, %error, "push abandoned");
                pushing.target.give_up().await;
            }
        }
        place.clear();
        pushed
    }

    /// Returns the versions of a store's documents.
    ///
    /// # Errors
    /// `NotFound` if the store does not exist; else as the log.
    pub async fn versions(&self, store: &str) -> Result<StoreVersions> {
        Ok(alter_versions(&self.kept, store, |_| Ok(None)).await?.versions)
    }

    /// Makes a version of a store's documents live: reads answer from it as soon as its replicas
    /// have caught up. A rollback makes the previous version live.
    ///
    /// # Errors
    /// `NotFound` for an unknown version, `Conflict` while writes are held for a version; else as
    /// the log.
    pub async fn make_live(&self, store: &str, number: VersionNumber) -> Result<StoreVersions> {
        let live = |definition: &Definition| {
            let versions = &definition.versions;
            if versions.live().number == number {
                return Ok(None);
            }
            if versions.are_held() {
                let message =
                    "the new partitions lack some earlier writes; wait until their version is live";
                return Err(Error::conflict(message));
            }
            definition.with_live(number).map(Some)
        };
        Ok(alter_versions(&self.kept, store, live).await?.versions)
    }

    /// Drops a version of a store's documents, and all of its data.
    ///
    /// # Errors
    /// `NotFound` for an unknown version, `InvalidArgument` for the live one; else as the log and
    /// the object store.
    pub async fn drop_version(&self, store: &str, number: VersionNumber) -> Result<StoreVersions> {
        drop_version(&self.kept, store, number).await.map(|definition| definition.versions)
    }

    /// Returns the store's current definition, and the definition of the pushed documents.
    fn definition(&self, push: &Push) -> Result<(Definition, Definition)> {
        let like = self.kept.catalog.catalog().of_documents(&push.store)?.definition.clone();
        let partitions = match push.partitions {
            Some(count) => PartitionCount::new(count)?,
            None => like.written().partitions,
        };
        let pushed = Definition { partitions, ..like.clone() };
        let Some(name) = &push.push_as else { return Ok((like, pushed)) };
        check_free(&self.kept, name)?;
        Ok((like, Definition { version: SchemaVersion(1), ..pushed }))
    }
}

impl Target<'_> {
    async fn give_up(&self) {
        match self {
            Self::Store(store) => store.give_up().await,
            Self::Version(version) => version.give_up().await,
        }
    }
}

/// Returns whether another attempt would end with the same error.
fn is_for_good(error: &Error) -> bool {
    use ErrorCode::{Conflict, Internal, InvalidArgument, LimitExceeded, Unsupported};
    matches!(error.code(), Conflict | Internal | InvalidArgument | LimitExceeded | Unsupported)
}

async fn inputs(push: &Push) -> Result<Vec<Input>> {
    let mut inputs = Vec::new();
    for url in &push.inputs {
        let from = SnapshotStore::open(url)?;
        for file in from.files().await? {
            let format = push.format.map_or_else(|| Format::of_name(file.name()), Ok)?;
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
fn words(push: &Push, definition: &Definition, inputs: &[Input]) -> String {
    let files = inputs.iter().map(|input| (&input.file, input.format));
    // The identity of a push must not change when the push adds its version to the definition.
    let versions = StoreVersions::first(definition.store, definition.partitions);
    let definition = Definition { version: SchemaVersion(1), versions, ..definition.clone() };
    let Push { push_as, columns, limits, .. } = push;
    format!("{push_as:?}\n{definition:?}\n{columns:?}\n{limits:?}\n{:?}", files.collect::<Vec<_>>())
}
