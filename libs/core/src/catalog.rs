//! The catalog: which stores exist and how they are defined. Each process folds it from the control
//! log.
//!
//! If two records define the same next version, the first in the log wins and the other changes
//! nothing. The process that appended the losing record sees the result here and reports it to its
//! caller.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::id::{PartitionCount, SchemaVersion, StoreId};
use crate::layout::Layout;
use crate::schema::Definition;
use crate::versions::VersionNumber;

/// A record of the control log.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlRecord {
    /// Creates a store, or defines its next version.
    Define(Box<Definition>),
    /// Deletes a store. The name becomes free; the id is never used again.
    Delete(StoreId),
}

/// Effect of a control record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlEffect {
    /// The record took effect.
    Applied,
    /// The record changed nothing: another record came first, or the definition cannot follow the
    /// previous one.
    Superseded,
}

/// A version of a definition, with the layout of its rows.
#[derive(Debug)]
pub struct SchemaAt {
    /// The definition.
    pub definition: Arc<Definition>,
    /// Position of each field in rows of this version.
    pub layout: Layout,
}

impl SchemaAt {
    /// Returns a definition with the layout of its rows.
    pub fn of(definition: Definition) -> Arc<Self> {
        let layout = Layout::of(&definition);
        Arc::new(Self { definition: Arc::new(definition), layout })
    }
}

/// All versions of one store's definition.
#[derive(Clone, Debug, Default)]
pub struct StoreHistory {
    versions: BTreeMap<SchemaVersion, Arc<SchemaAt>>,
    is_deleted: bool,
    /// For the storage id of a pushed version: the store whose documents it holds.
    home: Option<StoreId>,
}

impl StoreHistory {
    /// Returns one version of the definition.
    pub fn at(&self, version: SchemaVersion) -> Option<&Arc<SchemaAt>> {
        self.versions.get(&version)
    }

    /// Returns the newest version of the definition.
    pub fn newest(&self) -> Option<&Arc<SchemaAt>> {
        self.versions.values().next_back()
    }

    /// Returns every version of the definition, oldest first.
    pub fn versions(&self) -> impl Iterator<Item = &Arc<SchemaAt>> {
        self.versions.values()
    }

    /// Returns all logs that the store's documents ever had.
    pub fn logs(&self) -> BTreeSet<StoreId> {
        let versions = self.versions().flat_map(|schema| schema.definition.versions.all());
        versions.map(|version| version.logs.store).collect()
    }

    /// Returns the logs that no version follows any more and from which nothing is forwarded.
    pub fn unused_logs(&self) -> BTreeSet<StoreId> {
        let mut unused_logs = self.logs();
        let Some(newest) = self.newest().filter(|_| !self.is_deleted) else { return unused_logs };
        for version in newest.definition.versions.all() {
            let source = version.repartition_source.as_ref();
            let from = source.map_or(version.logs, |source| source.from);
            unused_logs.retain(|logs| ![version.logs.store, from.store].contains(logs));
        }
        unused_logs
    }

    /// Returns the first definition since which the present live version of the documents is live
    /// without interruption.
    pub fn live_since(&self) -> Option<SchemaVersion> {
        let live = |schema: &Arc<SchemaAt>| schema.definition.versions.live().number;
        let now = live(self.newest()?);
        let schemas = self.versions.values().rev().take_while(|schema| live(schema) == now);
        schemas.last().map(|schema| schema.definition.version)
    }

    /// Returns the version of the documents to which a rollback from this definition returns. The
    /// version was live last before the live one, among the versions that the definition still has
    /// and that follow the logs to which writes go. `None` without such a version.
    pub fn rollback_target(&self, from: &Definition) -> Option<VersionNumber> {
        let versions = &from.versions;
        let is_target = |number: &VersionNumber| {
            *number != versions.live().number
                && versions.get(*number).is_some_and(|it| it.logs == versions.write_logs())
        };
        let schemas = self.versions.range(..from.version).rev();
        schemas.map(|(_, schema)| schema.definition.versions.live().number).find(is_target)
    }

