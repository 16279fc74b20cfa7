//! A store whose shards are in this process.

use std::sync::Arc;

use forebay_core::catalog::SchemaAt;
use forebay_core::id::PartitionId;
use forebay_core::{Error, Result};
use forebay_replica::{ReadOptions, StoreReplica};
use forebay_shard::{OwnedView, View};
use forebay_wire::token::Token;

use crate::document_shards::DocumentShards;

/// Source of the ordered reads of a store.
pub(super) struct LocalStore {
    pub schema: Arc<SchemaAt>,
    pub follower: StoreReplica,
    pub shards: DocumentShards,
}

impl LocalStore {
    /// Returns a view of a partition, as fresh as requested.
    ///
    /// # Errors
    /// As [`StoreReplica::await_readable`]; `Unavailable` if the shard is not in this process.
    pub async fn view(&self, read: &ReadOptions, partition: PartitionId) -> Result<OwnedView> {
        if !self.follower.follows(partition) {
            return Err(not_local_error());
        }
        self.follower.await_readable(read, &[partition]).await?;
        let shard = self.shards.shard(partition).map_err(|_| not_local_error())?;
        OwnedView::open(shard)
    }

    /// Returns the position of a view as a token.
    ///
    /// # Errors
    /// As [`Token::advance`]; never happens, because one partition has one log.
    pub fn token(&self, partition: PartitionId, view: &View<'_>) -> Result<Token> {
        let mut token = Token::new(self.schema.definition.versions.home());
        if let Some(log_id) = view.log_id() {
            token.advance(partition, log_id, view.position())?;
        }
        Ok(token)
    }
}

/// Returns the error for shards that are not open in this process.
pub(super) fn not_local_error() -> Error {
    Error::unavailable(
        "the shard of the partition is not open in this process; try again, or ask another \
         replicator",
    )
}
