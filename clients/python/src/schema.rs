//! Definitions: types by name, specifications of stores, alterations, and definitions of stores.

use std::time::Duration;

use forebay::schema::{
    Alteration, ColumnIndex, ColumnRules, Definition, Field, FieldSpec, FieldType, KeyType,
    ScalarType, StoreOptions, StoreSpec, StreamSpec, VectorType,
};
use forebay::{Error, Result};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::error::{CallError, native_call};
use crate::python::{IntoPython, model};
use crate::value::{object_of, value_of};

const SCALARS: [ScalarType; 8] = [
    ScalarType::Bool,
    ScalarType::Int32,
    ScalarType::Int64,
    ScalarType::Float32,
    ScalarType::Float64,
    ScalarType::String,
    ScalarType::Bytes,
    ScalarType::Timestamp,
];

/// Returns the field type of a name such as `int64`, `list<string>` or `f32[8]`.
///
/// # Errors
/// `InvalidArgument` for another name.
pub(crate) fn field_type_of(name: &str) -> Result<FieldType> {
    let scalar = |name: &str| SCALARS.into_iter().find(|scalar| scalar.name() == name);
    if let Some(scalar) = scalar(name) {
        return Ok(FieldType::Scalar(scalar));
    }
    let list = name.strip_prefix("list<").and_then(|rest| rest.strip_suffix('>'));
    if let Some(component) = list.and_then(scalar) {
        return Ok(FieldType::List(component));
    }
    let vector = name.strip_suffix(']').and_then(|rest| rest.split_once('['));
    if let Some((component, length)) = vector
        && let Ok(length) = length.parse()
    {
        match component {
            "f32" => return Ok(FieldType::Vector(VectorType::F32, length)),
            "f16" => return Ok(FieldType::Vector(VectorType::F16, length)),
            "i8" => return Ok(FieldType::Vector(VectorType::I8, length)),
            _ => {}
        }
    }
    let names = SCALARS.map(ScalarType::name).join(", ");
    let message =
        format!("no type '{name}' exists; use {names}, list<TYPE>, f32[N], f16[N], i8[N]");
    Err(Error::invalid_argument(message))
}

fn key_type_of(name: &str) -> Result<KeyType> {
    KeyType::named(name).ok_or_else(|| {
        Error::invalid_argument(format!("no key type '{name}' exists; use string, bytes or int64"))
    })
}

/// Converts seconds to a duration.
///
/// # Errors
/// `InvalidArgument` for a negative or unbounded time.
pub(crate) fn duration_of(seconds: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        Error::invalid_argument("the time is negative or infinite; give a time in seconds")
    })
}

/// Converts seconds to microseconds, rounded to the nearest.
pub(crate) fn micros_of(seconds: Option<f64>) -> Result<Option<i64>> {
    let micros =
        |time: Duration| i64::try_from((time.as_nanos() + 500) / 1_000).unwrap_or(i64::MAX);
    Ok(seconds.map(duration_of).transpose()?.map(micros))
}

fn heartbeat_ms_of(seconds: f64) -> Result<u32> {
    let millis = duration_of(seconds)?.as_millis();
    Ok(u32::try_from(millis).unwrap_or(u32::MAX))
}

/// Returns the options of a store, from times in seconds.
fn options_of(
    ttl: Option<f64>,
    versioned: bool,
    heartbeat: f64,
    log_retention: Option<f64>,
    log_retention_bytes: Option<u64>,
) -> Result<StoreOptions> {
    Ok(StoreOptions {
        ttl_us: micros_of(ttl)?,
        versioned,
        heartbeat_ms: heartbeat_ms_of(heartbeat)?,
        log_retention_us: micros_of(log_retention)?,
        log_retention_bytes,
    })
}

/// Returns the rules of a stream's column.
fn rules_of(
    required: bool,
    allowed: &[Bound<'_, PyAny>],
    index: Option<&str>,
) -> Result<ColumnRules, CallError> {
    let allowed = allowed.iter().map(value_of).collect::<Result<_, CallError>>()?;
    Ok(ColumnRules { required, allowed, index: index.map(index_of).transpose()? })
}

fn index_of(name: &str) -> Result<ColumnIndex> {
    match name {
        "exact" => Ok(ColumnIndex::Exact),
        "range" => Ok(ColumnIndex::Range),
        _ => Err(Error::invalid_argument(format!("no index '{name}' exists; use exact or range"))),
    }
}

fn index_name(index: ColumnIndex) -> &'static str {
    match index {
        ColumnIndex::Exact => "exact",
        ColumnIndex::Range => "range",
    }
}

