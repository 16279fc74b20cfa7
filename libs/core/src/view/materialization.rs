//! Materialization of a view's values: the store with the fields that the view needs, and the ids
//! of these fields.
//!
//! Each field that a view materializes to has the alias `VIEW.NAME`, which records its owner. If
//! the view was never defined, or was dropped, the next apply of a view with this name may drop the
//! orphaned fields.

use std::collections::BTreeSet;

use super::{FeatureView, Materialization, ViewOutput};
use crate::error::{Error, Result};
use crate::id::{FieldId, SchemaVersion, StoreId};
use crate::limits::{
    VIEW_EXPIRY_GRACE_US_MAX, VIEW_MATERIALIZATION_INTERVAL_US_MAX,
    VIEW_MATERIALIZATION_INTERVAL_US_MIN,
};
use crate::schema::{Alteration, Definition, Field, FieldSpec, StoreSpec, check_name};
use crate::value::FieldType;

/// Specification of the destination of a view's values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MaterializationSpec {
    /// Name of the store.
    pub store: String,
    /// Least interval between two materializations of one group, in microseconds.
    pub interval_us: i64,
    /// Expiry grace: how long a windowed value outlives its next change, in microseconds.
    pub expiry_grace_us: i64,
}

impl Materialization {
    /// Returns whether the view materializes to this field of this store.
    pub fn is_to(&self, store: StoreId, field: FieldId) -> bool {
        self.store == store && (self.position == field || self.fields.contains(&field))
    }

    /// Refuses a materialization that breaks a limit or does not fit the view.
    pub(super) fn check(&self, view: &FeatureView, definition: &Definition) -> Result<()> {
        let refuse = |message: String| Err(Error::invalid_argument(message));
        if self.store == definition.store || self.store == view.source {
            return refuse(
                "a view cannot materialize to a stream; name a document store".to_owned(),
            );
        }
        if self.interval_us < VIEW_MATERIALIZATION_INTERVAL_US_MIN {
            let interval_ms_min = VIEW_MATERIALIZATION_INTERVAL_US_MIN / 1_000;
            return refuse(format!(
                "the interval is too short; give an interval of {interval_ms_min} ms or more"
            ));
        }
        if self.expiry_grace_us < 0 {
            return refuse("the expiry grace is negative; give a grace of zero or more".to_owned());
        }
        for (advice, found, limit) in [
            (
                "the interval is too long; shorten the interval",
                self.interval_us,
                VIEW_MATERIALIZATION_INTERVAL_US_MAX,
            ),
            (
                "the expiry grace is too long; shorten the grace",
                self.expiry_grace_us,
                VIEW_EXPIRY_GRACE_US_MAX,
            ),
        ] {
            if found > limit {
                return Err(Error::limit_exceeded(advice, limit as u64, found as u64));
            }
        }
        if self.fields.len() != view.outputs().len() {
            return refuse("each value of a view needs a field in the document store".to_owned());
        }
        let ids: BTreeSet<_> = self.fields.iter().chain([&self.position]).collect();
        if ids.len() != self.fields.len() + 1 {
            return refuse(
                "each value of a view needs a field of its own in the document store".to_owned(),
            );
        }
        Ok(())
    }
}

impl MaterializationSpec {
    /// Creates the definition of a store with this id and the fields that the view needs, if no
    /// store has the name yet.
    ///
    /// # Errors
    /// Returns `InvalidArgument` or `LimitExceeded` for an invalid name of the store or of a field.
    pub fn new_store(&self, id: StoreId, definition: &Definition) -> Result<Definition> {
        let view = view_of(definition)?;
        let (key_type, partitions) =
            (view.document_key_type(definition), definition.write_logs().partitions.0);
        let empty =
            StoreSpec::documents(&self.store, key_type).partitions(partitions).define(id)?;
        let altered_store = self.altered_store(definition, None, &empty, &|_| false)?;
        Ok(Definition { version: SchemaVersion(1), ..altered_store })
    }