    /// Returns whether the store was deleted.
    pub fn is_deleted(&self) -> bool {
        self.is_deleted
    }
}

/// The stores that the control log defines.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    stores: BTreeMap<StoreId, StoreHistory>,
    by_name: BTreeMap<String, StoreId>,
}

impl Catalog {
    /// Applies one record.
    pub fn apply(&mut self, record: ControlRecord) -> ControlEffect {
        match record {
            ControlRecord::Define(definition) => self.define(*definition),
            ControlRecord::Delete(store) => match self.stores.get_mut(&store) {
                Some(history) if !history.is_deleted && history.home.is_none() => {
                    history.is_deleted = true;
                    self.by_name.retain(|_, id| *id != store);
                    ControlEffect::Applied
                }
                _ => ControlEffect::Superseded,
            },
        }
    }

    /// Copies the store's definitions to each version of its documents that has a storage id of its
    /// own. Definitions older than the version are copied, too: entries in its log may name them.
    fn define_versions(&mut self, definition: &Definition) {
        let home = definition.store;
        for version in definition.versions.all().iter().filter(|it| it.storage_id != home) {
            let storage_id = version.storage_id;
            let of_home = self.stores.get(&home).map(|history| history.versions.clone());
            let partitions = version.logs.partitions;
            let own_schema = |(number, at): (SchemaVersion, Arc<SchemaAt>)| {
                let definition =
                    Definition { store: storage_id, partitions, ..(*at.definition).clone() };
                let (definition, layout) = (Arc::new(definition), at.layout.clone());
                (number, Arc::new(SchemaAt { definition, layout }))
            };
            let history = self.stores.entry(storage_id).or_default();
            history.home = Some(home);
            let known_versions = std::mem::take(&mut history.versions);
            let missing_versions = of_home.unwrap_or_default().into_iter();
            history.versions = missing_versions
                .filter(|(number, _)| !known_versions.contains_key(number))
                .map(own_schema)
                .collect();
            history.versions.extend(known_versions);
        }
    }

    fn define(&mut self, definition: Definition) -> ControlEffect {
        let store = definition.store;
        let is_valid = match self.stores.get(&store) {
            Some(history) if history.is_deleted || history.home.is_some() => false,
            Some(history) => history
                .newest()
                .is_some_and(|newest| definition.check_follows(&newest.definition).is_ok()),
            None => {
                definition.version == SchemaVersion(1)
                    && !self.by_name.contains_key(&definition.name)
            }
        };
        if !is_valid || definition.check().is_err() {
            return ControlEffect::Superseded;
        }
        self.by_name.insert(definition.name.clone(), store);
        let schema = SchemaAt::of(definition);
        let history = self.stores.entry(store).or_default();
        history.versions.insert(schema.definition.version, Arc::clone(&schema));
        self.define_versions(&schema.definition);
        ControlEffect::Applied
    }

    /// Returns a store by its id, deleted stores included.
    pub fn store(&self, store: StoreId) -> Option<&StoreHistory> {
        self.stores.get(&store)
    }

    /// Returns every version of a store's definition, oldest first, deleted stores included; none
    /// for an unknown store.
    pub fn definitions(&self, store: StoreId) -> impl Iterator<Item = &Arc<SchemaAt>> {
        self.store(store).into_iter().flat_map(|history| history.versions())
    }

    /// Returns the newest definition of an active store by its name.
    ///
    /// # Errors
    /// Returns `NotFound`, naming the store.
    pub fn store_by_name(&self, name: &str) -> Result<&Arc<SchemaAt>> {
        self.by_name
            .get(name)
            .and_then(|id| self.stores.get(id))
            .and_then(StoreHistory::newest)
            .ok_or_else(|| {
                Error::not_found("no such store; create it, or list the stores").with_store(name)
            })
    }

    /// Returns the newest definition of an active document store by its name.
    ///
    /// # Errors
    /// Returns `NotFound`, naming the store; `InvalidArgument` for a stream.
    pub fn document_store_by_name(&self, name: &str) -> Result<&Arc<SchemaAt>> {
        let schema = self.store_by_name(name)?;
        schema.definition.check_is_of_documents()?;
        Ok(schema)
    }