/// A field of a new store: its name, its type, and the default and time to live in seconds.
#[pyclass(frozen, name = "FieldSpec", module = "forebay", from_py_object)]
#[derive(Clone)]
pub(crate) struct NewField {
    spec: FieldSpec,
}

#[pymethods]
impl NewField {
    #[new]
    #[pyo3(signature = (
        name, r#type, *, default=None, ttl=None, required=false, allowed=vec![], index=None
    ))]
    fn new(
        name: String,
        r#type: &str,
        default: Option<&Bound<'_, PyAny>>,
        ttl: Option<f64>,
        required: bool,
        allowed: Vec<Bound<'_, PyAny>>,
        index: Option<&str>,
    ) -> Result<Self, CallError> {
        native_call(|| {
            let mut spec = FieldSpec::new(name, field_type_of(r#type)?);
            spec.default = default.map(value_of).transpose()?;
            spec.ttl_us = micros_of(ttl)?;
            spec.rules = rules_of(required, &allowed, index)?;
            Ok(Self { spec })
        })
    }
}

/// A store specification.
#[pyclass(frozen, name = "StoreSpec", module = "forebay")]
pub(crate) struct NewStore {
    pub(crate) spec: StoreSpec,
}

#[pymethods]
impl NewStore {
    #[new]
    #[pyo3(signature = (
        name, *, key_type, partitions, fields, partition_key, key_value, ttl, versioned, heartbeat,
        log_retention, log_retention_bytes=None, stream=false, event_time=None
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        name: &str,
        key_type: &str,
        partitions: u32,
        fields: Vec<NewField>,
        partition_key: Option<String>,
        key_value: bool,
        ttl: Option<f64>,
        versioned: bool,
        heartbeat: f64,
        log_retention: Option<f64>,
        log_retention_bytes: Option<u64>,
        stream: bool,
        event_time: Option<String>,
    ) -> Result<Self, CallError> {
        native_call(|| {
            let key_type = key_type_of(key_type)?;
            let mut spec = match key_value {
                true => StoreSpec::key_value(name, key_type).partitions(partitions),
                false => StoreSpec::documents(name, key_type).partitions(partitions),
            };
            spec.fields.extend(fields.into_iter().map(|field| field.spec));
            spec.partition_key = partition_key;
            spec.stream = stream.then_some(StreamSpec { event_time });
            spec.options =
                options_of(ttl, versioned, heartbeat, log_retention, log_retention_bytes)?;
            Ok(Self { spec })
        })
    }
}

/// An alteration of a store's definition.
#[pyclass(frozen, name = "Alteration", module = "forebay", from_py_object)]
#[derive(Clone)]
pub(crate) struct NewAlteration {
    pub(crate) alteration: Alteration,
}

#[pymethods]
impl NewAlteration {
    /// Adds a field under a new id.
    #[staticmethod]
    #[pyo3(signature = (
        name, r#type, *, default=None, ttl=None, required=false, allowed=vec![], index=None
    ))]
    fn add_field(
        name: String,
        r#type: &str,
        default: Option<&Bound<'_, PyAny>>,
        ttl: Option<f64>,
        required: bool,
        allowed: Vec<Bound<'_, PyAny>>,
        index: Option<&str>,
    ) -> Result<Self, CallError> {
        let field = NewField::new(name, r#type, default, ttl, required, allowed, index)?;
        Ok(Alteration::AddField(field.spec).into())
    }

    /// Replaces the rules of a stream's column by those of `FieldSpec`. Refusals apply to future
    /// events; an index covers all retained events.
    #[staticmethod]
    #[pyo3(signature = (name, *, required=false, allowed=vec![], index=None))]
    fn set_rules(
        name: String,
        required: bool,
        allowed: Vec<Bound<'_, PyAny>>,
        index: Option<&str>,
    ) -> Result<Self, CallError> {
        native_call(|| {
            let rules = rules_of(required, &allowed, index)?;
            Ok(Alteration::SetRules { name, rules }.into())
        })
    }

    /// Drops a field's id: its values are absent, also if a new field takes the name.
    #[staticmethod]
    fn drop_field(name: String) -> Self {
        Alteration::DropField(name).into()
    }

    /// Drops all fields whose current name has this prefix.
    #[staticmethod]
    fn drop_fields_by_prefix(prefix: String) -> Self {
        Alteration::DropFieldsByPrefix(prefix).into()
    }

    /// Renames a field; the old name stays an alias.
    #[staticmethod]
    fn rename_field(name: String, to: String) -> Self {
        Alteration::RenameField { from: name, to }.into()
    }

    /// Widens a field's type: int32 to int64 or float64, float32 to float64.
    #[staticmethod]
    fn widen_field(name: String, to: &str) -> Result<Self, CallError> {
        Ok(Alteration::WidenField { name, to: field_type_of(to)? }.into())
    }

    /// Deletes every document of the store.
    #[staticmethod]
    fn drop_all() -> Self {
        Alteration::DropAll.into()
    }

    /// Replaces all options, by those of `create_store` and `create_stream`; times in seconds. An
    /// omitted option is unset: to change one, take the others from the definition.
    #[staticmethod]
    #[pyo3(signature = (
        *, ttl=None, versioned=false, heartbeat=1.0, log_retention=None, log_retention_bytes=None
    ))]
    fn set_options(
        ttl: Option<f64>,
        versioned: bool,
        heartbeat: f64,
        log_retention: Option<f64>,
        log_retention_bytes: Option<u64>,
    ) -> Result<Self, CallError> {
        let options = options_of(ttl, versioned, heartbeat, log_retention, log_retention_bytes)?;
        Ok(Alteration::SetOptions(options).into())
    }
}

