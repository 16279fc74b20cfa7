//! Operations on the pushed versions of stores: push files, list the versions, activate one, roll
//! back, drop one.

use std::sync::OnceLock;

use forebay_core::id::{PartitionCount, SchemaVersion};
use forebay_core::partition::xxh3_64;
use forebay_core::schema::Definition;
use forebay_core::versions::{StoreVersions, VersionNumber};
use forebay_core::{Error, ErrorCode, Result};
use tracing::{info, warn};

use super::new_version::NewVersion;
use super::request::{Push, PushProgress, PushResult};
use super::run::PushRun;
use super::target::PushTarget;
use super::workspace::PushWorkspace;
use crate::context::PushParts;
use crate::new_store::{NewStore, check_free, id_of};
use crate::version_admin;

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
    pub async fn push(&self, push: &Push, tell: impl Fn(PushProgress)) -> Result<PushResult> {
        self.service.catch_up().await?;
        let (like, definition) = self.definition(push)?;
        push.limits.check(&definition)?;
        let inputs = push.find_inputs().await?;
        let identity = push.identity(&definition, &inputs);
        let workspace = PushWorkspace::lock(&self.scratch, xxh3_64(identity.as_bytes()))?;
        let number = workspace.number(self.service.context.entropy.next_u64()?)?;
        let id = id_of(&self.service, &format!("{identity}\n{number}"), &definition);
        let target = match &push.push_as {
            Some(name) => PushTarget::Store(NewStore {
                parts: &self.service,
                id,
                name,
                partitions: definition.partitions,
                like: std::slice::from_ref(&definition),
            }),
            None => PushTarget::Version(Box::new(NewVersion {
                parts: &self.service,
                definition: like,
                storage_id: id,
                partitions: definition.partitions,
                repartition: OnceLock::new(),
            })),
        };
        let run = PushRun { parts: self, push, inputs: &inputs, workspace: &workspace, target };
        let result = run.run(&definition, tell).await;
        match &result {
            Ok(pushed) => info!(store = push.store, documents = pushed.documents, "pushed"),
            Err(error) if !is_permanent(error) => return result,
            Err(error) => {
                warn!(store = push.store, %error, "push abandoned");
                run.target.abandon().await;
            }
        }
        workspace.remove();
        result
    }

    /// Returns the versions of a store's documents.
    ///
    /// # Errors
    /// `NotFound` if the store does not exist; else as the log.
    pub async fn versions(&self, store: &str) -> Result<StoreVersions> {
        version_admin::versions(&self.service, store).await
    }

    /// Activates a version of a store's documents: reads answer from it as soon as its replicas
    /// have caught up.
    ///
    /// # Errors
    /// `NotFound` for an unknown version, `Conflict` while writes are paused for a version; else as
    /// the log.
    pub async fn activate_version(
        &self,
        store: &str,
        number: VersionNumber,
    ) -> Result<StoreVersions> {
        version_admin::activate_version(&self.service, store, number).await
    }

    /// Activates the version of a store's documents that was live before the live one. A second
    /// rollback returns to the version that the first one left.
    ///
    /// # Errors
    /// `NotFound` without such a version, `Conflict` while writes are paused for a version; else as
    /// the log.
    pub async fn rollback_version(&self, store: &str) -> Result<StoreVersions> {
        version_admin::rollback_version(&self.service, store).await
    }

    /// Drops a version of a store's documents, and all of its data.
    ///
    /// # Errors
    /// `NotFound` for an unknown version, `InvalidArgument` for the live one; else as the log and
    /// the object store.
    pub async fn drop_version(&self, store: &str, number: VersionNumber) -> Result<StoreVersions> {
        let definition = version_admin::drop_version(&self.service, store, number).await?;
        Ok(definition.versions)
    }

    /// Returns the store's current definition, and the definition of the pushed documents.
    fn definition(&self, push: &Push) -> Result<(Definition, Definition)> {
        let catalog = self.service.context.catalog.catalog();
        let like = Definition::clone(&catalog.document_store_by_name(&push.store)?.definition);
        let partitions = match push.partitions {
            Some(count) => PartitionCount::new(count)?,
            None => like.write_logs().partitions,
        };
        let pushed = Definition { partitions, ..like.clone() };
        let Some(name) = &push.push_as else { return Ok((like, pushed)) };
        check_free(&self.service, name)?;
        Ok((like, Definition { version: SchemaVersion(1), ..pushed }))
    }
}

/// Returns whether another attempt would end with the same error.
fn is_permanent(error: &Error) -> bool {
    use ErrorCode::{Conflict, Internal, InvalidArgument, LimitExceeded, Unsupported};
    matches!(error.code(), Conflict | Internal | InvalidArgument | LimitExceeded | Unsupported)
}
