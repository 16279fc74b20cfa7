//! A storage in the memory of the process, for simulations and tests: rows in an ordered map,
//! without readers. An expired document stays until a later entry writes or deletes it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_core::Result;
use forebay_core::catalog::SchemaAt;
use forebay_core::fold::{FoldEffects, PartitionState, RowLookup};
use forebay_core::id::{PartitionId, PartitionRef};
use forebay_core::replica_state::{LogCursor, PartitionUsage, Phase};
use forebay_core::schema_set::SchemaSet;
use parking_lot::Mutex;

use crate::storage::{OpenedReplica, ReplicaWriter, Storage, VisitRow};

/// The usage of each open partition.
type Usages = Arc<Mutex<BTreeMap<PartitionId, PartitionUsage>>>;

/// The rows of a store's partitions in memory; each open begins empty.
pub struct MemoryStorage {
    schemas: SchemaSet,
    usages: Usages,
}

impl MemoryStorage {
    /// Returns the empty storage of a store of these definitions.
    ///
    /// # Errors
    /// Returns `InvalidArgument` without a definition.
    pub fn new(versions: impl IntoIterator<Item = Arc<SchemaAt>>) -> Result<Self> {
        Ok(Self { schemas: SchemaSet::new(versions)?, usages: Usages::default() })
    }
}

impl Storage for MemoryStorage {
    fn schemas(&self) -> &SchemaSet {
        &self.schemas
    }

    fn open(&self, at: PartitionRef) -> Result<OpenedReplica> {
        let usages = Arc::clone(&self.usages);
        let writer = MemoryWriter { at, served_rows: Rows::default(), rebuilt: None, usages };
        Ok(OpenedReplica::empty(Box::new(writer)))
    }

    fn usage(&self, partition: PartitionId) -> PartitionUsage {
        self.usages.lock().get(&partition).copied().unwrap_or_default()
    }
}

/// The rows of one replica, by key.
#[derive(Default)]
struct Rows {
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    usage: PartitionUsage,
}

impl Rows {
    fn apply(&mut self, effects: &FoldEffects) {
        if effects.drop_all {
            *self = Self::default();
        }
        for (key, row) in &effects.writes {
            let key = key.as_bytes();
            if let Some(before) = self.rows.remove(key) {
                self.usage.lose(key.len(), before.len());
            }
            if let Some(row) = row {
                self.usage.gain(key.len(), row.len());
                self.rows.insert(key.to_vec(), row.clone());
            }
        }
    }
}

/// The writer of one partition.
struct MemoryWriter {
    at: PartitionRef,
    served_rows: Rows,
    /// The replica that is built next to the served one.
    rebuilt: Option<Rows>,
    usages: Usages,
}

impl MemoryWriter {
    fn target(&self) -> &Rows {
        self.rebuilt.as_ref().unwrap_or(&self.served_rows)
    }

    fn publish_usage(&self) {
        self.usages.lock().insert(self.at.partition, self.served_rows.usage);
    }
}

impl RowLookup for MemoryWriter {
    fn row(&self, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        Ok(self.target().rows.get(key).map(|row| Cow::Borrowed(&row[..])))
    }
}

impl ReplicaWriter for MemoryWriter {
    fn start_rebuild(&mut self) -> Result<()> {
        self.rebuilt = Some(Rows::default());
        Ok(())
    }

    fn abandon_rebuild(&mut self) -> Result<()> {
        self.rebuilt = None;
        Ok(())
    }

    fn publish_rebuild(&mut self) -> Result<()> {
        if let Some(rebuilt) = self.rebuilt.take() {
            self.served_rows = rebuilt;
            self.publish_usage();
        }
        Ok(())
    }

    // The tail decides whether a partition answers.
    fn set_phase(&mut self, _phase: Phase) {}

    fn apply(&mut self, effects: &mut FoldEffects, _state: &PartitionState) -> Result<()> {
        match &mut self.rebuilt {
            Some(rebuilt) => rebuilt.apply(effects),
            None => {
                self.served_rows.apply(effects);
                self.publish_usage();
            }
        }
        Ok(())
    }

    fn note_cursor(&mut self, _cursor: LogCursor) {}

    fn visit_rows(&self, visit: &mut VisitRow<'_>) -> Result<()> {
        self.target().rows.iter().try_for_each(|(key, row)| visit(key, row))
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::id::{PartitionCount, StoreId};
    use forebay_core::key::{Key, KeyType};
    use forebay_core::schema::StoreSpec;

    use super::*;

    const AT: PartitionRef = PartitionRef { store: StoreId(4), partition: PartitionId(0) };

    fn storage() -> MemoryStorage {
        let spec = StoreSpec::documents("users", KeyType::String).partitions(1);
        MemoryStorage::new([SchemaAt::of(spec.define(AT.store).unwrap())]).unwrap()
    }

    fn write(writer: &mut dyn ReplicaWriter, key: &str, row: Option<&[u8]>) {
        let key = Key::plain(key.as_bytes()).unwrap();
        let mut effects =
            FoldEffects { writes: vec![(key, row.map(<[u8]>::to_vec))], ..FoldEffects::default() };
        let state = PartitionState::new(AT, PartitionCount(1));
        writer.apply(&mut effects, &state).unwrap();
    }

    #[test]
    fn rebuild_replaces_the_served_rows_at_publication() {
        let storage = storage();
        let mut writer = storage.open(AT).unwrap().writer;
        write(&mut *writer, "ann", Some(b"one"));
        write(&mut *writer, "bob", Some(b"two"));
        write(&mut *writer, "bob", None);
        let usage = storage.usage(AT.partition);
        assert_eq!((usage.documents, usage.key_bytes, usage.row_bytes), (1, 3, 3));
        writer.start_rebuild().unwrap();
        assert_eq!(writer.row(b"ann").unwrap(), None);
        write(&mut *writer, "eve", Some(b"three"));
        assert_eq!(storage.usage(AT.partition), usage);
        writer.publish_rebuild().unwrap();
        let mut rows = Vec::new();
        let visit = &mut |key: &[u8], row: &[u8]| {
            rows.push((key.to_vec(), row.to_vec()));
            Ok(())
        };
        writer.visit_rows(visit).unwrap();
        assert_eq!(rows, [(b"eve".to_vec(), b"three".to_vec())]);
        assert_eq!(storage.usage(AT.partition).row_bytes, 5);
    }
}
