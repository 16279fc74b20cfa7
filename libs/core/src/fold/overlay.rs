//! The documents that one entry touches: read before anything changes, written once at its end.

use std::collections::BTreeMap;

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

/// Keys that are asked for at once: about as many as a core can wait for.
const PREFETCHED: usize = 32;

/// The state of each document that an entry names, as the entry has made it so far.
#[derive(Default)]
pub(super) struct Overlay<'e> {
    touched: BTreeMap<&'e Key, Touched>,
}

#[derive(Default)]
struct Touched {
    /// What the document is now, without what has expired; `None`: there is none.
    document: Option<Document>,
    /// Its encoded form, where the entry wrote it.
    row: Option<Vec<u8>>,
    /// Whether the entry wrote or deleted it.
    changed: bool,
}

impl<'e> Overlay<'e> {
    /// Reads every document that a change of these batches looks at. All that can fail in applying
    /// an entry fails here, before the state has moved.
    pub(super) fn load(
        batches: &'e [ClientBatch],
        documents: &impl Documents,
        schemas: &impl Schemas,
        current: &Definition,
        now: Timestamp,
    ) -> Result<Self, Blocked> {
        let mut overlay = Self::default();
        let changes = batches.iter().flat_map(|batch| &batch.changes);
        let looks = |change: &&Change| change.verb != Verb::Put || change.condition.is_some();
        let keys: Vec<&Key> = changes.filter(looks).map(|change| &change.key).collect();
        for keys in keys.chunks(PREFETCHED) {
            if let [_, _, ..] = keys {
                let bytes: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
                documents.prefetch(&bytes);
            }
            for key in keys {
                if overlay.touched.contains_key(key) {
                    continue;
                }
                let document = match documents.row(key.as_bytes()) {
                    Some(row) => live_part(decode(&row, schemas)?, now, current),
                    None => None,
                };
                overlay.touched.insert(key, Touched { document, ..Touched::default() });
            }
        }
        Ok(overlay)
    }

    /// Applies one change to its document.
    pub(super) fn apply(
        &mut self,
        change: &'e Change,
        schema: &SchemaAt,
        now: Timestamp,
        at: Position,
    ) -> Verdict {
        let touched = self.touched.entry(&change.key).or_default();
        let (effect, verdict) = change_document(touched.document.as_ref(), change, schema, now, at);
        match effect {
            Effect::Keep => verdict,
            Effect::Delete => {
                *touched = Touched { document: None, row: None, changed: true };
                verdict
            }
            Effect::Write(document) => match document.encode(&schema.layout) {
                Ok(row) => {
                    *touched = Touched { document: Some(document), row: Some(row), changed: true };
                    verdict
                }
                Err(_) => Verdict::TooLarge,
            },
        }
    }

    /// The last row of each document that changed, by key; `None` deletes it.
    pub(super) fn into_writes(self) -> Vec<(Key, Option<Vec<u8>>)> {
        let changed = self.touched.into_iter().filter(|(_, touched)| touched.changed);
        changed.map(|(key, touched)| (key.clone(), touched.row)).collect()
    }
}

fn decode(row: &[u8], schemas: &impl Schemas) -> Result<Document, Blocked> {
    let version = row_schema_version(row)
        .ok_or_else(|| Blocked::Internal(Error::corrupt("a row is shorter than its header")))?;
    let schema = schemas.at(version).ok_or(Blocked::NeedsDefinition(version))?;
    Document::decode(row, &schema.layout).map_err(|error| match error.code() {
        ErrorCode::UpgradeNeeded => Blocked::UpgradeNeeded(error),
        _ => Blocked::Internal(error),
    })
}

/// The document as the current definition sees it: without what has expired at `now` and without
/// retired fields, its values as wide as their fields; `None` when all of it has expired.
fn live_part(document: Document, now: Timestamp, current: &Definition) -> Option<Document> {
    if document.expires_at.is_some_and(|at| at <= now) {
        return None;
    }
    let mut live = Document::new(document.expires_at, document.version);
    for cell in document.into_cells() {
        let Some(field) = current.field_by_id(cell.field) else { continue };
        if cell.expires_at.is_none_or(|at| at > now) {
            let value = cell.value.map(|value| value.widened_to(field.field_type));
            live.set(cell.field, value, cell.expires_at);
        }
    }
    Some(live)
}
