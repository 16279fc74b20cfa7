//! A field as a reader refers to it: resolved once by name, then bound to id and type.

use std::sync::Arc;

use forebay_core::id::{FieldId, StoreId};
use forebay_core::schema::Definition;
use forebay_core::value::{FieldType, ScalarType};
use forebay_core::{Error, Result};

/// A field of one store and the type that it is read as. Cheap to clone; any thread may use it.
///
/// A handle survives every alteration of the store: added and dropped fields, a new name, a wider
/// type. Reads at a type narrower than the field's work while values fit. After the field is
/// dropped, reads answer absent, even if another field takes the name.
#[derive(Clone, Debug)]
pub struct FieldHandle {
    /// The store; the same id for every version of its documents.
    store: StoreId,
    field: FieldId,
    read_type: FieldType,
    name: Arc<str>,
}

impl FieldHandle {
    pub(crate) fn resolve(
        definition: &Definition,
        name: &str,
        read_type: Option<FieldType>,
    ) -> Result<Self> {
        let field = definition.field(name).ok_or_else(|| {
            Error::not_found("no such field; describe the store for its fields")
                .with_store(&definition.name)
                .with_field(name)
        })?;
        let field_type = field.field_type;
        let read_type = read_type.unwrap_or(field_type);
        if read_type != field_type
            && !read_type.widens_to(field_type)
            && !field_type.widens_to(read_type)
        {
            let message = format!(
                "the field is a {field_type}, not a {read_type}; resolve the handle as a \
                     {field_type}"
            );
            let error = Error::invalid_argument(message).with_store(&definition.name);
            return Err(error.with_field(name));
        }
        let store = definition.versions.home();
        Ok(Self { store, field: field.id, read_type, name: name.into() })
    }

    /// The field's permanent id.
    #[inline]
    pub fn field(&self) -> FieldId {
        self.field
    }

    /// The type that the field is read as.
    pub fn asked(&self) -> FieldType {
        self.read_type
    }

    /// The name that the field was resolved by.
    pub fn name(&self) -> &str {
        &self.name
    }

    #[inline]
    pub(crate) fn check_store(&self, store: StoreId) -> Result<()> {
        if self.store == store { Ok(()) } else { Err(self.foreign()) }
    }

    #[cold]
    fn foreign(&self) -> Error {
        let message = "the handle is of another store; resolve one on this reader";
        Error::invalid_argument(message).with_field(&*self.name)
    }

    #[inline]
    pub(crate) fn check_read_type(&self, requested: ScalarType) -> Result<()> {
        if self.read_type == FieldType::Scalar(requested) {
            Ok(())
        } else {
            Err(self.type_mismatch(requested))
        }
    }

    #[cold]
    fn type_mismatch(&self, requested: ScalarType) -> Error {
        let (read_type, requested) = (self.read_type, requested.name());
        let message = format!(
            "the handle reads a {read_type}; resolve one as {requested}, or read a {read_type}"
        );
        Error::invalid_argument(message).with_field(&*self.name)
    }

    /// Returns the error for a stored value that the requested type cannot represent.
    pub(crate) fn misfit(&self, stored_type: FieldType) -> Error {
        let read_type = self.read_type;
        let message = format!(
            "a {stored_type} value does not fit {read_type}, because the field was widened; read a \
             {stored_type}"
        );
        Error::invalid_argument(message).with_field(&*self.name)
    }
}