    /// Returns the store to which the version with this storage id belongs: the store itself,
    /// except for pushed versions.
    pub fn home_by_storage_id(&self, storage_id: StoreId) -> StoreId {
        self.stores.get(&storage_id).and_then(|history| history.home).unwrap_or(storage_id)
    }

    /// Returns the newest definition of the active store that a log belongs to, or belonged to.
    pub fn store_by_logs(&self, logs: StoreId) -> Option<&Arc<SchemaAt>> {
        let store = self.stores.get(&self.home_by_storage_id(logs))?;
        store.newest().filter(|_| !store.is_deleted)
    }

    /// Returns the newest definition of each version of each active store's documents, under the
    /// version's storage id.
    pub fn active_versions(&self) -> impl Iterator<Item = &Arc<SchemaAt>> {
        let versions = self.document_stores().flat_map(|schema| schema.definition.versions.all());
        versions.filter_map(|version| self.stores.get(&version.storage_id)?.newest())
    }

    /// Returns all logs that no store needs any more.
    pub fn unused_logs(&self) -> impl Iterator<Item = StoreId> {
        let stores = self.stores.values().filter(|history| history.home.is_none());
        stores.flat_map(StoreHistory::unused_logs)
    }

    /// Returns each log that a version of an active store's documents follows, with its partition
    /// count.
    pub fn logs(&self) -> BTreeMap<StoreId, PartitionCount> {
        let versions = self.document_stores().flat_map(|schema| schema.definition.versions.all());
        versions.map(|version| (version.logs.store, version.logs.partitions)).collect()
    }

    /// Returns the newest definitions of all active document stores, ordered by name.
    pub fn document_stores(&self) -> impl Iterator<Item = &Arc<SchemaAt>> {
        self.active_stores().filter(|schema| schema.definition.stream.is_none())
    }