impl From<Alteration> for NewAlteration {
    fn from(alteration: Alteration) -> Self {
        Self { alteration }
    }
}

fn seconds_of(micros: Option<i64>) -> Option<f64> {
    micros.map(|micros| micros as f64 / 1e6)
}

impl IntoPython for Definition {
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        Ok(definition_object(py, &self)?)
    }
}

/// Returns the `forebay.Definition` of a definition.
pub(crate) fn definition_object<'py>(
    py: Python<'py>,
    definition: &Definition,
) -> std::result::Result<Bound<'py, PyAny>, CallError> {
    let fields = definition.fields.iter().map(|field| field_object(py, field));
    let fields = PyList::new(py, fields.collect::<std::result::Result<Vec<_>, _>>()?)?;
    let partition_key = definition.partition_key.and_then(|id| definition.field_by_id(id));
    let parts = PyDict::new(py);
    parts.set_item("store_id", definition.store.0)?;
    parts.set_item("name", &definition.name)?;
    parts.set_item("version", definition.version.0)?;
    parts.set_item("key_type", definition.key_type.name())?;
    parts.set_item("partition_key", partition_key.map(|field| field.name.as_str()))?;
    parts.set_item("partitions", definition.write_logs().partitions.0)?;
    parts.set_item("fields", fields.to_tuple())?;
    parts.set_item("key_value", definition.key_value)?;
    parts.set_item("stream", definition.stream.is_some())?;
    parts.set_item("event_time", definition.event_time().map(|column| column.name.as_str()))?;
    parts.set_item("ttl", seconds_of(definition.options.ttl_us))?;
    parts.set_item("versioned", definition.options.versioned)?;
    parts.set_item("heartbeat", f64::from(definition.options.heartbeat_ms) / 1e3)?;
    parts.set_item("log_retention", seconds_of(definition.options.log_retention_us))?;
    parts.set_item("log_retention_bytes", definition.options.log_retention_bytes)?;
    Ok(model(py, "Definition", &parts)?)
}

fn field_object<'py>(
    py: Python<'py>,
    field: &Field,
) -> std::result::Result<Bound<'py, PyAny>, CallError> {
    let parts = PyDict::new(py);
    parts.set_item("id", field.id.0)?;
    parts.set_item("name", &field.name)?;
    parts.set_item("type", field.field_type.to_string())?;
    parts.set_item("aliases", PyList::new(py, &field.aliases)?.to_tuple())?;
    let default = field.default.as_ref().map(|value| object_of(py, value)).transpose()?;
    parts.set_item("default", default)?;
    parts.set_item("ttl", seconds_of(field.ttl_us))?;
    parts.set_item("required", field.rules.required)?;
    let allowed = field.rules.allowed.iter().map(|value| object_of(py, value));
    let allowed = PyList::new(py, allowed.collect::<std::result::Result<Vec<_>, _>>()?)?;
    parts.set_item("allowed", allowed.to_tuple())?;
    parts.set_item("index", field.rules.index.map(index_name))?;
    Ok(model(py, "Field", &parts)?)
}
