//! One document, read in place: the row that a reader found, as its partition's definition sees it.

use forebay_core::catalog::SchemaAt;
use forebay_core::clock::Timestamp;
use forebay_core::id::{DocumentVersion, FieldId, SchemaVersion};
use forebay_core::row::{Document, Presence, Row, decode_value, row_schema_version};
use forebay_core::value::{FieldType, ScalarType, Value};
use forebay_core::{Error, Result};

use crate::handle::FieldHandle;
use crate::number::sealed::Convert;
use crate::number::{FieldScalar, Number};
use crate::schemas::SchemaSet;

/// What a read of one field answers. Absent, null and a value, also an empty one, are three
/// answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldRead<T> {
    /// There is no document, or it has no such field.
    Absent,
    /// The field was set to null.
    Null,
    /// The field's value.
    Value(T),
}

impl<T> FieldRead<T> {
    /// The value, or `None` when absent or null.
    pub fn value(self) -> Option<T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Null => None,
        }
    }

    /// Which of the three answers it is.
    pub fn presence(&self) -> Presence {
        match self {
            Self::Absent => Presence::Absent,
            Self::Null => Presence::Null,
            Self::Value(_) => Presence::Value,
        }
    }

    /// The same answer about another form of the value.
    pub fn try_map<U>(self, map: impl FnOnce(T) -> Result<U>) -> Result<FieldRead<U>> {
        Ok(match self {
            Self::Absent => FieldRead::Absent,
            Self::Null => FieldRead::Null,
            Self::Value(value) => FieldRead::Value(map(value)?),
        })
    }
}

/// One document at one version, as it was found: whatever is read of it belongs together.
#[derive(Clone, Copy, Debug)]
pub struct RowRef<'v> {
    row: Row<'v>,
    /// The definition that the row was written under.
    written: &'v SchemaAt,
    /// The definition that the partition had reached: retires fields that the row still holds.
    current: &'v SchemaAt,
    now: Timestamp,
}

impl<'v> RowRef<'v> {
    /// The document of a row, or `None` when it has expired.
    ///
    /// `partition_version` was loaded before the row was found, so it is not newer than the row's
    /// state; where the row itself is newer, its own version is the one that it was written under.
    pub(crate) fn open(
        bytes: &'v [u8],
        schemas: &'v SchemaSet,
        partition_version: SchemaVersion,
        now: Timestamp,
    ) -> Result<Option<Self>> {
        let version = row_schema_version(bytes).unwrap_or_default();
        let unknown = |version| Error::internal(format!("schema version {version} is not known"));
        let written = schemas.get(version).ok_or_else(|| unknown(version))?;
        let current = match partition_version.max(version) {
            newest if newest == version => written,
            newest => schemas.get(newest).ok_or_else(|| unknown(newest))?,
        };
        let row = Row::new(bytes, &written.layout)?;
        Ok((!row.is_expired(now)).then_some(Self { row, written, current, now }))
    }

