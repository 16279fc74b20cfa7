//! Feature views: what is made of the events of a stream, as it is declared.
//!
//! A view is a stream of its own. Its events are derived of another one's: those that its filter
//! lets through, with what was looked up for them, partitioned by the columns that it groups by.
//! Of them its features are folded, each over each of its windows.

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
pub use self::emission::{Emission, EmissionSpec, left_behind};
pub use self::predicate::{Comparison, Operand, Predicate};
pub use self::spec::{FeatureSpec, KEY_COLUMN, LookupSpec, ViewFault, ViewPart, ViewSpec};
pub use self::window::{NamedWindow, Window};
use crate::id::{FieldId, StoreId};

/// What makes a stream a feature view.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The stream whose events it is derived of.
    pub source: StoreId,
    /// Which of them, by the source's columns; all without.
    pub filter: Option<Predicate<FieldId>>,
    /// What each is looked up in.
    pub lookups: Vec<Lookup>,
    /// Where each of the view's own columns comes from.
    pub columns: BTreeMap<FieldId, Origin>,
    /// The own columns that say of which group an event is. One without a value of each is of none.
    pub group_by: Vec<FieldId>,
    /// What is folded of a group's events, in the order in which their states stand in tiles.
    pub features: Vec<Feature>,
    /// The windows that each feature is over.
    pub windows: Vec<NamedWindow>,
    /// How far an event may lie behind its partition's time, in microseconds.
    pub lateness_us: i64,
    /// Where its values go; nowhere without.
    pub emission: Option<Emission>,
}

/// Where a column of a view comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The key of the source's event.
    Key,
    /// When the source's event happened: its event time, or else when the log took it.
    EventTime,
    /// A column of the source.
    Column(FieldId),
    /// A field of a document that was looked up.
    Lookup {
        /// Which of the view's lookups, from 0.
        lookup: u16,
        /// The field of that store.
        field: FieldId,
    },
}

/// A look into a store of documents for each event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The store.
    pub store: StoreId,
    /// The source's column that is its documents' key; the event's own key without.
    pub key: Option<FieldId>,
    /// Whether an event that finds no document is left out. Else it has the defaults of the columns
    /// that would come of one, or no values.
    pub is_required: bool,
}

/// One aggregate of a view.
#[derive(Clone, Debug, PartialEq)]
pub struct Feature {
    /// Its name, in front of those of its windows and outputs.
    pub name: String,
    /// Kind, parameters, and type of its input.
    pub aggregate: AggregateSpec,
    /// The own column that it is of; a count of events is of none.
    pub input: Option<FieldId>,
}

impl View {
    /// Whether both derive the same events.
    pub(crate) fn derives_as(&self, other: &Self) -> bool {
        let derives = |view: &Self| (view.source, view.group_by.clone(), view.columns.clone());
        derives(self) == derives(other)
            && self.filter == other.filter
            && self.lookups == other.lookups
    }

    /// The source's columns that it needs.
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

    /// The fields of a store that it looks up.
    pub fn fields_of(&self, store: StoreId) -> BTreeSet<FieldId> {
        let of_store = |lookup: u16| self.lookups.get(usize::from(lookup)).map(|it| it.store);
        let fields = self.columns.values().filter_map(|origin| match origin {
            Origin::Lookup { lookup, field } if of_store(*lookup) == Some(store) => Some(*field),
            _ => None,
        });
        fields.collect()
    }
}
