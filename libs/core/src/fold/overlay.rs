//! The documents that one entry names: all are read before anything changes, and each is written
//! once at the end.

use super::document_change::{Effect, change_document};
use super::lookup::{FoldError, RowLookup, Schemas};
use crate::catalog::SchemaAt;
use crate::change::{Change, ClientBatch, Verb};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorCode};
use crate::id::Position;
use crate::key::Key;
use crate::outcome::ConditionOutcome;
use crate::row::{Document, row_schema_version};
use crate::schema::Definition;

/// Keys that are prefetched at once: about as many cache misses as a core has outstanding.
const PREFETCHED: usize = 32;

/// Intermediate state of each document that an entry names.
#[derive(Default)]
pub(super) struct Overlay<'e> {
    /// Documents, ordered by key.
    documents: Vec<EntryDocument<'e>>,
    /// For each change, in order, the index of its document.
    document_indexes: Vec<u32>,
}

/// A document that an entry names, as of the changes that are applied so far.
struct EntryDocument<'e> {
    key: &'e Key,
    /// Whether a change reads the document's previous state.
    is_looked_at: bool,
    /// Present document without expired fields; `None` if there is none.
    document: Option<Document>,
    /// Encoded form, if the entry wrote the document.
    row: Option<Vec<u8>>,
    /// Whether the entry wrote or deleted the document.
    is_changed: bool,
}

impl<'e> Overlay<'e> {
    /// Creates the overlay of the documents that these batches name, none of them loaded.
    pub(super) fn of(batches: &'e [ClientBatch]) -> Self {
        let changes = || batches.iter().flat_map(|batch| &batch.changes);
        // The sort key includes the first bytes of each key, which decide most comparisons.
        let mut order: Vec<_> =
            changes().enumerate().map(|(at, change)| (prefix(&change.key), change, at)).collect();
        order.sort_unstable_by(|(left, a, _), (right, b, _)| {
            left.cmp(right).then_with(|| a.key.cmp(&b.key))
        });
        let mut document_indexes = vec![0; order.len()];
        let mut documents: Vec<EntryDocument<'e>> = Vec::with_capacity(order.len());
        for (_, change, at) in order {
            if documents.last().is_none_or(|last| *last.key != change.key) {
                documents.push(EntryDocument {
                    key: &change.key,
                    is_looked_at: false,
                    document: None,
                    row: None,
                    is_changed: false,
                });
            }
            let index = documents.len() - 1;
            documents[index].is_looked_at |=
                !matches!(change.verb, Verb::Put | Verb::Insert) || change.condition.is_some();
            document_indexes[at] = index as u32;
        }
        Self { documents, document_indexes }
    }

    /// Reads every document whose previous state a change needs. Every failure of an apply happens
    /// here, before the state has moved.
    pub(super) fn load(
        &mut self,
        rows: &impl RowLookup,
        schemas: &impl Schemas,
        current: &SchemaAt,
        now: Timestamp,
    ) -> Result<(), FoldError> {
        let mut bytes = Vec::with_capacity(PREFETCHED);
        for documents in self.documents.chunks_mut(PREFETCHED) {
            let looked_at = || documents.iter().filter(|entry| entry.is_looked_at);
            bytes.clear();
            bytes.extend(looked_at().map(|entry| entry.key.as_bytes()));
            if let [_, _, ..] = bytes.as_slice() {
                rows.prefetch(&bytes);
            }
            for entry in documents.iter_mut().filter(|entry| entry.is_looked_at) {
                let row = rows.row(entry.key.as_bytes()).map_err(FoldError::Unreadable)?;
                if let Some(row) = row {
                    let document = decode(&row, schemas, current)?;
                    entry.document = live_part(document, now, &current.definition);
                }
            }
        }
        Ok(())
    }

    /// Applies the change with this index to its document.
    pub(super) fn apply(
        &mut self,
        number: usize,
        change: &Change,
        schema: &SchemaAt,
        now: Timestamp,
        at: Position,
    ) -> ConditionOutcome {
        let entry = &mut self.documents[self.document_indexes[number] as usize];
        let (effect, condition) = change_document(entry.document.as_ref(), change, schema, now, at);
        match effect {
            Effect::Keep => return condition,
            Effect::Delete => (entry.document, entry.row) = (None, None),
            Effect::Write(document) => match document.encode(&schema.layout) {
                Ok(row) => (entry.document, entry.row) = (Some(document), Some(row)),
                Err(_) => return ConditionOutcome::TooLarge,
            },
        }
        entry.is_changed = true;
        condition
    }

    /// Returns the last row of each document that changed, ordered by key; `None` deletes it.
    pub(super) fn into_writes(self) -> Vec<(Key, Option<Vec<u8>>)> {
        let changed_documents = self.documents.into_iter().filter(|entry| entry.is_changed);
        changed_documents.map(|entry| (entry.key.clone(), entry.row)).collect()
    }
}

/// Returns a number that orders keys as their first eight bytes do.
fn prefix(key: &Key) -> u64 {
    let bytes = key.as_bytes();
    let mut first = [0; 8];
    let length = bytes.len().min(8);
    first[..length].copy_from_slice(&bytes[..length]);
    // The first byte is the most significant one.
    u64::from_le_bytes(first).swap_bytes()
}

fn decode(row: &[u8], schemas: &impl Schemas, current: &SchemaAt) -> Result<Document, FoldError> {
    let version = row_schema_version(row)
        .ok_or_else(|| FoldError::Internal(Error::corrupt("a row is shorter than its header")))?;
    let result = if version == current.layout.version() {
        Document::decode(row, &current.layout)
    } else {
        let schema = schemas.at(version).ok_or(FoldError::NeedsDefinition(version))?;
        Document::decode(row, &schema.layout)
    };
    result.map_err(|error| match error.code() {
        ErrorCode::UpgradeNeeded => FoldError::UpgradeNeeded(error),
        _ => FoldError::Internal(error),
    })
}

/// Returns the document as the current definition sees it: without fields that expired at `now`,
/// without retired fields, and with values widened to their fields' types. Returns `None` if the
/// whole document has expired.
fn live_part(mut document: Document, now: Timestamp, current: &Definition) -> Option<Document> {
    if document.expires_at.is_some_and(|at| at <= now) {
        return None;
    }
    document.retain(|cell| {
        let Some(field) = current.field_by_id(cell.field) else { return false };
        cell.value = cell.value.take().map(|value| value.widened_to(field.field_type));
        cell.expires_at.is_none_or(|at| at > now)
    });
    Some(document)
}
