//! The documents that one entry touches: all are read before anything changes, and each is written
//! once at the end.

use super::document_change::{Effect, change_document};
use super::{Blocked, Documents, Schemas};
use crate::catalog::SchemaAt;
use crate::change::{Change, ClientBatch, Verb};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorCode};
use crate::id::Position;
use crate::key::Key;
use crate::outcome::Verdict;
use crate::row::{Document, row_schema_version};
use crate::schema::Definition;

/// Keys that are prefetched at once: about as many cache misses as a core has outstanding.
const PREFETCHED: usize = 32;

/// Intermediate state of each document that an entry names.
#[derive(Default)]
pub(super) struct Overlay<'e> {
    /// Documents, ordered by key.
    touched: Vec<Touched<'e>>,
    /// For each change, in order, the index of its document.
    places: Vec<u32>,
}

struct Touched<'e> {
    key: &'e Key,
    /// Whether a change reads the document's previous state.
    is_looked_at: bool,
    /// Present document without expired fields; `None` if there is none.
    document: Option<Document>,
    /// Encoded form, if the entry wrote the document.
    row: Option<Vec<u8>>,
    /// Whether the entry wrote or deleted the document.
    changed: bool,
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
        let mut places = vec![0; order.len()];
        let mut touched: Vec<Touched<'e>> = Vec::with_capacity(order.len());
        for (_, change, at) in order {
            if touched.last().is_none_or(|last| *last.key != change.key) {
                touched.push(Touched {
                    key: &change.key,
                    is_looked_at: false,
                    document: None,
                    row: None,
                    changed: false,
                });
            }
            let place = touched.len() - 1;
            touched[place].is_looked_at |=
                !matches!(change.verb, Verb::Put | Verb::Insert) || change.condition.is_some();
            places[at] = place as u32;
        }
        Self { touched, places }
    }

    /// Reads every document whose previous state a change needs. Every failure of an apply happens
    /// here, before the state has moved.
    pub(super) fn load(
        &mut self,
        documents: &impl Documents,
        schemas: &impl Schemas,
        current: &SchemaAt,
        now: Timestamp,
    ) -> Result<(), Blocked> {
        let mut bytes = Vec::with_capacity(PREFETCHED);
        for touched in self.touched.chunks_mut(PREFETCHED) {
            let looked_at = || touched.iter().filter(|touched| touched.is_looked_at);
            bytes.clear();
            bytes.extend(looked_at().map(|touched| touched.key.as_bytes()));
            if let [_, _, ..] = bytes.as_slice() {
                documents.prefetch(&bytes);
            }
            for touched in touched.iter_mut().filter(|touched| touched.is_looked_at) {
                let row = documents.row(touched.key.as_bytes()).map_err(Blocked::Unreadable)?;
                if let Some(row) = row {
                    let document = decode(&row, schemas, current)?;
                    touched.document = live_part(document, now, &current.definition);
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
    ) -> Verdict {
        let touched = &mut self.touched[self.places[number] as usize];
        let (effect, verdict) = change_document(touched.document.as_ref(), change, schema, now, at);
        match effect {
            Effect::Keep => return verdict,
            Effect::Delete => (touched.document, touched.row) = (None, None),
            Effect::Write(document) => match document.encode(&schema.layout) {
                Ok(row) => (touched.document, touched.row) = (Some(document), Some(row)),
                Err(_) => return Verdict::TooLarge,
            },
        }
        touched.changed = true;
        verdict
    }

    /// Returns the last row of each document that changed, ordered by key; `None` deletes it.
    pub(super) fn into_writes(self) -> Vec<(Key, Option<Vec<u8>>)> {
        let changed = self.touched.into_iter().filter(|touched| touched.changed);
        changed.map(|touched| (touched.key.clone(), touched.row)).collect()
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

fn decode(row: &[u8], schemas: &impl Schemas, current: &SchemaAt) -> Result<Document, Blocked> {
    let version = row_schema_version(row)
        .ok_or_else(|| Blocked::Internal(Error::corrupt("a row is shorter than its header")))?;
    let decoded = if version == current.layout.version() {
        Document::decode(row, &current.layout)
    } else {
        let schema = schemas.at(version).ok_or(Blocked::NeedsDefinition(version))?;
        Document::decode(row, &schema.layout)
    };
    decoded.map_err(|error| match error.code() {
        ErrorCode::UpgradeNeeded => Blocked::UpgradeNeeded(error),
        _ => Blocked::Internal(error),
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
