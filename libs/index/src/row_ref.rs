//! A document, read in place: a row as its partition's definition shows it.

use std::ops::Range;

use forebay_core::catalog::SchemaAt;
use forebay_core::clock::Timestamp;
use forebay_core::id::{DocumentVersion, FieldId, SchemaVersion};
use forebay_core::layout::Slot;
use forebay_core::row::{Document, Presence, Row, decode_value, row_schema_version};
use forebay_core::schema::Definition;
use forebay_core::schema_set::SchemaSet;
use forebay_core::value::{FieldType, ScalarType, Value};
use forebay_core::{Error, Result};

use crate::handle::FieldHandle;
use crate::number::sealed::Convert;
use crate::number::{FieldScalar, Number};

/// The result of reading one field. Absent, null and a value (possibly empty) are three different
/// results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldRead<T> {
    /// There is no document, or the document has no such field.
    Absent,
    /// The field was set to null.
    Null,
    /// The field's value.
    Value(T),
}

impl<T> FieldRead<T> {
    /// Returns the value, or `None` when absent or null.
    #[inline]
    pub fn value(self) -> Option<T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Null => None,
        }
    }

    /// Returns which of the three results this is.
    #[inline]
    pub fn presence(&self) -> Presence {
        match self {
            Self::Absent => Presence::Absent,
            Self::Null => Presence::Null,
            Self::Value(_) => Presence::Value,
        }
    }

    /// Converts the value, if there is one.
    #[inline]
    pub fn try_map<U>(self, map: impl FnOnce(T) -> Result<U>) -> Result<FieldRead<U>> {
        Ok(match self {
            Self::Absent => FieldRead::Absent,
            Self::Null => FieldRead::Null,
            Self::Value(value) => FieldRead::Value(map(value)?),
        })
    }
}

/// The definition that a partition had reached when a read began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReachedSchema<'v> {
    version: SchemaVersion,
    /// `None` if this process does not know the version.
    schema: Option<&'v SchemaAt>,
}

impl<'v> ReachedSchema<'v> {
    #[inline(always)]
    pub(crate) fn new(version: SchemaVersion, schemas: &'v SchemaSet) -> Self {
        Self { version, schema: schemas.get(version).map(|schema| &**schema) }
    }

    /// As [`ReachedSchema::new`], but falls back to the newest known definition if another process
    /// has brought the partition to a definition that this process does not know yet. The read then
    /// answers as if it had happened a moment earlier.
    #[inline(always)]
    pub(crate) fn as_known(version: SchemaVersion, schemas: &'v SchemaSet) -> Self {
        let reached_schema = Self::new(version, schemas);
        match reached_schema.schema {
            None if version > SchemaVersion(0) => {
                let newest = schemas.newest();
                Self { version: newest.definition.version, schema: Some(newest) }
            }
            _ => reached_schema,
        }
    }
}

/// A document at one version, as it was found: all values read from it belong to one moment.
#[derive(Clone, Copy, Debug)]
pub struct RowRef<'v> {
    row: Row<'v>,
    /// The definition that the row was written under.
    row_schema: &'v SchemaAt,
    /// The definition that the partition had reached; hides fields that are retired but still in
    /// the row.
    current: &'v SchemaAt,
    /// The time of the read; unset, and unused, if nothing in the row expires.
    now: Timestamp,
}

impl<'v> RowRef<'v> {
    /// Opens the document of a row, or returns `None` if the document has expired.
    ///
    /// `reached_schema` was loaded before the row was found, so it is not newer than the row's
    /// state. If the row itself is newer, the row's own version is the one that it was written
    /// under. `now` is called only if something in the row may expire.
    #[inline(always)]
    pub(crate) fn open(
        bytes: &'v [u8],
        schemas: &'v SchemaSet,
        reached_schema: ReachedSchema<'v>,
        now: impl FnOnce() -> Timestamp,
    ) -> Result<Option<Self>> {
        let version = row_schema_version(bytes).unwrap_or_default();
        let (row_schema, current) = match reached_schema.schema {
            Some(known_schema) if reached_schema.version == version => (known_schema, known_schema),
            _ => schemas.definitions_of(version, reached_schema.version, reached_schema.schema)?,
        };
        let row = Row::new(bytes, &row_schema.layout)?;
        if !row.may_expire() {
            return Ok(Some(Self { row, row_schema, current, now: Timestamp::MIN }));
        }
        let now = now();
        Ok((!row.is_expired(now)).then_some(Self { row, row_schema, current, now }))
    }

