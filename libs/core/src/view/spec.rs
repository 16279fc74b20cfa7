//! Specification of a view by names, and the definition that results from it.

use std::collections::BTreeMap;

use super::{
    AggregateKind, AggregateSpec, Feature, FeatureView, Join, MaterializationSpec, NamedWindow,
    Origin, Predicate,
};
use crate::coerce::coerce_value;
use crate::error::{Error, Result};
use crate::id::{FieldId, SchemaVersion, StoreId};
use crate::key::KeyType;
use crate::schema::{Definition, Field, FieldSpec, StoreSpec, StreamSpec};
use crate::value::{FieldType, Value};

/// Name of the source event's key among its columns, unless a column has that name.
pub const KEY_COLUMN: &str = "key";
/// Name of a view's event time if its source has no such column.
const EVENT_TIME: &str = "event_time";
/// Message for an alteration of the derivation of a view's events.
const EVENTS_ARE_FIXED: &str =
    "a view's events cannot change once derived; create another view, and drop this one";

/// Specification of a view.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ViewSpec {
    /// Name of the view and of its stream.
    pub name: String,
    /// Name of the source stream.
    pub source: String,
    /// Partition count. The default is the source's count, or one if the view groups only by
    /// joined columns.
    pub partitions: Option<u32>,
    /// Filter; `None` selects all events.
    pub filter: Option<Predicate<String>>,
    /// Joins for each event.
    pub joins: Vec<JoinSpec>,
    /// Columns that identify an event's group.
    pub entity: Vec<String>,
    /// Extra columns of each event, in addition to those of groups and features, for
    /// features that are added later.
    pub extra_columns: Vec<String>,
    /// Aggregates over a group's events.
    pub features: Vec<FeatureSpec>,
    /// The windows of each feature.
    pub windows: Vec<NamedWindow>,
    /// Allowed lateness: how far an event's time may be before its partition's time, in
    /// microseconds.
    pub allowed_lateness_us: i64,
    /// Destination of the view's values; `None` materializes nothing.
    pub materialization: Option<MaterializationSpec>,
}

/// Specification of a join.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JoinSpec {
    /// Name of the store.
    pub store: String,
    /// Column that is the document key; `None` uses the event's own key.
    pub key: Option<String>,
    /// Columns that the join adds: the column's name, the store's field, and the default for an
    /// event that finds no document or a document without the field.
    pub columns: Vec<(String, String, Option<Value>)>,
    /// Whether an event that finds no document is dropped.
    pub is_required: bool,
}

/// Specification of a feature.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureSpec {
    /// Name of the feature.
    pub name: String,
    /// Kind and parameters.
    pub kind: AggregateKind,
    /// Column that the aggregate reads; a count of events has none.
    pub input: Option<String>,
}

/// Path of a part of a view specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewSpecPath {
    /// The view as a whole, or its name.
    View,
    /// The source stream.
    Source,
    /// The filter.
    Filter,
    /// A join, by its index from 0.
    Join(usize),
    /// A grouping column, by its index from 0.
    Entity(usize),
    /// An extra column, by its index from 0.
    ExtraColumn(usize),
    /// A feature, by its index from 0.
    Feature(usize),
    /// The destination of the values.
    Materialization,
}

/// Error in a view specification, with its location.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewSpecError {
    /// Path of the invalid part.
    pub path: ViewSpecPath,
    /// The error.
    pub error: Error,
}

/// A column that a view may take, before it has an id of its own.
struct Available {
    origin: Origin,
    field_type: FieldType,
    default: Option<Value>,
}

/// Builder of a view's columns.
struct ViewBuilder<'s> {
    source: &'s Definition,
    /// Joined columns, by name.
    joined_columns: BTreeMap<String, Available>,
    fields: Vec<FieldSpec>,
    origins: Vec<Origin>,
}

impl ViewSpec {
    /// Creates the first definition of the view, under this id.
    ///
    /// `store` returns the newest definition of a store by its name; for the destination store it
    /// returns the definition that [`MaterializationSpec::new_store`] or
    /// [`MaterializationSpec::altered_store`] creates.
    ///
    /// # Errors
    /// Returns [`ViewSpecError`] for the first invalid part.
    pub fn define(
        &self,
        id: StoreId,
        source: &Definition,
        store: &impl Fn(&str) -> Result<Definition>,
    ) -> std::result::Result<Definition, ViewSpecError> {
        let definition = self.define_silent(id, source, store)?;
        self.materializing(definition, None, store)
    }

