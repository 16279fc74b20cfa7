//! Specification of a view by names, and the definition that results from it.

use std::collections::BTreeMap;

use super::{
    AggregateKind, AggregateSpec, EmissionSpec, Feature, Lookup, NamedWindow, Origin, Predicate,
    View,
};
use crate::error::{Error, Result};
use crate::fit::fit;
use crate::id::{FieldId, SchemaVersion, StoreId};
use crate::key::KeyType;
use crate::schema::{Definition, Field, FieldSpec, StoreSpec, StreamSpec};
use crate::value::{FieldType, Value};

/// Name of the source event's key among its columns, unless a column has that name.
pub const KEY_COLUMN: &str = "key";
/// Name of a view's event time if its source has no such column.
const EVENT_TIME: &str = "event_time";

/// Specification of a view.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ViewSpec {
    /// Name of the view and of its stream.
    pub name: String,
    /// Name of the source stream.
    pub stream: String,
    /// Partition count. The default is the source's count, or one if the view groups only by
    /// looked-up columns.
    pub partitions: Option<u32>,
    /// Filter; `None` selects all events.
    pub filter: Option<Predicate<String>>,
    /// Lookups for each event.
    pub lookups: Vec<LookupSpec>,
    /// Columns that identify an event's group.
    pub group_by: Vec<String>,
    /// Extra columns to keep for each event, in addition to those of groups and features, for
    /// features that are added later.
    pub keep: Vec<String>,
    /// Aggregates over a group's events.
    pub features: Vec<FeatureSpec>,
    /// The windows of each feature.
    pub windows: Vec<NamedWindow>,
    /// Allowed lateness: how far an event's time may be before its partition's time, in
    /// microseconds.
    pub lateness_us: i64,
    /// Destination of the view's values; `None` emits nothing.
    pub emission: Option<EmissionSpec>,
}

/// Specification of a lookup.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LookupSpec {
    /// Name of the store.
    pub store: String,
    /// Column that is the document key; `None` uses the event's own key.
    pub key: Option<String>,
    /// Columns that the lookup adds: the column's name, the store's field, and the default for an
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

/// Part of a view specification that is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewPart {
    /// The view as a whole, or its name.
    View,
    /// The source stream.
    Stream,
    /// The filter.
    Filter,
    /// A lookup, by its index from 0.
    Lookup(usize),
    /// A grouping column, by its index from 0.
    GroupBy(usize),
    /// An extra column, by its index from 0.
    Keep(usize),
    /// A feature, by its index from 0.
    Feature(usize),
    /// The destination of the values.
    Emission,
}

/// Error in a view specification, with its location.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewFault {
    /// The invalid part.
    pub part: ViewPart,
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
struct Making<'s> {
    source: &'s Definition,
    /// Looked-up columns, by name.
    looked_up: BTreeMap<String, Available>,
    fields: Vec<FieldSpec>,
    origins: Vec<Origin>,
}

impl ViewSpec {
    /// Creates the first definition of the view, under this id.
    ///
    /// `store` returns the newest definition of a store by its name; for the destination store it
    /// returns the definition that [`EmissionSpec::new_store`] or [`EmissionSpec::altered_store`]
    /// creates.
    ///
    /// # Errors
    /// Returns [`ViewFault`] for the first invalid part.
    pub fn define(
        &self,
        id: StoreId,
        source: &Definition,
        store: &impl Fn(&str) -> Result<Definition>,
    ) -> std::result::Result<Definition, ViewFault> {
        let definition = self.define_silent(id, source, store)?;
        self.emitting(definition, None, store)
    }