    /// Returns the next definition of the store, with the fields that the view needs and the store
    /// lacks; returns the same definition if it has them. Orphaned fields of the view are dropped
    /// and added again.
    ///
    /// `definition` is the new definition of the view, `was` the present one. `is_materialized`
    /// returns whether an existing view materializes to a field of the store.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for a store to which the view cannot materialize, and if a field
    /// that the view does not own has a name that the view needs; `LimitExceeded` for names that
    /// are too long, or too many fields.
    pub fn altered_store(
        &self,
        definition: &Definition,
        previous: Option<&Definition>,
        store: &Definition,
        is_materialized: &impl Fn(FieldId) -> bool,
    ) -> Result<Definition> {
        self.check_store(definition, previous, store)?;
        let mut alterations = orphaned_fields(store, &definition.name, is_materialized);
        let is_left = |field: &Field| is_of(field, &definition.name) && !is_materialized(field.id);
        for field_spec in materialized_fields(definition)? {
            if find_kept_field(definition, previous, store, &field_spec)?.is_some() {
                continue;
            }
            let same_name_field = store.field(&field_spec.name).filter(|field| !is_left(field));
            if same_name_field.is_some() {
                let message = "the store has a field of this name already; rename the feature, the \
                    window or that field";
                let error = Error::invalid_argument(message).with_store(&store.name);
                return Err(error.with_field(&field_spec.name));
            }
            let (from, to) =
                (owned_name(&definition.name, &field_spec.name), field_spec.name.clone());
            check_name(&from).map_err(|error| error.with_field(&to))?;
            let added_field = FieldSpec { name: from.clone(), ..field_spec };
            alterations
                .extend([Alteration::AddField(added_field), Alteration::RenameField { from, to }]);
        }
        if alterations.is_empty() { Ok(store.clone()) } else { store.altered(&alterations) }
    }

    /// Resolves the materialization to the field ids of a store that has the fields.
    ///
    /// # Errors
    /// Returns the errors of [`MaterializationSpec::altered_store`], `InvalidArgument` or
    /// `LimitExceeded` for an invalid interval or expiry grace, and `NotFound` for a field that the
    /// store lacks.
    pub(super) fn materialization(
        &self,
        definition: &Definition,
        previous: Option<&Definition>,
        store: &Definition,
    ) -> Result<Materialization> {
        self.check_store(definition, previous, store)?;
        let mut ids = Vec::new();
        for field_spec in materialized_fields(definition)? {
            let kept_field = find_kept_field(definition, previous, store, &field_spec)?;
            let owned_field_name = owned_name(&definition.name, &field_spec.name);
            let field = kept_field.or_else(|| store.field(&owned_field_name)).ok_or_else(|| {
                let message = "the store lacks this field of the view; apply the view again";
                Error::not_found(message).with_store(&store.name).with_field(&field_spec.name)
            })?;
            check_type(field, &field_spec)?;
            ids.push(field.id);
        }
        let position = ids.pop().unwrap_or_default();
        let Self { interval_us, expiry_grace_us, .. } = *self;
        let materialization = Materialization {
            store: store.store,
            fields: ids,
            position,
            interval_us,
            expiry_grace_us,
        };
        materialization.check(view_of(definition)?, definition)?;
        Ok(materialization)
    }

