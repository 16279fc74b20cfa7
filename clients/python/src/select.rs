//! Selects of a stream's retained events: Python's parameters, and the result as the package's data
//! classes.

use std::ops;

use forebay::reads::{DocumentKey, Event, EventColumn, EventQuery, EventQueryResult};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDateTime, PyDict, PyList};

use crate::error::CallError;
use crate::key::{key_object, key_of};
use crate::python::{IntoPython, model};
use crate::value::{datetime_of, object_of, timestamp_of, value_of};

/// A column, and the value of the selected events.
pub(crate) type ColumnValue<'py> = (String, Bound<'py, PyAny>);

/// A column, and the half-open range of the selected events' values.
pub(crate) type ColumnRange<'py> = (String, Option<Bound<'py, PyAny>>, Option<Bound<'py, PyAny>>);

/// The criteria of a select.
pub(crate) struct SelectCriteria<'py> {
    pub(crate) key: Option<Bound<'py, PyAny>>,
    pub(crate) equal: Option<ColumnValue<'py>>,
    pub(crate) between: Option<ColumnRange<'py>>,
}

impl SelectCriteria<'_> {
    /// Returns the select, narrowed to these events.
    ///
    /// # Errors
    /// `InvalidArgument` for objects that are not a key or a value.
    pub(crate) fn narrow(self, mut select: EventQuery) -> Result<EventQuery, CallError> {
        if let Some(key) = &self.key {
            select = select.key(key_of(key)?);
        }
        if let Some((column, value)) = self.equal {
            select = select.equal(column, value_of(&value)?);
        }
        if let Some((column, start, end)) = self.between {
            let value = |object: Option<Bound<'_, PyAny>>| {
                object.map(|object| value_of(&object)).transpose()
            };
            let start = value(start)?.map_or(ops::Bound::Unbounded, ops::Bound::Included);
            let end = value(end)?.map_or(ops::Bound::Unbounded, ops::Bound::Excluded);
            select = select.between(column, (start, end));
        }
        Ok(select)
    }
}

/// Converts a datetime.
///
/// # Errors
/// `InvalidArgument` for a datetime without a time zone.
pub(crate) fn time_of(
    time: &Bound<'_, PyDateTime>,
) -> Result<forebay::schema::Timestamp, CallError> {
    timestamp_of(time).map(forebay::schema::Timestamp::from_micros)
}

impl IntoPython for EventQueryResult {
    /// Returns a `forebay.EventQueryResult`.
    ///
    /// # Errors
    /// `InvalidArgument` for a time outside datetime's range; `Corrupt` for a key that is invalid
    /// in the stream.
    fn into_python(self: Box<Self>, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let columns = self.columns.iter().map(|column| column_object(py, column));
        let columns = PyList::new(py, columns.collect::<PyResult<Vec<_>>>()?)?;
        let events = self.events.iter().map(|event| event_object(py, event));
        let events = PyList::new(py, events.collect::<Result<Vec<_>, _>>()?)?;
        let parts = PyDict::new(py);
        parts.set_item("columns", columns.to_tuple())?;
        parts.set_item("events", events)?;
        parts.set_item("token", PyBytes::new(py, &self.token.encode()))?;
        model(py, "EventQueryResult", &parts)
    }
}

fn column_object<'py>(py: Python<'py>, column: &EventColumn) -> PyResult<Bound<'py, PyAny>> {
    let parts = PyDict::new(py);
    parts.set_item("id", column.id.0)?;
    parts.set_item("name", &column.name)?;
    parts.set_item("type", column.field_type.to_string())?;
    model(py, "EventColumn", &parts)
}

fn event_object<'py>(py: Python<'py>, event: &Event) -> Result<Bound<'py, PyAny>, CallError> {
    let columns = PyDict::new(py);
    for (column, value) in event.values() {
        let value = value.map(|value| object_of(py, value)).transpose()?;
        columns.set_item(&column.name, value)?;
    }
    let parts = PyDict::new(py);
    parts.set_item("key", key_object(py, DocumentKey::new(event.key()?))?)?;
    parts.set_item("time", datetime_of(py, event.time)?)?;
    parts.set_item("append_time", datetime_of(py, event.append_time)?)?;
    parts.set_item("partition", event.partition.0)?;
    parts.set_item("offset", event.offset.0)?;
    parts.set_item("index_in_entry", event.index_in_entry)?;
    parts.set_item("columns", columns)?;
    Ok(model(py, "Event", &parts)?)
}
