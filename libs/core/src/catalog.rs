//! The catalog: which stores exist and how they are defined, as the fold of the control log.
//!
//! Of two records that name the same next version the first in the log wins; the other changes
//! nothing, and whoever appended it sees that here and tells its caller.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::id::{SchemaVersion, StoreId};
use crate::layout::Layout;
use crate::schema::Definition;

/// One record of the control log.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlRecord {
    /// A store is created, or gets its next version.
    Define(Box<Definition>),
    /// A store is deleted; its name is free again, its id is not.
    Delete(StoreId),
}

/// What a control record did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlEffect {
    /// It took effect.
    Applied,
    /// Another record came first, or the definition cannot follow the one before; nothing happened.
    Superseded,
}

/// One version of a definition with the layout of its rows.
#[derive(Debug)]
pub struct SchemaAt {
    /// The definition.
    pub definition: Definition,
    /// Where its fields lie in rows of this version.
    pub layout: Layout,
}

/// All versions of one store.
#[derive(Clone, Debug)]
pub struct StoreHistory {
    versions: BTreeMap<SchemaVersion, Arc<SchemaAt>>,
    deleted: bool,
}

impl StoreHistory {
    /// One version of the definition.
    pub fn at(&self, version: SchemaVersion) -> Option<&Arc<SchemaAt>> {
        self.versions.get(&version)
    }

    /// The newest version of the definition.
    pub fn newest(&self) -> Option<&Arc<SchemaAt>> {
        self.versions.values().next_back()
    }

    /// Every version, oldest first.
    pub fn versions(&self) -> impl Iterator<Item = &Arc<SchemaAt>> {
        self.versions.values()
    }

    /// Whether the store was deleted.
    pub fn is_deleted(&self) -> bool {
        self.deleted
    }
}

/// The stores that the control log defines.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    stores: BTreeMap<StoreId, StoreHistory>,
    by_name: BTreeMap<String, StoreId>,
}

impl Catalog {
    /// Folds one record in.
    pub fn apply(&mut self, record: ControlRecord) -> ControlEffect {
        match record {
            ControlRecord::Define(definition) => self.define(*definition),
            ControlRecord::Delete(store) => match self.stores.get_mut(&store) {
                Some(history) if !history.deleted => {
                    history.deleted = true;
                    self.by_name.retain(|_, id| *id != store);
                    ControlEffect::Applied
                }
                _ => ControlEffect::Superseded,
            },
        }
    }

    fn define(&mut self, definition: Definition) -> ControlEffect {
        let store = definition.store;
        let fits = match self.stores.get(&store) {
            Some(history) if history.deleted => false,
            Some(history) => history
                .newest()
                .is_some_and(|newest| definition.check_follows(&newest.definition).is_ok()),
            None => {
                definition.version == SchemaVersion(1)
                    && !self.by_name.contains_key(&definition.name)
            }
        };
        if !fits || definition.check().is_err() {
            return ControlEffect::Superseded;
        }
        self.by_name.insert(definition.name.clone(), store);
        let layout = Layout::of(&definition);
        let history = self
            .stores
            .entry(store)
            .or_insert_with(|| StoreHistory { versions: BTreeMap::new(), deleted: false });
        history.versions.insert(definition.version, Arc::new(SchemaAt { definition, layout }));
        ControlEffect::Applied
    }

    /// A store by its id; deleted ones too.
    pub fn store(&self, store: StoreId) -> Option<&StoreHistory> {
        self.stores.get(&store)
    }

    /// The newest definition of a living store by its name.
    ///
    /// # Errors
    /// `NotFound`, naming the store.
    pub fn by_name(&self, name: &str) -> Result<&Arc<SchemaAt>> {
        self.by_name
            .get(name)
            .and_then(|id| self.stores.get(id))
            .and_then(StoreHistory::newest)
            .ok_or_else(|| {
                Error::not_found("no such store; create it, or list the stores").with_store(name)
            })
    }

    /// Every store that was deleted.
    pub fn deleted(&self) -> impl Iterator<Item = StoreId> {
        self.stores.iter().filter(|(_, history)| history.deleted).map(|(store, _)| *store)
    }

    /// The newest definitions of all living stores, ordered by name.
    pub fn living(&self) -> impl Iterator<Item = &Arc<SchemaAt>> {
        self.by_name.values().filter_map(|id| self.stores.get(id)?.newest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyType;
    use crate::schema::{Alteration, FieldSpec, StoreSpec};
    use crate::value::{FieldType, ScalarType};

    fn store(id: u64, name: &str) -> Definition {
        StoreSpec::documents(name, KeyType::String, 4).define(StoreId(id)).unwrap()
    }

    fn define(definition: &Definition) -> ControlRecord {
        ControlRecord::Define(Box::new(definition.clone()))
    }

    #[test]
    fn of_two_alters_of_one_version_the_first_wins() {
        let mut catalog = Catalog::default();
        let first = store(1, "users");
        assert_eq!(catalog.apply(define(&first)), ControlEffect::Applied);
        let add = |name: &str| {
            let field = FieldSpec::new(name, FieldType::Scalar(ScalarType::Int32));
            first.altered(&[Alteration::AddField(field)]).unwrap()
        };
        assert_eq!(catalog.apply(define(&add("age"))), ControlEffect::Applied);
        assert_eq!(catalog.apply(define(&add("city"))), ControlEffect::Superseded);
        let newest = &catalog.by_name("users").unwrap().definition;
        assert!(newest.field("age").is_some() && newest.field("city").is_none());
    }

    #[test]
    fn a_name_is_taken_until_its_store_is_deleted() {
        let mut catalog = Catalog::default();
        catalog.apply(define(&store(1, "users")));
        assert_eq!(catalog.apply(define(&store(2, "users"))), ControlEffect::Superseded);
        assert_eq!(catalog.apply(ControlRecord::Delete(StoreId(1))), ControlEffect::Applied);
        assert_eq!(catalog.apply(ControlRecord::Delete(StoreId(1))), ControlEffect::Superseded);
        assert_eq!(catalog.apply(define(&store(2, "users"))), ControlEffect::Applied);
        assert_eq!(catalog.apply(define(&store(1, "users"))), ControlEffect::Superseded);
        assert!(catalog.store(StoreId(1)).unwrap().is_deleted());
    }
}
