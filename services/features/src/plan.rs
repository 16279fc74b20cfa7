//! Plan of a view's fold, for one version of its definition.

use forebay_core::clock::Timestamp;
use forebay_core::id::{FieldId, SchemaVersion};
use forebay_core::row::decode_value;
use forebay_core::schema::Definition;
use forebay_core::value::{FieldType, Value};
use forebay_core::view::FeatureView;
use forebay_core::{Error, Result};
use forebay_sketch::{Aggregates, FoldPlan, GroupTiles, Windows};

/// Plan of a view's fold.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Version of the definition.
    pub(crate) version: SchemaVersion,
    pub(crate) view: FeatureView,
    pub(crate) fold: FoldPlan,
    event_time: FieldId,
    /// Types of the columns of `entity`.
    group_types: Vec<FieldType>,
}

impl Plan {
    /// Creates the plan of a view's definition.
    ///
    /// # Errors
    /// `InvalidArgument` for a definition that is not a view.
    pub(crate) fn of(definition: &Definition) -> Result<Self> {
        let not_one =
            || Error::invalid_argument("the stream is no view").with_store(&definition.name);
        let view = definition.view().ok_or_else(not_one)?.clone();
        let event_time = definition.event_time().ok_or_else(not_one)?.id;
        let specs = view.features.iter().map(|feature| feature.aggregate.clone()).collect();
        let windows = view.windows.iter().map(|named| named.window).collect();
        let windows = Windows::new(windows, view.allowed_lateness_us)?;
        let fold = FoldPlan::new(Aggregates::new(specs)?, windows)?;
        let group_types = view.entity.iter().map(|id| definition.field_by_id(*id));
        let group_types = group_types.map(|column| column.map(|column| column.field_type));
        let group_types = group_types.collect::<Option<_>>().ok_or_else(not_one)?;
        Ok(Self { version: definition.version, view, fold, event_time, group_types })
    }

    /// Decodes a group's name into the values of the columns of `entity`.
    ///
    /// # Errors
    /// `Corrupt` for an invalid name.
    pub(crate) fn group_values(&self, name: &[u8]) -> Result<Vec<Value>> {
        match self.group_at_front(name)? {
            (values, []) => Ok(values),
            _ => Err(Error::corrupt("the bytes name more than one group of the view")),
        }
    }

    /// Decodes the group at the start of some bytes; returns its values and the remaining bytes.
    ///
    /// # Errors
    /// `Corrupt` if the bytes do not start with a group.
    pub(crate) fn group_at_front<'n>(&self, mut name: &'n [u8]) -> Result<(Vec<Value>, &'n [u8])> {
        let damaged = || Error::corrupt("the bytes do not name a group of the view");
        let mut values = Vec::with_capacity(self.group_types.len());
        for field_type in &self.group_types {
            let FieldType::Scalar(scalar) = field_type else { return Err(damaged()) };
            let width = match scalar.width() {
                Some(width) => width,
                None => {
                    let (length, rest) = name.split_first_chunk().ok_or_else(damaged)?;
                    name = rest;
                    u32::from_le_bytes(*length) as usize
                }
            };
            let (value, rest) = name.split_at_checked(width).ok_or_else(damaged)?;
            values.push(decode_value(value, *field_type)?);
            name = rest;
        }
        Ok((values, name))
    }

    /// Returns the value of one of the columns of `entity`.
    pub(crate) fn group_value<'v>(
        &self,
        values: &'v [Value],
        column: FieldId,
    ) -> Option<&'v Value> {
        let index = self.view.entity.iter().position(|entity_column| *entity_column == column)?;
        values.get(index)
    }

    /// Returns whether another version's tiles and materialization rows equal those of this
    /// version.
    pub(crate) fn folds_as(&self, other: &Definition) -> bool {
        let folded = |view: &FeatureView| {
            let features: Vec<_> =
                view.features.iter().map(|it| (it.aggregate.clone(), it.input)).collect();
            let windows: Vec<_> = view.windows.iter().map(|named| named.window).collect();
            let materialized =
                view.materialization.as_ref().map(|materialization| materialization.fields.clone());
            (features, windows, view.allowed_lateness_us, materialized)
        };
        other.view().is_some_and(|other| folded(other) == folded(&self.view))
    }

    /// Returns the time of an event; `appended` if the event has none.
    pub(crate) fn time<'v>(
        &self,
        value: &impl Fn(FieldId) -> Option<&'v Value>,
        appended: Timestamp,
    ) -> Timestamp {
        match value(self.event_time) {
            Some(Value::Timestamp(micros)) => Timestamp::from_micros(*micros),
            _ => appended,
        }
    }

    /// Returns all values of a group at a time, in the order of the view's outputs.
    ///
    /// # Errors
    /// As the aggregates.
    pub(crate) fn values(&self, tiles: &GroupTiles, at: Timestamp) -> Result<Vec<Option<Value>>> {
        let mut values = Vec::new();
        for named in &self.view.windows {
            values.append(&mut tiles.values(&self.fold, named.window, at)?);
        }
        Ok(values)
    }

    /// Returns the input of each feature for an event.
    pub(crate) fn inputs<'v>(
        &self,
        value: &impl Fn(FieldId) -> Option<&'v Value>,
    ) -> Vec<Option<Value>> {
        let features = self.view.features.iter();
        features.map(|feature| feature.input.and_then(value).cloned()).collect()
    }
}
