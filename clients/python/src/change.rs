//! Changes as Python gives them: a verb, a key, fields with values or operations, conditions.

use std::time::Duration;

use forebay::schema::{DocumentVersion, Value};
use forebay::writes::Write;
use forebay::{Error, Store};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{CallError, native_call};
use crate::key::{OwnedKey, key_of};
use crate::python::class;
use crate::schema::duration_of;
use crate::value::{value_of, values_of};

/// An operation on one field, other than setting it.
#[pyclass(frozen, name = "Operation", module = "forebay", from_py_object)]
#[derive(Clone)]
pub(crate) struct Operation {
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Set(Option<Value>),
    Remove,
    Increment(Value),
    Min(Value),
    Max(Value),
    ListAppend(Vec<Value>, u32),
    SetAdd(Vec<Value>, u32),
    SetRemove(Vec<Value>),
}

#[pymethods]
impl Operation {
    #[staticmethod]
    fn increment(by: &Bound<'_, PyAny>) -> Result<Self, CallError> {
        native_call(|| Ok(Self { kind: Kind::Increment(value_of(by)?) }))
    }

    #[staticmethod]
    fn minimum(value: &Bound<'_, PyAny>) -> Result<Self, CallError> {
        native_call(|| Ok(Self { kind: Kind::Min(value_of(value)?) }))
    }

    #[staticmethod]
    fn maximum(value: &Bound<'_, PyAny>) -> Result<Self, CallError> {
        native_call(|| Ok(Self { kind: Kind::Max(value_of(value)?) }))
    }

    #[staticmethod]
    fn list_append(items: &Bound<'_, PyAny>, bound: u32) -> Result<Self, CallError> {
        native_call(|| Ok(Self { kind: Kind::ListAppend(values_of(items)?, bound) }))
    }

    #[staticmethod]
    fn set_add(items: &Bound<'_, PyAny>, bound: u32) -> Result<Self, CallError> {
        native_call(|| Ok(Self { kind: Kind::SetAdd(values_of(items)?, bound) }))
    }

    #[staticmethod]
    fn set_remove(items: &Bound<'_, PyAny>) -> Result<Self, CallError> {
        native_call(|| Ok(Self { kind: Kind::SetRemove(values_of(items)?) }))
    }
}

impl Operation {
    /// Converts a value of the dict of fields: an operation, ABSENT to remove the field, None for
    /// null.
    fn of(object: &Bound<'_, PyAny>, absent: &Bound<'_, PyAny>) -> Result<Kind, CallError> {
        if let Ok(operation) = object.cast::<Self>() {
            return Ok(operation.get().kind.clone());
        }
        if object.is(absent) {
            return Ok(Kind::Remove);
        }
        if object.is_none() {
            return Ok(Kind::Set(None));
        }
        value_of(object).map(|value| Kind::Set(Some(value)))
    }
}

#[derive(Clone, Copy)]
enum Verb {
    Put,
    Upsert,
    Delete,
    Insert,
}

/// A change of one document, checked against the store's definition when it is sent.
#[pyclass(frozen, name = "Change", module = "forebay")]
pub(crate) struct Change {
    verb: Verb,
    key: OwnedKey,
    fields: Vec<(String, Kind)>,
    ttl: Option<Duration>,
    field_ttls: Vec<(String, Duration)>,
    if_absent: bool,
    if_version: Option<u64>,
    if_newer: Option<String>,
}

#[pymethods]
impl Change {
    #[new]
    #[pyo3(signature = (
        verb, key, fields=None, *, ttl=None, field_ttl=None, if_absent=false, if_version=None,
        if_newer=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        verb: &str,
        key: &Bound<'_, PyAny>,
        fields: Option<&Bound<'_, PyDict>>,
        ttl: Option<f64>,
        field_ttl: Option<&Bound<'_, PyDict>>,
        if_absent: bool,
        if_version: Option<u64>,
        if_newer: Option<String>,
    ) -> Result<Self, CallError> {
        native_call(|| {
            let verb = match verb {
                "put" => Verb::Put,
                "upsert" => Verb::Upsert,
                "delete" => Verb::Delete,
                "insert" => Verb::Insert,
                _ => {
                    let message = "no such verb; use put, upsert, delete or insert";
                    return Err(Error::invalid_argument(message).into());
                }
            };
            Ok(Self {
                verb,
                key: OwnedKey::of(key_of(key)?),
                fields: fields.map(fields_of).transpose()?.unwrap_or_default(),
                ttl: ttl.map(duration_of).transpose()?,
                field_ttls: field_ttl.map(field_ttls_of).transpose()?.unwrap_or_default(),
                if_absent,
                if_version,
                if_newer,
            })
        })
    }
}

fn fields_of(fields: &Bound<'_, PyDict>) -> Result<Vec<(String, Kind)>, CallError> {
    let absent = class(fields.py(), "forebay._model", "ABSENT")?;
    let field = |(name, object): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let name: String = name.extract()?;
        let kind = Operation::of(&object, &absent).map_err(|failure| at_field(failure, &name))?;
        Ok((name, kind))
    };
    fields.iter().map(field).collect()
}

fn at_field(failure: CallError, name: &str) -> CallError {
    match failure {
        CallError::Forebay(error, pending) => CallError::Forebay(error.with_field(name), pending),
        failure => failure,
    }
}

fn field_ttls_of(ttls: &Bound<'_, PyDict>) -> Result<Vec<(String, Duration)>, CallError> {
    let ttl = |(name, seconds): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        Ok((name.extract()?, duration_of(seconds.extract()?)?))
    };
    ttls.iter().map(ttl).collect()
}

impl Change {
    /// Returns the write of this change to a store.
    pub(crate) fn write(&self, store: &Store) -> Write {
        let key = self.key.key();
        let mut write = match self.verb {
            Verb::Put => store.put(key),
            Verb::Upsert => store.upsert(key),
            Verb::Delete => store.delete(key),
            Verb::Insert => store.insert(key),
        };
        for (name, kind) in &self.fields {
            write = match kind.clone() {
                Kind::Set(Some(value)) => write.set(name, value),
                Kind::Set(None) => write.set_null(name),
                Kind::Remove => write.remove_field(name),
                Kind::Increment(by) => write.increment(name, by),
                Kind::Min(value) => write.min(name, value),
                Kind::Max(value) => write.max(name, value),
                Kind::ListAppend(items, bound) => write.list_append(name, items, bound),
                Kind::SetAdd(items, bound) => write.set_add(name, items, bound),
                Kind::SetRemove(items) => write.set_remove(name, items),
            };
        }
        for (name, ttl) in &self.field_ttls {
            write = write.field_ttl(name, *ttl);
        }
        if let Some(ttl) = self.ttl {
            write = write.ttl(ttl);
        }
        if self.if_absent {
            write = write.if_absent();
        }
        if let Some(version) = self.if_version {
            write = write.if_version(DocumentVersion(version));
        }
        match &self.if_newer {
            Some(field) => write.if_newer(field),
            None => write,
        }
    }
}