    /// The definition that the document is seen by.
    pub fn definition(&self) -> &'v Definition {
        &self.current.definition
    }

    /// The time at which the document expires.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.row.expires_at()
    }

    /// The version of the document, in a store that keeps versions.
    pub fn version(&self) -> Option<DocumentVersion> {
        self.row.version()
    }

    /// The versions that the document was written at and is seen at.
    #[inline]
    pub(crate) fn versions(&self) -> [SchemaVersion; 2] {
        [self.row_schema.layout.version(), self.current.layout.version()]
    }

    /// The slot of a field in the row; `None` if the row was written before the field existed, or
    /// if the field is retired.
    pub(crate) fn slot(&self, field: FieldId) -> Option<&'v Slot> {
        let slot = self.row_schema.layout.slot(field)?;
        self.current.layout.slot(field).map(|_| slot)
    }

    /// Returns these bytes if each of these slots holds a value and no field of the row expires.
    #[inline]
    pub(crate) fn values(&self, slots: Range<usize>, bytes: Range<usize>) -> Option<&'v [u8]> {
        if self.row.has_field_expiries() || !self.row.are_values(slots) {
            return None;
        }
        self.row.fixed(bytes)
    }

    /// Returns a field's bytes and their type.
    #[inline(always)]
    pub(crate) fn field_bytes(&self, field: FieldId) -> Result<FieldRead<(&'v [u8], FieldType)>> {
        let Some(slot) = self.row_schema.layout.slot(field) else { return Ok(FieldRead::Absent) };
        let retired = !std::ptr::eq(self.row_schema, self.current)
            && self.current.layout.slot(field).is_none();
        let expired =
            self.row.field_expires_at(field).is_some_and(|expires_at| expires_at <= self.now);
        if retired || expired {
            return Ok(FieldRead::Absent);
        }
        Ok(match self.row.presence(slot)? {
            Presence::Absent => FieldRead::Absent,
            Presence::Null => FieldRead::Null,
            Presence::Value => FieldRead::Value((self.row.bytes(slot)?, slot.field_type)),
        })
    }

    #[inline(always)]
    fn handle_bytes(&self, handle: &FieldHandle) -> Result<FieldRead<(&'v [u8], FieldType)>> {
        handle.check_store(self.current.definition.versions.home())?;
        self.field_bytes(handle.field())
    }

    /// Whether a field is absent, null or a value.
    ///
    /// # Errors
    /// `InvalidArgument` for a handle of another store.
    pub fn presence(&self, handle: &FieldHandle) -> Result<Presence> {
        Ok(self.handle_bytes(handle)?.presence())
    }

    /// Reads a number, bool or timestamp: a load and a check.
    ///
    /// # Errors
    /// `InvalidArgument` when the handle was resolved for another type, or when the field was
    /// widened and its value does not fit, naming both types.
    #[inline]
    pub fn scalar<T: FieldScalar>(&self, handle: &FieldHandle) -> Result<FieldRead<T>> {
        handle.check_read_type(T::SCALAR)?;
        self.handle_bytes(handle)?.try_map(|(bytes, stored_type)| {
            let number = match stored_type {
                FieldType::Scalar(scalar) => Number::decode(bytes, scalar)?,
                _ => None,
            };
            number.and_then(T::exactly).ok_or_else(|| handle.misfit(stored_type))
        })
    }

    /// Reads a string, in place.
    ///
    /// # Errors
    /// `InvalidArgument` when the handle was resolved for another type.
    #[inline]
    pub fn str(&self, handle: &FieldHandle) -> Result<FieldRead<&'v str>> {
        handle.check_read_type(ScalarType::String)?;
        self.handle_bytes(handle)?.try_map(|(bytes, _)| {
            std::str::from_utf8(bytes).map_err(|_| Error::corrupt("the string is not UTF-8"))
        })
    }

    /// Reads bytes, in place.
    ///
    /// # Errors
    /// `InvalidArgument` when the handle was resolved for another type.
    #[inline]
    pub fn bytes(&self, handle: &FieldHandle) -> Result<FieldRead<&'v [u8]>> {
        handle.check_read_type(ScalarType::Bytes)?;
        self.handle_bytes(handle)?.try_map(|(bytes, _)| Ok(bytes))
    }

    /// Reads a value of any type, decoded.
    ///
    /// # Errors
    /// `InvalidArgument` when the field was widened and its value does not fit the type asked for.
    pub fn value(&self, handle: &FieldHandle) -> Result<FieldRead<Value>> {
        self.handle_bytes(handle)?.try_map(|(bytes, stored_type)| {
            let value = decode_value(bytes, stored_type)?;
            if stored_type == handle.asked() {
                return Ok(value);
            }
            let converted = Number::of(&value).and_then(|number| match handle.asked() {
                FieldType::INT32 => i32::exactly(number).map(Value::Int32),
                FieldType::INT64 => i64::exactly(number).map(Value::Int64),
                FieldType::FLOAT32 => f32::exactly(number).map(Value::Float32),
                FieldType::FLOAT64 => f64::exactly(number).map(Value::Float64),
                _ => None,
            });
            converted.ok_or_else(|| handle.misfit(stored_type))
        })
    }

    /// Decodes the whole document: live fields only, their values widened to the current types of
    /// their fields.
    pub fn document(&self) -> Result<Document> {
        let (row_schema, current) = (&self.row_schema.layout, &self.current.layout);
        Document::seen(&self.row, row_schema, current, self.now)
    }
}