    /// Creates the first definition of the view, without its materialization.
    fn define_silent(
        &self,
        id: StoreId,
        source: &Definition,
        store: &impl Fn(&str) -> Result<Definition>,
    ) -> std::result::Result<Definition, ViewSpecError> {
        let at = |path| move |error| ViewSpecError { path, error };
        if source.stream.is_none() {
            let message = "a view needs a stream, and this is a document store; name a stream";
            let error = Error::invalid_argument(message).with_store(&source.name);
            return Err(at(ViewSpecPath::Source)(error));
        }
        let mut builder = ViewBuilder::of(source);
        let mut joins = Vec::new();
        for (number, join) in self.joins.iter().enumerate() {
            let view_join = builder.join(number as u16, join, store);
            joins.push(view_join.map_err(at(ViewSpecPath::Join(number)))?);
        }
        let filter = self.filter.as_ref().map(|filter| source_predicate(source, filter));
        let filter = filter.transpose().map_err(at(ViewSpecPath::Filter))?;
        for (number, name) in self.entity.iter().enumerate() {
            builder.take(name).map_err(at(ViewSpecPath::Entity(number)))?;
        }
        for (number, feature) in self.features.iter().enumerate() {
            let column = feature.input.as_ref().map(|name| builder.take(name)).transpose();
            column.map_err(at(ViewSpecPath::Feature(number)))?;
        }
        for (number, name) in self.extra_columns.iter().enumerate() {
            builder.take(name).map_err(at(ViewSpecPath::ExtraColumn(number)))?;
        }
        // An event's partition must not depend on joined values.
        let is_joined = |name: &String| {
            self.joins
                .iter()
                .flat_map(|join| &join.columns)
                .any(|(column_name, ..)| column_name == name)
        };
        let default =
            if self.entity.iter().all(is_joined) { 1 } else { source.write_logs().partitions.0 };
        let partitions = self.partitions.unwrap_or(default);
        let mut stream = StoreSpec::stream(&self.name, KeyType::Bytes).partitions(partitions);
        stream.stream = Some(StreamSpec { event_time: Some(builder.fields[0].name.clone()) });
        stream.fields = builder.fields;
        let mut definition = stream.define(id).map_err(at(ViewSpecPath::View))?;
        let ids = definition.fields.iter().map(|field| field.id);
        let view = FeatureView {
            source: source.store,
            filter,
            joins,
            columns: ids.zip(builder.origins).collect(),
            entity: self.entity.iter().filter_map(|name| id_of(&definition, name)).collect(),
            features: self.features(&definition)?,
            windows: self.windows.clone(),
            allowed_lateness_us: self.allowed_lateness_us,
            materialization: None,
        };
        if let Some(stream) = &mut definition.stream {
            stream.view = Some(Box::new(view));
        }
        definition.check().map_err(at(ViewSpecPath::View))?;
        Ok(definition)
    }

    /// Creates the next definition of a view: with other features, windows or allowed lateness over
    /// the columns that its events have, or with another materialization. Returns `current` if
    /// nothing changes.
    ///
    /// # Errors
    /// Returns the errors of [`ViewSpec::define`]; `InvalidArgument` also if the derivation of the
    /// view's events would change, and for columns that the events do not have.
    pub fn alter(
        &self,
        current: &Definition,
        source: &Definition,
        store: &impl Fn(&str) -> Result<Definition>,
    ) -> std::result::Result<Definition, ViewSpecError> {
        let new_definition = self.define_silent(current.store, source, store)?;
        self.check_derivation(current, &new_definition)?;
        self.check_columns(current, &new_definition)?;
        let mut next = current.clone();
        if let Some(view) = next.stream.as_mut().and_then(|stream| stream.view.as_mut()) {
            view.features = self.features(current)?;
            view.windows.clone_from(&self.windows);
            view.allowed_lateness_us = self.allowed_lateness_us;
            view.materialization = None;
        }
        next = self.materializing(next, Some(current), store)?;
        if next != *current {
            next.version = SchemaVersion(current.version.0 + 1);
        }
        next.check().map_err(|error| ViewSpecError { path: ViewSpecPath::View, error })?;
        Ok(next)
    }

    /// Refuses a view that derives other events than the current one.
    fn check_derivation(
        &self,
        current: &Definition,
        next: &Definition,
    ) -> std::result::Result<(), ViewSpecError> {
        let (Some(current_view), Some(next_view)) = (current.view(), next.view()) else {
            let message = "a store of this name exists and is no view; choose another name";
            return Err(invalid(ViewSpecPath::View, message));
        };
        let origins = |view: &FeatureView| -> Vec<_> {
            view.entity.iter().filter_map(|id| view.columns.get(id).copied()).collect()
        };
        for (path, is_same) in [
            (ViewSpecPath::Source, current_view.source == next_view.source),
            (ViewSpecPath::Filter, current_view.filter == next_view.filter),
            (ViewSpecPath::Join(0), current_view.joins == next_view.joins),
            (ViewSpecPath::Entity(0), origins(current_view) == origins(next_view)),
            (ViewSpecPath::View, current.write_logs().partitions == next.write_logs().partitions),
        ] {
            if !is_same {
                return Err(invalid(path, EVENTS_ARE_FIXED));
            }
        }
        Ok(())
    }

