//! Pushes: files of documents become a version of a store's documents, or a store of their own,
//! without going through a log.
//!
//! The files are read once, and their rows kept on disk by partitions ([`spill`]). Once all of them
//! are what the store wants, each partition is folded into an image, which is its first snapshot.
//! A push that broke off goes on behind the last file that was read whole, and the last partition
//! that was made: the same push makes the same store. On two hosts it is two pushes, neither of
//! which touches what the other one makes.

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

/// What pushes are made with.
#[derive(Clone)]
pub struct PushParts {
    /// What snapshots are kept with.
    pub kept: SnapshotParts,
    /// What time it is for what is pushed.
    pub clock: Arc<dyn Clock>,
    /// A folder for rows on their way.
    pub scratch: PathBuf,
}

/// What is pushed, and as what.
#[derive(Clone, Debug, PartialEq)]
pub struct Push {
    /// The store whose fields the columns are, and whose documents the files take the place of.
    pub store: String,
    /// Name of a store that the files become instead.
    pub push_as: Option<String>,
    /// Partitions of that one; as many as the other one's, unless it is told.
    pub partitions: Option<u32>,
    /// Where the files lie: URLs of files and of folders.
    pub inputs: Vec<String>,
    /// What they hold; each what its name's ending says, unless it is told.
    pub format: Option<Format>,
    /// Which column is what.
    pub columns: ColumnNames,
    /// What they must be.
    pub limits: PushLimits,
}

/// How far a push is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushProgress {
    /// Rows that were read.
    pub rows: u64,
    /// Bytes of the files that were read to their end.
    pub bytes: u64,
    /// Bytes of all files.
    pub bytes_in_all: u64,
    /// Partitions that are made.
    pub partitions_done: u32,
    /// Partitions of the store.
    pub partitions: u32,
}

/// What files became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// The store's id.
    pub store: StoreId,
    /// The version of its documents.
    pub version: VersionNumber,
    /// Its partitions.
    pub partitions: u32,
    /// Its documents.
    pub documents: u64,
    /// The conditional changes since the push that ended in another way than in the version before;
    /// of each partition's last ones.
    pub flipped: Vec<FlippedChange>,
}

/// A file to read, and the folder that it is of.
struct Input {
    from: SnapshotStore,
    file: FoundFile,
    format: Format,
}

/// What is made of files.
enum Target<'p> {
    Store(NewStore<'p>),
    Version(Box<NewVersion<'p>>),
}

impl PushParts {
    /// Makes a version of a store's documents of files, or a store; tells how far it is.
    ///
    /// # Errors
    /// `Conflict` where the name is taken; `Unavailable` where the same push is under way;
    /// `NotFound` for a store or files that are not there; `InvalidArgument` for files that the
    /// store cannot have, or that are beyond a limit, by file and row; `LimitExceeded` without disk
    /// or memory. Nothing of it stays then; behind any other error the same push goes on with what
    /// is there.
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
                warn!(store = push.store, %error, "a push is given up");
                pushing.target.give_up().await;
            }
        }
        place.clear();
        pushed
    }

    /// The versions of a store's documents.
    ///
    /// # Errors
    /// `NotFound` for a store that is not there; those of the log.
    pub async fn versions(&self, store: &str) -> Result<StoreVersions> {
        Ok(alter_versions(&self.kept, store, |_| Ok(None)).await?.versions)
    }

    /// Makes a version of a store's documents live: reads answer from it as soon as its replicas
    /// have caught up. One that was live before is gone back to so.
    ///
    /// # Errors
    /// `NotFound` for one that is not there, `Conflict` while writes are held for one; those of the
    /// log.
    pub async fn make_live(&self, store: &str, number: VersionNumber) -> Result<StoreVersions> {
        let live = |definition: &Definition| {
            let versions = &definition.versions;
            if versions.live().number == number {
                return Ok(None);
            }
            if versions.are_held() {
                let message = "what was written before is not all in the new partitions yet; wait \
                               until their version is live";
                return Err(Error::conflict(message));
            }
            definition.with_live(number).map(Some)
        };
        Ok(alter_versions(&self.kept, store, live).await?.versions)
    }

    /// Drops a version of a store's documents, with all that was kept of it.
    ///
    /// # Errors
    /// `NotFound` for one that is not there, `InvalidArgument` for the live one; those of the log
    /// and of the object store.
    pub async fn drop_version(&self, store: &str, number: VersionNumber) -> Result<StoreVersions> {
        drop_version(&self.kept, store, number).await.map(|definition| definition.versions)
    }

    /// How the store is defined now, and what the files are to be.
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

/// Whether another attempt would end alike.
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
        true => Err(Error::invalid_argument("name the files that are pushed")),
        false => Ok(inputs),
    }
}

/// What tells a push from all others of its host: the same words are the same push.
fn words(push: &Push, definition: &Definition, inputs: &[Input]) -> String {
    let files = inputs.iter().map(|input| (&input.file, input.format));
    // It stays the same push while the version that it makes is made known.
    let versions = StoreVersions::first(definition.store, definition.partitions);
    let definition = Definition { version: SchemaVersion(1), versions, ..definition.clone() };
    let Push { push_as, columns, limits, .. } = push;
    format!("{push_as:?}\n{definition:?}\n{columns:?}\n{limits:?}\n{:?}", files.collect::<Vec<_>>())
}
