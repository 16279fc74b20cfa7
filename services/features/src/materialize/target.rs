//! Logs of the store to which a view materializes.

use std::collections::BTreeMap;

use forebay_core::change::{Change, ClientBatch, Condition, Entry, EntryBody, FieldChange, Verb};
use forebay_core::id::{
    ClientId, FieldId, LogId, PartitionId, PartitionRef, SchemaVersion, Sequence, StoreId,
};
use forebay_core::key::Key;
use forebay_core::partition::partition_of;
use forebay_core::{Error, Result};
use forebay_entries::find_log_id;
use forebay_wire::entry::encode_entry;
use futures::future::try_join_all;

use crate::parts::FeatureParts;

/// Appender of documents to the logs of one store.
pub(super) struct TargetLogs {
    parts: FeatureParts,
    store: StoreId,
    client: Option<ClientId>,
    /// The last sent sequence of each partition.
    sequences: BTreeMap<PartitionId, Sequence>,
    log_ids: BTreeMap<PartitionRef, LogId>,
}

impl TargetLogs {
    pub(super) fn new(parts: &FeatureParts, store: StoreId) -> Self {
        let (sequences, log_ids) = (BTreeMap::new(), BTreeMap::new());
        Self { parts: parts.clone(), store, client: None, sequences, log_ids }
    }

    /// Forgets the log ids, because a log may have been recreated.
    pub(super) fn forget(&mut self) {
        self.log_ids.clear();
    }

    /// Appends documents with their fields; the last field of each is the one that must grow.
    ///
    /// # Errors
    /// `NotFound` if the store was deleted; else as the log: some documents may then have been
    /// appended.
    pub(super) async fn append(&mut self, documents: Vec<(Key, Vec<FieldChange>)>) -> Result<()> {
        let catalog = self.parts.context.catalog.catalog();
        let deleted_error =
            || Error::not_found("the store that the view materializes to was deleted");
        let store =
            catalog.active_stores().find(|schema| schema.definition.versions.home() == self.store);
        let schema = store.ok_or_else(deleted_error)?;
        let (logs, version) = (schema.definition.write_logs(), schema.definition.version);
        let mut sorted: BTreeMap<PartitionId, Vec<Change>> = BTreeMap::new();
        for (key, fields) in documents {
            let partition = partition_of(key.as_bytes(), logs.partitions);
            let sequence = self.sequences.entry(partition).or_insert(Sequence(0));
            *sequence = Sequence(sequence.0 + 1);
            let change = newer(*sequence, key, fields);
            sorted.entry(partition).or_default().push(change);
        }
        let client = match self.client {
            Some(client) => client,
            None => *self.client.insert(self.parts.context.entropy.client_id()?),
        };
        let mut appends = Vec::with_capacity(sorted.len());
        for (partition, changes) in sorted {
            let at = logs.at(partition);
            let log_id = self.log_id(at).await?;
            let body = EntryBody::Changes(vec![ClientBatch { client, changes }]);
            appends.push((at, entry(log_id, version, body)?));
        }
        let log = &self.parts.context.log;
        let appends = appends.into_iter().map(|(at, entry)| log.append(at, entry));
        try_join_all(appends).await.map(drop)
    }

    async fn log_id(&mut self, at: PartitionRef) -> Result<LogId> {
        if let Some(log_id) = self.log_ids.get(&at) {
            return Ok(*log_id);
        }
        let log = &*self.parts.context.log;
        let found = find_log_id(log, at, log.bounds(at).await?).await?;
        let found =
            found.ok_or_else(|| Error::unavailable("the log has no entry yet; try again"))?;
        self.log_ids.insert(at, found);
        Ok(found)
    }
}

fn entry(log_id: LogId, schema_version: SchemaVersion, body: EntryBody) -> Result<bytes::Bytes> {
    encode_entry(&Entry::original(log_id, schema_version, body))
}

/// Returns a change that takes effect only if the last of its fields grows.
fn newer(sequence: Sequence, key: Key, fields: Vec<FieldChange>) -> Change {
    let position: Option<FieldId> = fields.last().map(|change| change.field);
    let condition = position.map(Condition::IfNewer);
    Change { sequence, key, verb: Verb::Upsert, fields, condition, ttl_us: None }
}