    /// Refuses a store whose documents cannot represent the view's groups.
    fn check_store(
        &self,
        definition: &Definition,
        previous: Option<&Definition>,
        store: &Definition,
    ) -> Result<()> {
        let refuse = |message: &str| Err(Error::invalid_argument(message).with_store(&store.name));
        if previous
            .and_then(materialization_of)
            .is_some_and(|previous| previous.store != store.store)
        {
            return refuse(
                "the view materializes to another store; remove `materialize` first, then add this \
                 store",
            );
        }
        if store.stream.is_some() || store.key_value {
            return refuse("a view can only materialize to a document store; name another store");
        }
        if store.name == definition.name {
            return refuse("the store has the name of the view; name another store");
        }
        if store.partition_key.is_some() {
            return refuse(
                "a view cannot materialize to a store with a partition key; name another store",
            );
        }
        let key_type = view_of(definition)?.document_key_type(definition);
        if store.key_type != key_type {
            let (expected, found) = (key_type.name(), store.key_type.name());
            return refuse(&format!(
                "the groups' keys are of type {expected}, and the store's keys of type {found}; \
                 name another store"
            ));
        }
        Ok(())
    }
}

/// Returns the alterations that drop the orphaned fields of a view with this name: fields that were
/// created for it and to which no view materializes.
pub fn orphaned_fields(
    store: &Definition,
    view: &str,
    is_materialized: &impl Fn(FieldId) -> bool,
) -> Vec<Alteration> {
    let left_fields =
        store.fields.iter().filter(|field| is_of(field, view) && !is_materialized(field.id));
    left_fields.map(|field| Alteration::DropField(field.name.clone())).collect()
}

/// Returns the fields to which the view materializes; the position field is last.
fn materialized_fields(definition: &Definition) -> Result<Vec<FieldSpec>> {
    let outputs = view_of(definition)?.outputs();
    let position = format!("{}_position", definition.name);
    if outputs.iter().any(|output| output.name == position) {
        let message = "the view's position field has this name; rename the feature";
        return Err(Error::invalid_argument(message).with_field(position));
    }
    let field = |ViewOutput { name, field_type }| FieldSpec::new(name, field_type);
    let mut fields: Vec<_> = outputs.into_iter().map(field).collect();
    fields.push(FieldSpec::new(position, FieldType::INT64));
    Ok(fields)
}

/// Returns the field to which the view already materializes an output, whatever the store now calls
/// the field.
fn find_kept_field<'s>(
    definition: &Definition,
    previous: Option<&Definition>,
    store: &'s Definition,
    field_spec: &FieldSpec,
) -> Result<Option<&'s Field>> {
    let Some((previous, materialization)) =
        previous.and_then(|previous| Some((previous.view()?, materialization_of(previous)?)))
    else {
        return Ok(None);
    };
    let outputs = previous.outputs();
    let place = outputs.iter().position(|output| output.name == field_spec.name);
    let id = match place {
        Some(place) => materialization.fields.get(place).copied(),
        None if field_spec.name == format!("{}_position", definition.name) => {
            Some(materialization.position)
        }
        None => None,
    };
    let Some(field) = id.and_then(|id| store.field_by_id(id)) else { return Ok(None) };
    check_type(field, field_spec)?;
    Ok(Some(field))
}

fn check_type(field: &Field, field_spec: &FieldSpec) -> Result<()> {
    let (found, expected) = (field.field_type, field_spec.field_type);
    if found == expected {
        return Ok(());
    }
    let message = format!(
        "the value is now a {expected}, but its field is a {found}; rename the feature, or apply \
         the view without the feature first"
    );
    Err(Error::invalid_argument(message).with_field(&field_spec.name))
}

/// Returns the name that records the owner of a field.
fn owned_name(view: &str, field: &str) -> String {
    format!("{view}.{field}")
}

/// Returns whether a field was created for a view with this name.
fn is_of(field: &Field, view: &str) -> bool {
    let names = || std::iter::once(&field.name).chain(&field.aliases);
    names().any(|name| names().any(|other_name| *other_name == owned_name(view, name)))
}

fn materialization_of(definition: &Definition) -> Option<&Materialization> {
    definition.view()?.materialization.as_ref()
}

fn view_of(definition: &Definition) -> Result<&FeatureView> {
    definition
        .view()
        .ok_or_else(|| Error::internal("the store is no view, so it materializes nothing"))
}