    /// The definition that it is seen by.
    pub fn schema(&self) -> &'v SchemaAt {
        self.current
    }

    /// When it expires.
    pub fn expires_at(&self) -> Option<Timestamp> {
        self.row.expires_at()
    }

    /// Its version, in a store that keeps versions.
    pub fn version(&self) -> Option<DocumentVersion> {
        self.row.version()
    }

    /// A field's bytes and the type that they are of.
    pub(crate) fn stored(&self, field: FieldId) -> Result<FieldRead<(&'v [u8], FieldType)>> {
        let Some(slot) = self.written.layout.slot(field) else { return Ok(FieldRead::Absent) };
        let retired =
            !std::ptr::eq(self.written, self.current) && self.current.layout.slot(field).is_none();
        let expired = self.row.field_expires_at(field).is_some_and(|at| at <= self.now);
        if retired || expired {
            return Ok(FieldRead::Absent);
        }
        Ok(match self.row.presence(slot)? {
            Presence::Absent => FieldRead::Absent,
            Presence::Null => FieldRead::Null,
            Presence::Value => FieldRead::Value((self.row.bytes(slot)?, slot.field_type)),
        })
    }

    fn stored_by(&self, handle: &FieldHandle) -> Result<FieldRead<(&'v [u8], FieldType)>> {
        handle.check_store(self.current.definition.store)?;
        self.stored(handle.field())
    }

    /// Whether a field is absent, null or a value.
    ///
    /// # Errors
    /// `InvalidArgument` for a handle of another store.
    pub fn presence(&self, handle: &FieldHandle) -> Result<Presence> {
        Ok(self.stored_by(handle)?.presence())
    }

    /// A number, bool or timestamp: a load and a check.
    ///
    /// # Errors
    /// `InvalidArgument` when the handle was resolved for another type, or when the field was
    /// widened and its value does not fit, naming both types.
    pub fn scalar<T: FieldScalar>(&self, handle: &FieldHandle) -> Result<FieldRead<T>> {
        handle.check_asked(T::SCALAR)?;
        self.stored_by(handle)?.try_map(|(bytes, stored)| {
            let number = match stored {
                FieldType::Scalar(scalar) => Number::decode(bytes, scalar)?,
                _ => None,
            };
            number.and_then(T::exactly).ok_or_else(|| handle.misfit(stored))
        })
    }

    /// A string, in place.
    ///
    /// # Errors
    /// `InvalidArgument` when the handle was resolved for another type.
    pub fn str(&self, handle: &FieldHandle) -> Result<FieldRead<&'v str>> {
        handle.check_asked(ScalarType::String)?;
        self.stored_by(handle)?.try_map(|(bytes, _)| {
            std::str::from_utf8(bytes).map_err(|_| Error::corrupt("a string is not UTF-8"))
        })
    }

    /// Bytes, in place.
    ///
    /// # Errors
    /// `InvalidArgument` when the handle was resolved for another type.
    pub fn bytes(&self, handle: &FieldHandle) -> Result<FieldRead<&'v [u8]>> {
        handle.check_asked(ScalarType::Bytes)?;
        self.stored_by(handle)?.try_map(|(bytes, _)| Ok(bytes))
    }

    /// A value of any type, decoded.
    ///
    /// # Errors
    /// `InvalidArgument` when the field was widened and its value does not fit the type asked for.
    pub fn value(&self, handle: &FieldHandle) -> Result<FieldRead<Value>> {
        self.stored_by(handle)?.try_map(|(bytes, stored)| {
            let value = decode_value(bytes, stored)?;
            if stored == handle.asked() {
                return Ok(value);
            }
            let converted = Number::of(&value).and_then(|number| match handle.asked() {
                FieldType::Scalar(ScalarType::Int32) => i32::exactly(number).map(Value::Int32),
                FieldType::Scalar(ScalarType::Int64) => i64::exactly(number).map(Value::Int64),
                FieldType::Scalar(ScalarType::Float32) => f32::exactly(number).map(Value::Float32),
                FieldType::Scalar(ScalarType::Float64) => f64::exactly(number).map(Value::Float64),
                _ => None,
            });
            converted.ok_or_else(|| handle.misfit(stored))
        })
    }

    /// The whole document: live fields only, their values as wide as their fields are now.
    pub fn document(&self) -> Result<Document> {
        let mut document = Document::new(self.row.expires_at(), self.row.version());
        for slot in self.written.layout.slots() {
            let value = match self.stored(slot.field)? {
                FieldRead::Absent => continue,
                FieldRead::Null => None,
                FieldRead::Value((bytes, stored)) => {
                    let now = self.current.layout.slot(slot.field);
                    let now = now.map_or(stored, |slot| slot.field_type);
                    Some(decode_value(bytes, stored)?.widened_to(now))
                }
            };
            document.set(slot.field, value, self.row.field_expires_at(slot.field));
        }
        Ok(document)
    }
}