    /// Refuses joined columns of another origin than the current one, and extra columns that the
    /// current view's events lack.
    fn check_columns(
        &self,
        current: &Definition,
        next: &Definition,
    ) -> std::result::Result<(), ViewSpecError> {
        for (number, join) in self.joins.iter().enumerate() {
            let has_changed = |(name, ..): &(String, String, Option<Value>)| {
                let (current_origin, next_origin) = (origin(current, name), origin(next, name));
                current_origin.is_some() && next_origin.is_some() && current_origin != next_origin
            };
            if join.columns.iter().any(has_changed) {
                return Err(invalid(ViewSpecPath::Join(number), EVENTS_ARE_FIXED));
            }
        }
        for (number, name) in self.extra_columns.iter().enumerate() {
            if current.field(name).is_none() {
                let message = "the view's events lack this column; create another view";
                return Err(invalid(ViewSpecPath::ExtraColumn(number), message));
            }
        }
        Ok(())
    }

    /// Adds the materialization to a view, if the specification has one. `was` is the previous
    /// definition of the view.
    fn materializing(
        &self,
        mut definition: Definition,
        previous: Option<&Definition>,
        store: &impl Fn(&str) -> Result<Definition>,
    ) -> std::result::Result<Definition, ViewSpecError> {
        let Some(spec) = &self.materialization else { return Ok(definition) };
        let materialization = store(&spec.store)
            .and_then(|store| spec.materialization(&definition, previous, &store));
        let materialization = materialization
            .map_err(|error| ViewSpecError { path: ViewSpecPath::Materialization, error })?;
        if let Some(view) = definition.stream.as_mut().and_then(|stream| stream.view.as_mut()) {
            view.materialization = Some(materialization);
        }
        Ok(definition)
    }

    /// Resolves the features with a definition that has their columns.
    fn features(
        &self,
        definition: &Definition,
    ) -> std::result::Result<Vec<Feature>, ViewSpecError> {
        let feature = |(number, spec): (usize, &FeatureSpec)| {
            spec.feature(definition).map_err(|error| {
                let error = error.with_field(&spec.name);
                ViewSpecError { path: ViewSpecPath::Feature(number), error }
            })
        };
        self.features.iter().enumerate().map(feature).collect()
    }
}

impl FeatureSpec {
    fn feature(&self, definition: &Definition) -> Result<Feature> {
        let column = self.input.as_ref().map(|name| {
            let message =
                format!("the view has no column `{name}`; add the column to `extra_columns`");
            definition.field(name).ok_or_else(|| Error::not_found(message))
        });
        let column = column.transpose()?;
        let input = match column.map(|column| column.field_type) {
            None => None,
            Some(FieldType::Scalar(scalar)) => Some(scalar),
            Some(other) => {
                let message =
                    format!("a feature cannot aggregate a {other}; choose a scalar column");
                return Err(Error::invalid_argument(message));
            }
        };
        Ok(Feature {
            name: self.name.clone(),
            aggregate: AggregateSpec::new(self.kind.clone(), input)?,
            input: column.map(|column| column.id),
        })
    }
}

impl<'s> ViewBuilder<'s> {
    /// Creates a builder with the event time as the first column.
    fn of(source: &'s Definition) -> Self {
        let mut name = source.event_time().map_or(EVENT_TIME, |column| &column.name).to_owned();
        while source.event_time().is_none() && source.field(&name).is_some() {
            name.push('_');
        }
        let event_time = FieldSpec::new(name, FieldType::TIMESTAMP);
        let (joined_columns, fields) = (BTreeMap::new(), vec![event_time]);
        Self { source, joined_columns, fields, origins: vec![Origin::EventTime] }
    }

