//! A view as its creator asks for it, by names, and the definition that it becomes.

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
use crate::value::{FieldType, ScalarType, Value};

/// What names the key of the source's events among its columns, unless a column has that name.
pub const KEY_COLUMN: &str = "key";
/// The name of a view's event time where its source has no such column.
const EVENT_TIME: &str = "event_time";

/// A view to be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ViewSpec {
    /// Its name: that of the stream that it becomes.
    pub name: String,
    /// Name of the stream that it is of.
    pub stream: String,
    /// Number of its partitions; that of its source without, or one where it groups by nothing but
    /// what it looks up.
    pub partitions: Option<u32>,
    /// Which events; all without.
    pub filter: Option<Predicate<String>>,
    /// What they are looked up in.
    pub lookups: Vec<LookupSpec>,
    /// The columns that say of which group an event is.
    pub group_by: Vec<String>,
    /// Columns that are kept of each event beside those of groups and features, for features that
    /// come later.
    pub keep: Vec<String>,
    /// What is folded.
    pub features: Vec<FeatureSpec>,
    /// The windows that each feature is over.
    pub windows: Vec<NamedWindow>,
    /// How far an event may lie behind its partition's time, in microseconds.
    pub lateness_us: i64,
    /// Where its values go; nowhere without.
    pub emission: Option<EmissionSpec>,
}

/// A look into a store, to be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LookupSpec {
    /// The store's name.
    pub store: String,
    /// The column that is its documents' key; the event's own key without.
    pub key: Option<String>,
    /// The columns that it brings: name of each, the store's field, and what an event has that
    /// finds no document or a document without it.
    pub columns: Vec<(String, String, Option<Value>)>,
    /// Whether an event that finds no document is left out.
    pub is_required: bool,
}

/// A feature to be.
#[derive(Clone, Debug, PartialEq)]
pub struct FeatureSpec {
    /// Its name.
    pub name: String,
    /// Kind and parameters.
    pub kind: AggregateKind,
    /// The column that it is of; a count of events is of none.
    pub input: Option<String>,
}

/// The part of a view that something is wrong with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewPart {
    /// The view as a whole, or its name.
    View,
    /// Its source.
    Stream,
    /// Its filter.
    Filter,
    /// One of its lookups, from 0.
    Lookup(usize),
    /// One of the columns that it groups by, from 0.
    GroupBy(usize),
    /// One of the columns that it keeps, from 0.
    Keep(usize),
    /// One of its features, from 0.
    Feature(usize),
    /// Where its values go.
    Emission,
}

/// What is wrong with a view, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct ViewFault {
    /// The part.
    pub part: ViewPart,
    /// What is wrong.
    pub error: Error,
}

/// A column that a view may take, before it has an id of its own.
struct Available {
    origin: Origin,
    field_type: FieldType,
    default: Option<Value>,
}

/// What a view is put together of.
struct Making<'s> {
    source: &'s Definition,
    /// What was looked up, by its name.
    looked_up: BTreeMap<String, Available>,
    fields: Vec<FieldSpec>,
    origins: Vec<Origin>,
}

impl ViewSpec {
    /// The first definition of the view, of this id.
    ///
    /// `store` answers the newest definition of a store by its name; that of the one to emit to
    /// as [`EmissionSpec::new_store`] or [`EmissionSpec::altered_store`] make it.
    ///
    /// # Errors
    /// [`ViewFault`] of the first part that cannot be.
    pub fn define(
        &self,
        id: StoreId,
        source: &Definition,
        store: &impl Fn(&str) -> Result<Definition>,
    ) -> std::result::Result<Definition, ViewFault> {
        let definition = self.define_silent(id, source, store)?;
        self.emitting(definition, None, store)
    }

    /// The first definition of a view that emits nothing.
    fn define_silent(
        &self,
        id: StoreId,
        source: &Definition,
        store: &impl Fn(&str) -> Result<Definition>,
    ) -> std::result::Result<Definition, ViewFault> {
        let at = |part| move |error| ViewFault { part, error };
        if source.stream.is_none() {
            let message = "a view is of a stream, and this is a store of documents";
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
        // Where an event goes must not depend on what is looked up.
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

    /// The next definition of a view: with other features, windows or lateness, of the columns that
    /// its events have, or emitted otherwise. `current` itself where nothing changes.
    ///
    /// # Errors
    /// As [`ViewSpec::define`]; `InvalidArgument` too for what its events were derived by, and for
    /// columns that they do not have.
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
            return Err(fault(ViewPart::View, "there is a store of this name that is no view"));
        };
        let origins = |view: &View| -> Vec<_> {
            view.group_by.iter().filter_map(|id| view.columns.get(id).copied()).collect()
        };
        let advice =
            "its events are derived by another one; create another view, and drop this one";
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
                let message = "its events do not have this column; create another view";
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

    /// A view with its emission, if there is to be one. `was` is the view before.
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

    /// The features by the columns of a definition that has them.
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
            let message = format!("the view has no column `{name}`; let it keep that");
            definition.field(name).ok_or_else(|| Error::not_found(message))
        });
        let column = column.transpose()?;
        let input = match column.map(|column| column.field_type) {
            None => None,
            Some(FieldType::Scalar(scalar)) => Some(scalar),
            Some(other) => {
                let message = format!("no feature is of a {other}; take a scalar");
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
    /// With the event time as its first column.
    fn of(source: &'s Definition) -> Self {
        let mut name = source.event_time().map_or(EVENT_TIME, |column| &column.name).to_owned();
        while source.event_time().is_none() && source.field(&name).is_some() {
            name.push('_');
        }
        let event_time = FieldSpec::new(name, FieldType::Scalar(ScalarType::Timestamp));
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
            let message = format!("the store's keys are {found}s, and the column is a {key_type}");
            return Err(Error::invalid_argument(message).with_store(&spec.store));
        }
        if definition.partition_key.is_some() {
            let message = "a lookup is in a store that is partitioned by its key alone";
            return Err(Error::invalid_argument(message).with_store(&spec.store));
        }
        for (name, field, fill) in &spec.columns {
            let found = definition
                .field(field)
                .ok_or_else(|| Error::not_found("no such field of the store").with_field(field))?;
            if self.source.field(name).is_some() || self.looked_up.contains_key(name) {
                let message = "another column has this name; give it another one";
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

    /// Makes a column one of the view's, unless it is one already.
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
                let message = "neither the stream nor a lookup has such a column";
                return Err(Error::not_found(message).with_field(name));
            }
        };
        Ok(Available { origin, field_type, default: None })
    }
}

/// Where a view has a column from, and what it has without.
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
    found.ok_or_else(|| Error::not_found("the stream has no such column").with_field(name))
}

/// A condition by the ids of the source's columns, with values of their types.
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

/// Refuses comparisons of columns of different types, and of what has no order.
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
            Err(Error::invalid_argument("only scalars compare"))
        }
        Predicate::Compare { column, to: Operand::Column(other), .. }
            if type_of(column) != type_of(other) =>
        {
            Err(Error::invalid_argument("the two columns have different types"))
        }
        Predicate::Compare { .. } | Predicate::IsOneOf { .. } => Ok(()),
    }
}
