//! Feature views: declarations of features over the events of a stream.
//!
//! A view is itself a stream, derived from another stream: the view's filter selects events,
//! lookups add columns, and the result is partitioned by the grouping columns. Aggregates fold
//! these events into features, each over each of the view's windows.

mod aggregate;
mod check;
mod emission;
mod group;
mod predicate;
mod spec;
mod window;

use std::collections::{BTreeMap, BTreeSet};

pub use self::aggregate::{
    AggregateKind, AggregateSpec, DISTINCT_LG_K, Output, QUANTILES_K, TOP_LG_COUNTERS,
};
pub use self::check::ViewOutput;
pub use self::emission::{EmissionSpec, left_behind};
pub use self::predicate::{Comparison, Operand, Predicate};
pub use self::spec::{FeatureSpec, KEY_COLUMN, LookupSpec, ViewFault, ViewPart, ViewSpec};
pub use self::window::{NamedWindow, Window};
use crate::id::{FieldId, StoreId};

/// Properties of a stream that is a feature view.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The source stream.
    pub source: StoreId,
    /// Filter over the source's columns; `None` selects all events.
    pub filter: Option<Predicate<FieldId>>,
    /// Stores in which each event is looked up.
    pub lookups: Vec<Lookup>,
    /// Origin of each of the view's own columns.
    pub columns: BTreeMap<FieldId, Origin>,
    /// The view's own columns that identify an event's group. An event without a value in one of
    /// them belongs to no group.
    pub group_by: Vec<FieldId>,
    /// Aggregates over a group's events, in the order in which tiles hold their states.
    pub features: Vec<Feature>,
    /// The windows of each feature.
    pub windows: Vec<NamedWindow>,
    /// Allowed lateness: how far an event's time may be before its partition's time, in
    /// microseconds.
    pub lateness_us: i64,
    /// Destination of the view's values; `None` emits nothing.
    pub emission: Option<Emission>,
}

/// Origin of a column of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The key of the source's event.
    Key,
    /// Time of the source's event: its event time, or else its append time.
    EventTime,
    /// A column of the source.
    Column(FieldId),
    /// A field of a document that was looked up.
    Lookup {
        /// Index of the view's lookup, from 0.
        lookup: u16,
        /// Field of the looked-up store.
        field: FieldId,
    },
}

/// A lookup in a document store for each event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The store.
    pub store: StoreId,
    /// The source's column that is the document key; `None` uses the event's own key.
    pub key: Option<FieldId>,
    /// Whether an event that finds no document is dropped. Otherwise the event has the defaults of
    /// the lookup's columns, or no values.
    pub is_required: bool,
}

/// Destination of a view's values: fields of documents in a store, one document for each group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emission {
    /// The store.
    pub store: StoreId,
    /// Field for each of the view's outputs, in their order ([`View::outputs`]).
    pub fields: Vec<FieldId>,
    /// Field with the position in the view's log from which a document's values are; it only grows.
    pub position: FieldId,
    /// Least interval between two emissions of one group, in microseconds.
    pub cadence_us: i64,
    /// Grace: how long a windowed value outlives its next change, in microseconds. Readers see the
    /// value for this time if the view stops emitting.
    pub grace_us: i64,
}

/// An aggregate of a view.
#[derive(Clone, Debug, PartialEq)]
pub struct Feature {
    /// Name, which precedes the names of windows and outputs.
    pub name: String,
    /// Kind, parameters and input type.
    pub aggregate: AggregateSpec,
    /// The view's own column that the aggregate reads; a count of events has none.
    pub input: Option<FieldId>,
}

impl View {
    /// Returns whether both views derive the same events.
    pub(crate) fn derives_as(&self, other: &Self) -> bool {
        let derives = |view: &Self| (view.source, view.group_by.clone(), view.columns.clone());
        derives(self) == derives(other)
            && self.filter == other.filter
            && self.lookups == other.lookups
    }

    /// Returns the source's columns that the view needs.
    pub fn columns_of_source(&self) -> BTreeSet<FieldId> {
        let columns = self.columns.values().filter_map(|origin| match origin {
            Origin::Column(id) => Some(*id),
            _ => None,
        });
        let keys = self.lookups.iter().filter_map(|lookup| lookup.key);
        let mut all: BTreeSet<_> = columns.chain(keys).collect();
        if let Some(filter) = &self.filter {
            filter.for_each_column(&mut |column| {
                all.insert(*column);
            });
        }
        all
    }

    /// Returns the fields of a store that the view looks up.
    pub fn fields_of(&self, store: StoreId) -> BTreeSet<FieldId> {
        let of_store = |lookup: u16| self.lookups.get(usize::from(lookup)).map(|it| it.store);
        let fields = self.columns.values().filter_map(|origin| match origin {
            Origin::Lookup { lookup, field } if of_store(*lookup) == Some(store) => Some(*field),
            _ => None,
        });
        fields.collect()
    }
}