    /// Makes the columns of a join available.
    fn join(
        &mut self,
        number: u16,
        spec: &JoinSpec,
        store: &impl Fn(&str) -> Result<Definition>,
    ) -> Result<Join> {
        let definition = store(&spec.store)?;
        definition.check_is_of_documents()?;
        let key = spec.key.as_ref().map(|name| source_column(self.source, name)).transpose()?;
        let key_type =
            key.map_or_else(|| self.source.key_type.field_type(), |column| column.field_type);
        if key_type != definition.key_type.field_type() {
            let found = definition.key_type.field_type();
            let message = format!(
                "the store's keys are {found}s, but the column is a {key_type}; choose another \
                 column"
            );
            return Err(Error::invalid_argument(message).with_store(&spec.store));
        }
        if definition.partition_key.is_some() {
            let message = "a join cannot read a store with a partition key; choose another store";
            return Err(Error::invalid_argument(message).with_store(&spec.store));
        }
        for (name, field, fill) in &spec.columns {
            let found = definition.field(field).ok_or_else(|| {
                Error::not_found("the store has no such field; describe the store for its fields")
                    .with_field(field)
            })?;
            if self.source.field(name).is_some() || self.joined_columns.contains_key(name) {
                let message = "another column has this name; choose another name";
                return Err(Error::invalid_argument(message).with_field(name));
            }
            let default =
                fill.clone().map(|value| coerce_value(value, found.field_type)).transpose();
            let default = default.map_err(|error| error.with_field(name))?;
            let origin = Origin::Join { join: number, field: found.id };
            let column = Available { origin, field_type: found.field_type, default };
            self.joined_columns.insert(name.clone(), column);
        }
        let key = key.map(|column| column.id);
        Ok(Join { store: definition.store, key, is_required: spec.is_required })
    }

    /// Adds a column to the view, unless the view has it already.
    fn take(&mut self, name: &str) -> Result<()> {
        if self.fields.iter().any(|field| field.name == name) {
            return Ok(());
        }
        let Available { origin, field_type, default } = self.find(name)?;
        self.fields.push(FieldSpec { default, ..FieldSpec::new(name, field_type) });
        self.origins.push(origin);
        Ok(())
    }

    fn find(&mut self, name: &str) -> Result<Available> {
        if let Some(found) = self.joined_columns.remove(name) {
            return Ok(found);
        }
        let (origin, field_type) = match self.source.field(name) {
            Some(column) => (Origin::Column(column.id), column.field_type),
            None if name == KEY_COLUMN => (Origin::Key, self.source.key_type.field_type()),
            None => {
                let message = "neither the stream nor a join has the column; describe the \
                    stream, or join a store that has it";
                return Err(Error::not_found(message).with_field(name));
            }
        };
        Ok(Available { origin, field_type, default: None })
    }
}

fn invalid(path: ViewSpecPath, message: &str) -> ViewSpecError {
    ViewSpecError { path, error: Error::invalid_argument(message) }
}

/// Returns the origin of a view's column, and its default.
fn origin<'d>(
    definition: &'d Definition,
    name: &str,
) -> Option<(Option<&'d Origin>, Option<&'d Value>)> {
    let column = definition.field(name)?;
    let origin = definition.view().and_then(|view| view.columns.get(&column.id));
    Some((origin, column.default.as_ref()))
}

fn id_of(definition: &Definition, name: &str) -> Option<FieldId> {
    definition.field(name).map(|column| column.id)
}

fn source_column<'s>(source: &'s Definition, name: &str) -> Result<&'s Field> {
    let found = source.field(name);
    found.ok_or_else(|| {
        Error::not_found("the stream has no such column; describe the stream for its columns")
            .with_field(name)
    })
}

/// Resolves a condition to the ids of the source's columns, with literals of their types.
fn source_predicate(
    source: &Definition,
    predicate: &Predicate<String>,
) -> Result<Predicate<FieldId>> {
    let id = |name: &String| source_column(source, name).map(|column| column.id);
    let literal = |name: &String, value: &Value| {
        let column = source_column(source, name)?;
        coerce_value(value.clone(), column.field_type).map_err(|error| error.with_field(name))
    };
    let resolved = predicate.resolved(&id, &literal)?;
    check_types(source, &resolved)?;
    Ok(resolved)
}

/// Refuses comparisons of columns with different types, or with types that have no order.
fn check_types(source: &Definition, predicate: &Predicate<FieldId>) -> Result<()> {
    use super::Operand;
    let type_of = |id: &FieldId| source.field_by_id(*id).map(|column| column.field_type);
    match predicate {
        Predicate::All(predicates) | Predicate::Any(predicates) => {
            predicates.iter().try_for_each(|one| check_types(source, one))
        }
        Predicate::Not(other) => check_types(source, other),
        Predicate::IsMissing(_) => Ok(()),
        Predicate::Compare { column, .. } | Predicate::IsOneOf { column, .. }
            if !matches!(type_of(column), Some(FieldType::Scalar(_))) =>
        {
            Err(Error::invalid_argument(
                "the condition compares a column that is not a scalar; compare scalar columns only",
            ))
        }
        Predicate::Compare { column, to: Operand::Column(other), .. }
            if type_of(column) != type_of(other) =>
        {
            Err(Error::invalid_argument(
                "the two compared columns have different types; compare columns of the same type",
            ))
        }
        Predicate::Compare { .. } | Predicate::IsOneOf { .. } => Ok(()),
    }
}
