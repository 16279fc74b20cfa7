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
    asked: FieldType,
    name: Arc<str>,
}

impl FieldHandle {
    pub(crate) fn resolve(
        definition: &Definition,
        name: &str,
        asked: Option<FieldType>,
    ) -> Result<Self> {
        let field = definition.field(name).ok_or_else(|| {
            Error::not_found("no such field; describe the store for its fields")
                .with_store(&definition.name)
                .with_field(name)
        })?;
        let own = field.field_type;
        let asked = asked.unwrap_or(own);
        if asked != own && !asked.widens_to(own) && !own.widens_to(asked) {
            let message =
                format!("the field is a {own}, not a {asked}; resolve the handle as a {own}");
            let error = Error::invalid_argument(message).with_store(&definition.name);
            return Err(error.with_field(name));
        }
        let store = definition.versions.home();
        Ok(Self { store, field: field.id, asked, name: name.into() })
    }

    /// The field's permanent id.
    #[inline]
    pub fn field(&self) -> FieldId {
        self.field
    }

    /// The type that the field is read as.
    pub fn asked(&self) -> FieldType {
        self.asked
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
    pub(crate) fn check_asked(&self, wanted: ScalarType) -> Result<()> {
        if self.asked == FieldType::Scalar(wanted) { Ok(()) } else { Err(self.not_of(wanted)) }
    }

    #[cold]
    fn not_of(&self, wanted: ScalarType) -> Error {
        let (asked, wanted) = (self.asked, wanted.name());
        let message =
            format!("the handle reads a {asked}; resolve one as {wanted}, or read a {asked}");
        Error::invalid_argument(message).with_field(&*self.name)
    }

    /// Returns the error for a stored value that the requested type cannot represent.
    pub(crate) fn misfit(&self, stored: FieldType) -> Error {
        let asked = self.asked;
        let message = format!(
            "a {stored} value does not fit {asked}, because the field was widened; read a {stored}"
        );
        Error::invalid_argument(message).with_field(&*self.name)
    }
}