    /// Creates the first definition of the view, without its emission.
    fn define_silent(
        &self,
        id: StoreId,
        source: &Definition,
        store: &impl Fn(&str) -> Result<Definition>,
    ) -> std::result::Result<Definition, ViewFault> {
        let at = |part| move |error| ViewFault { part, error };
        if source.stream.is_none() {
            let message = "a view needs a stream, and this is a document store; name a stream";
            let error = Error::invalid_argument(message).with_store(&source.name);
            return Err(at(ViewPart::Stream)(error));
        }
        let mut making = Making::of(source);
        let mut lookups = Vec::new();
        for (number, lookup) in self.lookups.iter().enumerate() {
            let made = making.look_up(number as u16, lookup, store);
            lookups.push(made.map_err(at(ViewPart::Lookup(number)))?);
        }
        let filter = self.filter.as_ref().map(|filter| source_predicate(source, filter));
        let filter = filter.transpose().map_err(at(ViewPart::Filter))?;
        for (number, name) in self.group_by.iter().enumerate() {
            making.take(name).map_err(at(ViewPart::GroupBy(number)))?;
        }
        for (number, feature) in self.features.iter().enumerate() {
            let taken = feature.input.as_ref().map(|name| making.take(name)).transpose();
            taken.map_err(at(ViewPart::Feature(number)))?;
        }
        for (number, name) in self.keep.iter().enumerate() {
            making.take(name).map_err(at(ViewPart::Keep(number)))?;
        }
        // An event's partition must not depend on looked-up values.
        let is_looked_up = |name: &String| {
            self.lookups.iter().flat_map(|lookup| &lookup.columns).any(|(of, ..)| of == name)
        };
        let default =
            if self.group_by.iter().all(is_looked_up) { 1 } else { source.written().partitions.0 };
        let partitions = self.partitions.unwrap_or(default);
        let mut stream = StoreSpec::stream(&self.name, KeyType::Bytes, partitions);
        stream.stream = Some(StreamSpec { event_time: Some(making.fields[0].name.clone()) });
        stream.fields = making.fields;
        let mut definition = stream.define(id).map_err(at(ViewPart::View))?;
        let ids = definition.fields.iter().map(|field| field.id);
        let view = View {
            source: source.store,
            filter,
            lookups,
            columns: ids.zip(making.origins).collect(),
            group_by: self.group_by.iter().filter_map(|name| id_of(&definition, name)).collect(),
            features: self.features(&definition)?,
            windows: self.windows.clone(),
            lateness_us: self.lateness_us,
            emission: None,
        };
        if let Some(stream) = &mut definition.stream {
            stream.view = Some(Box::new(view));
        }
        definition.check().map_err(at(ViewPart::View))?;
        Ok(definition)
    }

    /// Creates the next definition of a view: with other features, windows or lateness over the
    /// columns that its events have, or with another emission. Returns `current` if nothing
    /// changes.
    ///
    /// # Errors
    /// Returns the errors of [`ViewSpec::define`]; `InvalidArgument` also if the derivation of the
    /// view's events would change, and for columns that the events do not have.
    pub fn alter(
        &self,
        current: &Definition,
        source: &Definition,
        store: &impl Fn(&str) -> Result<Definition>,
    ) -> std::result::Result<Definition, ViewFault> {
        let fault =
            |part, message: &str| ViewFault { part, error: Error::invalid_argument(message) };
        let wanted = self.define_silent(current.store, source, store)?;
        let (Some(was), Some(wants)) = (current.view(), wanted.view()) else {
            return Err(fault(
                ViewPart::View,
                "a store of this name exists and is no view; choose another name",
            ));
        };
        let origins = |view: &View| -> Vec<_> {
            view.group_by.iter().filter_map(|id| view.columns.get(id).copied()).collect()
        };
        let advice =
            "a view's events cannot change once derived; create another view, and drop this one";
        for (part, is_same) in [
            (ViewPart::Stream, was.source == wants.source),
            (ViewPart::Filter, was.filter == wants.filter),
            (ViewPart::Lookup(0), was.lookups == wants.lookups),
            (ViewPart::GroupBy(0), origins(was) == origins(wants)),
            (ViewPart::View, current.written().partitions == wanted.written().partitions),
        ] {
            if !is_same {
                return Err(fault(part, advice));
            }
        }
        for (number, lookup) in self.lookups.iter().enumerate() {
            let has_changed = |(name, ..): &&(String, String, Option<Value>)| {
                let (was, wants) = (origin(current, name), origin(&wanted, name));
                was.is_some() && wants.is_some() && was != wants
            };
            if lookup.columns.iter().find(has_changed).is_some() {
                return Err(fault(ViewPart::Lookup(number), advice));
            }
        }
        for (number, name) in self.keep.iter().enumerate() {
            if current.field(name).is_none() {
                let message = "the view's events lack this column; create another view";
                return Err(fault(ViewPart::Keep(number), message));
            }
        }
        let mut next = current.clone();
        if let Some(view) = next.stream.as_mut().and_then(|stream| stream.view.as_mut()) {
            view.features = self.features(current)?;
            view.windows.clone_from(&self.windows);
            view.lateness_us = self.lateness_us;
            view.emission = None;
        }
        next = self.emitting(next, Some(current), store)?;
        if next != *current {
            next.version = SchemaVersion(current.version.0 + 1);
        }
        next.check().map_err(|error| ViewFault { part: ViewPart::View, error })?;
        Ok(next)
    }

