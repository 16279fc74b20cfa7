//! Feature views: declarations of features over the events of a stream.
//!
//! A view is itself a stream, derived from another stream: the view's filter selects events,
//! joins add columns, and the result is partitioned by the grouping columns. Aggregates fold
//! these events into features, each over each of the view's windows.

mod aggregate;
mod check;
mod group;
mod materialization;
mod predicate;
mod spec;
mod window;

use std::collections::{BTreeMap, BTreeSet};

pub use self::aggregate::{
    AggregateKind, AggregateSpec, DISTINCT_LG_K, Output, QUANTILES_K, TOP_LG_COUNTERS,
};
pub use self::check::ViewOutput;
pub use self::materialization::{MaterializationSpec, orphaned_fields};
pub use self::predicate::{Comparison, Operand, Predicate};
pub use self::spec::{FeatureSpec, JoinSpec, KEY_COLUMN, ViewSpec, ViewSpecError, ViewSpecPath};
pub use self::window::{NamedWindow, Window};
use crate::id::{FieldId, StoreId};

/// Properties of a stream that is a feature view.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureView {
    /// The source stream.
    pub source: StoreId,
    /// Filter over the source's columns; `None` selects all events.
    pub filter: Option<Predicate<FieldId>>,
    /// Joins of each event with documents of stores.
    pub joins: Vec<Join>,
    /// Origin of each of the view's own columns.
    pub columns: BTreeMap<FieldId, Origin>,
    /// The view's own columns that identify an event's group. An event without a value in one of
    /// them belongs to no group.
    pub entity: Vec<FieldId>,
    /// Aggregates over a group's events, in the order in which tiles hold their states.
    pub features: Vec<Feature>,
    /// The windows of each feature.
    pub windows: Vec<NamedWindow>,
    /// Allowed lateness: how far an event's time may be before its partition's time, in
    /// microseconds.
    pub allowed_lateness_us: i64,
    /// Destination of the view's values; `None` materializes nothing.
    pub materialization: Option<Materialization>,
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
    /// A field of a joined document.
    Join {
        /// Index of the view's join, from 0.
        join: u16,
        /// Field of the joined store.
        field: FieldId,
    },
}

/// A join in a document store for each event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// The store.
    pub store: StoreId,
    /// The source's column that is the document key; `None` uses the event's own key.
    pub key: Option<FieldId>,
    /// Whether an event that finds no document is dropped. Otherwise the event has the defaults of
    /// the join's columns, or no values.
    pub is_required: bool,
}

/// Destination of a view's values: fields of documents in a store, one document for each group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Materialization {
    /// The store.
    pub store: StoreId,
    /// Field for each of the view's outputs, in their order ([`FeatureView::outputs`]).
    pub fields: Vec<FieldId>,
    /// Field with the position in the view's log from which a document's values are; it only grows.
    pub position: FieldId,
    /// Least interval between two materializations of one group, in microseconds.
    pub interval_us: i64,
    /// Expiry grace: how long a windowed value outlives its next change, in microseconds. Readers
    /// see the value for this time if the view stops materializing.
    pub expiry_grace_us: i64,
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

impl FeatureView {
    /// Returns whether both views derive the same events.
    pub(crate) fn derives_as(&self, other: &Self) -> bool {
        let derives = |view: &Self| (view.source, view.entity.clone(), view.columns.clone());
        derives(self) == derives(other) && self.filter == other.filter && self.joins == other.joins
    }

    /// Returns the source's columns that the view needs.
    pub fn columns_of_source(&self) -> BTreeSet<FieldId> {
        let columns = self.columns.values().filter_map(|origin| match origin {
            Origin::Column(id) => Some(*id),
            _ => None,
        });
        let keys = self.joins.iter().filter_map(|join| join.key);
        let mut all: BTreeSet<_> = columns.chain(keys).collect();
        if let Some(filter) = &self.filter {
            filter.for_each_column(&mut |column| {
                all.insert(*column);
            });
        }
        all
    }

    /// Returns the fields of a store that the view joins.
    pub fn fields_of(&self, store: StoreId) -> BTreeSet<FieldId> {
        let of_store = |join: u16| self.joins.get(usize::from(join)).map(|it| it.store);
        let fields = self.columns.values().filter_map(|origin| match origin {
            Origin::Join { join, field } if of_store(*join) == Some(store) => Some(*field),
            _ => None,
        });
        fields.collect()
    }
}
