//! Derivation of a stream's event: the event is dropped, or becomes an event of the view.

use std::sync::Arc;

use forebay_core::change::{Change, FieldChange, FieldOp, Verb};
use forebay_core::clock::Timestamp;
use forebay_core::coerce::coerce_value;
use forebay_core::id::{FieldId, PartitionCount, PartitionId, Sequence};
use forebay_core::key::{Key, KeyType};
use forebay_core::partition::partition_of;
use forebay_core::row::Document;
use forebay_core::schema::Definition;
use forebay_core::value::Value;
use forebay_core::view::{FeatureView, Origin};
use forebay_core::{Error, Result};

use super::joins::JoinReaders;
use crate::view_stats::{Counters, count};

/// Derivation of the events of one view.
pub(super) struct Derivation {
    definition: Definition,
    view: FeatureView,
    partitions: PartitionCount,
    /// Type of the source's keys.
    key_type: KeyType,
    /// The source's column with the event time.
    event_time: Option<FieldId>,
    joins: JoinReaders,
    counters: Arc<Counters>,
}

impl Derivation {
    /// # Errors
    /// `Internal` for a definition that is not a view.
    pub(super) fn new(
        definition: &Definition,
        source: &Definition,
        joins: JoinReaders,
        counters: Arc<Counters>,
    ) -> Result<Self> {
        let view = definition.view().ok_or_else(|| Error::internal("the stream is no view"))?;
        Ok(Self {
            definition: definition.clone(),
            view: view.clone(),
            partitions: definition.write_logs().partitions,
            key_type: source.key_type,
            event_time: source.event_time().map(|column| column.id),
            joins,
            counters,
        })
    }

    /// Derives the view's event from an event that the source's log appended at `appended`, and
    /// returns the event with its partition; returns `None` and counts the event if it is dropped.
    ///
    /// # Errors
    /// `Unavailable` if a join cannot be answered now; `Corrupt` for an invalid key.
    pub(super) fn derive(
        &self,
        event: &Change,
        appended: Timestamp,
    ) -> Result<Option<(PartitionId, Change)>> {
        let counters = &self.counters;
        count(&counters.input_events);
        let value = |column: &FieldId| event.set_value(*column);
        if self.view.filter.as_ref().is_some_and(|filter| !filter.is_true(&value)) {
            count(&counters.filter_dropped);
            return Ok(None);
        }
        let key = self.key_type.value(event.key.as_bytes())?;
        let Some(found) = self.join(event, &key)? else {
            count(&counters.join_dropped);
            return Ok(None);
        };
        let time = match self.event_time.and_then(|column| event.set_value(column)) {
            Some(time) => time.clone(),
            None => Value::Timestamp(appended.as_micros()),
        };
        let fields = self.view.columns.iter().filter_map(|(id, origin)| {
            let value = match *origin {
                Origin::Key => Some(key.clone()),
                Origin::EventTime => Some(time.clone()),
                Origin::Column(column) => event.set_value(column).cloned(),
                Origin::Join { join, field } => self.joined_value(&found, join, *id, field),
            };
            let op = FieldOp::Set(Some(value?));
            Some(FieldChange { field: *id, op, ttl_us: None })
        });
        self.placed(event.sequence, fields.collect())
    }

    /// Returns the document of each join; `None` if a required join finds none.
    fn join(&self, event: &Change, key: &Value) -> Result<Option<Vec<Option<Document>>>> {
        let mut found = Vec::with_capacity(self.view.joins.len());
        for join in &self.view.joins {
            let key = join.key.map_or(Some(key), |column| event.set_value(column));
            let document = match key {
                Some(key) => self.joins.get(join.store, key)?,
                None => None,
            };
            if document.is_none() && join.is_required {
                return Ok(None);
            }
            found.push(document);
        }
        Ok(Some(found))
    }

    /// Returns a field of a found document, in the type that its column had when the view was
    /// defined.
    fn joined_value(
        &self,
        found: &[Option<Document>],
        join: u16,
        column: FieldId,
        field: FieldId,
    ) -> Option<Value> {
        let column = self.definition.field_by_id(column)?;
        let document = found.get(usize::from(join))?.as_ref();
        let value = document.and_then(|document| document.value(field)).cloned();
        let coerced = value.and_then(|value| coerce_value(value, column.field_type).ok());
        coerced.or_else(|| column.default.clone())
    }

    fn placed(
        &self,
        sequence: Sequence,
        fields: Vec<FieldChange>,
    ) -> Result<Option<(PartitionId, Change)>> {
        let (condition, ttl_us, verb) = (None, None, Verb::Insert);
        let key = Key::from_identity_bytes(&[]);
        let mut derived = Change { sequence, key, verb, fields, condition, ttl_us };
        // An event without a group is never joined; the values that it has determine its
        // partition.
        let name = self.view.partition_key(&|column| derived.set_value(column));
        let Ok(key) = Key::plain(&name.unwrap_or_default()) else {
            count(&self.counters.oversized_dropped);
            return Ok(None);
        };
        derived.key = key;
        Ok(Some((partition_of(derived.key.as_bytes(), self.partitions), derived)))
    }
}