    /// Adds the emission to a view, if the specification has one. `was` is the previous definition
    /// of the view.
    fn emitting(
        &self,
        mut definition: Definition,
        was: Option<&Definition>,
        store: &impl Fn(&str) -> Result<Definition>,
    ) -> std::result::Result<Definition, ViewFault> {
        let Some(spec) = &self.emission else { return Ok(definition) };
        let emission = store(&spec.store).and_then(|store| spec.emission(&definition, was, &store));
        let emission = emission.map_err(|error| ViewFault { part: ViewPart::Emission, error })?;
        if let Some(view) = definition.stream.as_mut().and_then(|stream| stream.view.as_mut()) {
            view.emission = Some(emission);
        }
        Ok(definition)
    }

    /// Resolves the features with a definition that has their columns.
    fn features(&self, definition: &Definition) -> std::result::Result<Vec<Feature>, ViewFault> {
        let feature = |(number, spec): (usize, &FeatureSpec)| {
            spec.feature(definition).map_err(|error| {
                let error = error.with_field(&spec.name);
                ViewFault { part: ViewPart::Feature(number), error }
            })
        };
        self.features.iter().enumerate().map(feature).collect()
    }
}

impl FeatureSpec {
    fn feature(&self, definition: &Definition) -> Result<Feature> {
        let column = self.input.as_ref().map(|name| {
            let message = format!("the view has no column `{name}`; add the column to `keep`");
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

impl<'s> Making<'s> {
    /// Creates a builder with the event time as the first column.
    fn of(source: &'s Definition) -> Self {
        let mut name = source.event_time().map_or(EVENT_TIME, |column| &column.name).to_owned();
        while source.event_time().is_none() && source.field(&name).is_some() {
            name.push('_');
        }
        let event_time = FieldSpec::new(name, FieldType::TIMESTAMP);
        let (looked_up, fields) = (BTreeMap::new(), vec![event_time]);
        Self { source, looked_up, fields, origins: vec![Origin::EventTime] }
    }

    /// Makes the columns of a lookup available.
    fn look_up(
        &mut self,
        number: u16,
        spec: &LookupSpec,
        store: &impl Fn(&str) -> Result<Definition>,
    ) -> Result<Lookup> {
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
            let message = "a lookup cannot read a store with a partition key; choose another store";
            return Err(Error::invalid_argument(message).with_store(&spec.store));
        }
        for (name, field, fill) in &spec.columns {
            let found = definition.field(field).ok_or_else(|| {
                Error::not_found("the store has no such field; describe the store for its fields")
                    .with_field(field)
            })?;
            if self.source.field(name).is_some() || self.looked_up.contains_key(name) {
                let message = "another column has this name; choose another name";
                return Err(Error::invalid_argument(message).with_field(name));
            }
            let default = fill.clone().map(|value| fit(value, found.field_type)).transpose();
            let default = default.map_err(|error| error.with_field(name))?;
            let origin = Origin::Lookup { lookup: number, field: found.id };
            let column = Available { origin, field_type: found.field_type, default };
            self.looked_up.insert(name.clone(), column);
        }
        let key = key.map(|column| column.id);
        Ok(Lookup { store: definition.store, key, is_required: spec.is_required })
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
        if let Some(found) = self.looked_up.remove(name) {
            return Ok(found);
        }
        let (origin, field_type) = match self.source.field(name) {
            Some(column) => (Origin::Column(column.id), column.field_type),
            None if name == KEY_COLUMN => (Origin::Key, self.source.key_type.field_type()),
            None => {
                let message = "neither the stream nor a lookup has the column; describe the \
                    stream, or look the column up";
                return Err(Error::not_found(message).with_field(name));
            }
        };
        Ok(Available { origin, field_type, default: None })
    }
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
        fit(value.clone(), column.field_type).map_err(|error| error.with_field(name))
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
        Predicate::All(some) | Predicate::Any(some) => {
            some.iter().try_for_each(|one| check_types(source, one))
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