    /// Returns the newest definitions of all active stores, streams included, ordered by name.
    pub fn active_stores(&self) -> impl Iterator<Item = &Arc<SchemaAt>> {
        self.by_name.values().filter_map(|id| self.stores.get(id)?.newest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Offset;
    use crate::key::KeyType;
    use crate::schema::{Alteration, FieldSpec, StoreSpec};
    use crate::value::FieldType;

    fn store(id: u64, name: &str) -> Definition {
        StoreSpec::documents(name, KeyType::String).partitions(4).define(StoreId(id)).unwrap()
    }

    fn define(definition: &Definition) -> ControlRecord {
        ControlRecord::Define(Box::new(definition.clone()))
    }

    #[test]
    fn first_of_two_alters_of_one_version_wins() {
        let mut catalog = Catalog::default();
        let first = store(1, "users");
        assert_eq!(catalog.apply(define(&first)), ControlEffect::Applied);
        let add = |name: &str| {
            let field = FieldSpec::new(name, FieldType::INT32);
            first.altered(&[Alteration::AddField(field)]).unwrap()
        };
        assert_eq!(catalog.apply(define(&add("age"))), ControlEffect::Applied);
        assert_eq!(catalog.apply(define(&add("city"))), ControlEffect::Superseded);
        let newest = &catalog.store_by_name("users").unwrap().definition;
        assert!(newest.field("age").is_some() && newest.field("city").is_none());
    }

    #[test]
    fn name_is_taken_until_its_store_is_deleted() {
        let mut catalog = Catalog::default();
        catalog.apply(define(&store(1, "users")));
        assert_eq!(catalog.apply(define(&store(2, "users"))), ControlEffect::Superseded);
        assert_eq!(catalog.apply(ControlRecord::Delete(StoreId(1))), ControlEffect::Applied);
        assert_eq!(catalog.apply(ControlRecord::Delete(StoreId(1))), ControlEffect::Superseded);
        assert_eq!(catalog.apply(define(&store(2, "users"))), ControlEffect::Applied);
        assert_eq!(catalog.apply(define(&store(1, "users"))), ControlEffect::Superseded);
        assert!(catalog.store(StoreId(1)).unwrap().is_deleted());
    }

    #[test]
    fn version_of_the_documents_has_all_definitions_of_its_store() {
        let mut catalog = Catalog::default();
        let first = store(1, "users");
        let two_versions = first.with_version(StoreId(8), vec![Offset(3); 4]).unwrap();
        let age = FieldSpec::new("age", FieldType::INT32);
        let live = two_versions.with_live(VersionNumber(2)).unwrap();
        let with_field = live.altered(&[Alteration::AddField(age)]).unwrap();
        let one_version = with_field.without_version(VersionNumber(1)).unwrap();
        let active = |catalog: &Catalog| -> Vec<u64> {
            catalog.active_versions().map(|schema| schema.definition.store.0).collect()
        };
        for (definition, ids) in
            [(&first, &[1][..]), (&two_versions, &[1, 8]), (&live, &[1, 8]), (&with_field, &[1, 8])]
        {
            assert_eq!(catalog.apply(define(definition)), ControlEffect::Applied);
            assert_eq!(active(&catalog), ids);
        }
        let history = catalog.store(StoreId(8)).unwrap();
        assert_eq!(history.versions().count(), 4);
        assert!(history.versions().all(|schema| schema.definition.store == StoreId(8)));
        assert_eq!(catalog.definitions(StoreId(8)).count(), 4);
        assert_eq!(catalog.definitions(StoreId(9)).count(), 0);
        assert!(history.newest().unwrap().definition.field("age").is_some());
        assert_eq!([1, 8].map(|id| catalog.home_by_storage_id(StoreId(id))), [StoreId(1); 2]);
        assert_eq!(catalog.store_by_name("users").unwrap().definition.store, StoreId(1));

        assert_eq!(catalog.apply(define(&one_version)), ControlEffect::Applied);
        assert_eq!(active(&catalog), [8]);
        assert_eq!(catalog.apply(ControlRecord::Delete(StoreId(8))), ControlEffect::Superseded);
        assert_eq!(catalog.apply(ControlRecord::Delete(StoreId(1))), ControlEffect::Applied);
        assert_eq!(active(&catalog), [0; 0]);
    }

    type NextDefinition<'n> = &'n dyn Fn(&Definition) -> Result<Definition>;

    #[test]
    fn logs_are_unused_once_no_version_follows_or_forwards_them() {
        let mut catalog = Catalog::default();
        let mut now = store(1, "users");
        assert_eq!(catalog.apply(define(&now)), ControlEffect::Applied);
        let mut alter = |catalog: &mut Catalog, next: NextDefinition<'_>| {
            now = next(&now).unwrap();
            assert_eq!(catalog.apply(define(&now)), ControlEffect::Applied);
            let logs = catalog.store(StoreId(1)).unwrap().unused_logs();
            // A version with a storage id of its own is listed by its store alone.
            assert_eq!(catalog.unused_logs().collect::<BTreeSet<_>>(), logs);
            logs.into_iter().map(|logs| logs.0).collect::<Vec<_>>()
        };
        let (one, two) = (VersionNumber(1), VersionNumber(2));
        let repartitioned = |id, count| {
            move |it: &Definition| {
                let start_offsets = vec![Offset(3); it.write_logs().partitions.0 as usize];
                it.with_repartitioned_version(StoreId(id), PartitionCount(count), start_offsets)
            }
        };
        assert_eq!(alter(&mut catalog, &repartitioned(8, 6)), [0; 0]);
        assert_eq!(alter(&mut catalog, &|it| it.without_version(two)), [8], "it was given up");
        let three = VersionNumber(3);
        assert_eq!(alter(&mut catalog, &repartitioned(9, 6)), [8]);
        assert_eq!(alter(&mut catalog, &|it| it.with_writes_to(three)), [8]);
        assert_eq!(alter(&mut catalog, &|it| it.with_live(three)), [8]);
        let stores = alter(&mut catalog, &|it| it.without_version(one));
        assert_eq!(stores, [8], "slow writers may append to those from before");
        assert_eq!(alter(&mut catalog, &|it| it.with_forwarding_ended(three)), [1, 8]);
        // A version that follows the same logs needs no logs of its own.
        let starts = vec![Offset(3); 6];
        let stores = alter(&mut catalog, &|it| it.with_version(StoreId(10), starts.clone()));
        assert_eq!(stores, [1, 8]);
        assert_eq!(catalog.apply(ControlRecord::Delete(StoreId(1))), ControlEffect::Applied);
        let all = catalog.unused_logs().map(|logs| logs.0).collect::<Vec<_>>();
        assert_eq!(all, [1, 8, 9]);
    }

    #[test]
    fn version_is_live_since_the_definition_that_last_made_it_live() {
        let mut catalog = Catalog::default();
        let first = store(1, "users");
        let age = FieldSpec::new("age", FieldType::INT32);
        let (one, two) = (VersionNumber(1), VersionNumber(2));
        let two_versions = first.with_version(StoreId(8), vec![Offset(3); 4]).unwrap();
        let live = two_versions.with_live(two).unwrap();
        let with_field = live.altered(&[Alteration::AddField(age)]).unwrap();
        let back_to_first = with_field.with_live(one).unwrap();
        let forth_to_second = back_to_first.with_live(two).unwrap();
        for (definition, expected_version) in [
            (&first, 1),
            (&two_versions, 1),
            (&live, 3),
            (&with_field, 3),
            (&back_to_first, 5),
            (&forth_to_second, 6),
        ] {
            assert_eq!(catalog.apply(define(definition)), ControlEffect::Applied);
            for id in definition.versions.all().iter().map(|version| version.storage_id) {
                let live_since = catalog.store(id).unwrap().live_since();
                assert_eq!(live_since, Some(SchemaVersion(expected_version)), "{id:?}");
            }
        }
        assert_eq!(StoreHistory::default().live_since(), None);
    }

    #[test]
    fn rollback_target_was_live_last_and_still_exists() {
        let mut catalog = Catalog::default();
        let mut definition = store(1, "users");
        catalog.apply(define(&definition));
        let starts = vec![Offset(3); 4];
        let mut alter = |alter: &dyn Fn(&Definition) -> Result<Definition>| {
            definition = alter(&definition).unwrap();
            assert_eq!(catalog.apply(define(&definition)), ControlEffect::Applied);
            let history = catalog.store(StoreId(1)).unwrap();
            history.rollback_target(&definition).map(|number| number.0)
        };
        let [one, two, three, four] = [1, 2, 3, 4].map(VersionNumber);
        let age = FieldSpec::new("age", FieldType::INT32);
        let alterations = [Alteration::AddField(age)];
        assert_eq!(alter(&|it| it.with_version(StoreId(8), starts.clone())), None);
        assert_eq!(alter(&|it| it.with_version(StoreId(9), starts.clone())), None);
        assert_eq!(alter(&|it| it.with_live(three)), Some(1), "the second one was never live");
        assert_eq!(alter(&|it| it.with_version(StoreId(10), starts.clone())), Some(1));
        assert_eq!(alter(&|it| it.with_live(four)), Some(3));
        assert_eq!(alter(&|it| it.altered(&alterations)), Some(3));
        assert_eq!(alter(&|it| it.with_live(three)), Some(4), "a second rollback returns");
        assert_eq!(alter(&|it| it.with_live(one)), Some(3), "the order counts, not the number");
        assert_eq!(alter(&|it| it.without_version(three)), Some(4));
        assert_eq!(alter(&|it| it.without_version(four)), None);
        assert_eq!(alter(&|it| it.with_live(two)), Some(1));

        let repartition = |it: &Definition| {
            it.with_repartitioned_version(StoreId(11), PartitionCount(6), starts.clone())
        };
        let five = VersionNumber(5);
        assert_eq!(alter(&repartition), Some(1));
        assert_eq!(alter(&|it| it.with_writes_to(five)), None);
        assert_eq!(alter(&|it| it.with_live(five)), None, "versions of other logs are no target");
    }
}
