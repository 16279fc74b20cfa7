//! A partition that is built from documents outside any log: the contents of files, folded like
//! puts.

use forebay_core::catalog::SchemaAt;
use forebay_core::change::Entry;
use forebay_core::fold::{PartitionState, Record};
use forebay_core::id::DocumentVersion;
use forebay_core::outcome::Outcome;
use forebay_core::row::set_row_version;
use forebay_core::schema::Definition;
use forebay_core::schema_set::SchemaSet;
use forebay_core::{Error, Result};

use crate::build::ImageBuilder;
use crate::image_state::ImageState;

/// State of a partition before the first document.
#[derive(Clone, Debug)]
pub struct LoadBase {
    /// Position of the partition, and what it knows of its writers.
    pub state: ImageState,
    /// Version of all loaded documents, if the store has document versions.
    pub version: DocumentVersion,
}

/// A partition that is built from entries outside any log.
pub struct LoadedPartition {
    builder: ImageBuilder,
    schemas: SchemaSet,
    base: LoadBase,
    /// State that folds the entries, one at each offset.
    state: PartitionState,
}

impl LoadedPartition {
    /// Creates a partition without documents, with at most `memory_bytes` of memory. The
    /// definitions of the store are in ascending order; rows are written with the first one.
    ///
    /// # Errors
    /// The errors of [`ImageBuilder::new`]; `NotFound` without a definition.
    pub fn new(
        definitions: &[Definition],
        base: LoadBase,
        seed: u64,
        memory_bytes: u64,
    ) -> Result<Self> {
        let no_definition_error = || Error::not_found("the store has no definition");
        let definition = definitions.first().ok_or_else(no_definition_error)?;
        let (partitions, at) = (definition.partitions, base.state.state.partition);
        let schemas = SchemaSet::new([SchemaAt::of(definition.clone())])?;
        let builder = ImageBuilder::new(definitions, at, partitions, seed, memory_bytes)?;
        let state = PartitionState {
            log_id: base.state.state.log_id,
            partition_time: base.state.state.partition_time,
            schema_version: definition.version,
            drop_all_count: definition.drop_all_count,
            ..PartitionState::new(at, partitions)
        };
        Ok(Self { builder, schemas, base, state })
    }

    /// Folds the changes of an entry of this log; returns the outcomes of the conditional changes,
    /// and of the changes that were too large.
    ///
    /// # Errors
    /// The reason why an entry is not valid for this partition; the errors of
    /// [`ImageBuilder::add`].
    pub fn add(&mut self, entry: Entry) -> Result<Vec<Outcome>> {
        let (offset, append_time) = (self.state.offset_applied, self.state.partition_time);
        let record = Record { offset, append_time, entry: Ok(entry) };
        let effects = self.state.apply(record, self.builder.rows(), &self.schemas);
        let unknown = |version| {
            Error::internal(format!("a loaded entry has the unknown schema version {version}"))
        };
        let effects = effects.map_err(|error| error.into_error(unknown))?;
        if let Some(error) = effects.skipped {
            return Err(error);
        }
        let mut writes = effects.writes;
        for row in writes.iter_mut().filter_map(|(_, row)| row.as_mut()) {
            set_row_version(row, self.base.version);
        }
        self.builder.add(writes)?;
        Ok(effects.outcomes)
    }

    /// Returns the image of all documents, and the state of the image.
    pub fn finish(self) -> (ImageBuilder, ImageState) {
        (self.builder, self.base.state)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_core::ErrorCode;
    use forebay_core::change::{
        Change, ClientBatch, Condition, EntryBody, FieldChange, FieldOp, Verb,
    };
    use forebay_core::clock::Timestamp;
    use forebay_core::id::{
        ClientId, Epoch, FieldId, LogId, Offset, PartitionId, PartitionRef, Position, Sequence,
        StoreId,
    };
    use forebay_core::key::{Key, KeyType};
    use forebay_core::outcome::ConditionOutcome;
    use forebay_core::schema::StoreSpec;
    use forebay_core::value::{FieldType, Value};
    use forebay_index::{Image, ImageSink, Index, MappedFile};

    use super::*;
    use crate::point_in_time::NewLog;

    const MIB: u64 = 1 << 20;
    const ROWS: u64 = 16 * 1024;

    fn log() -> NewLog {
        let at = PartitionRef { store: StoreId(1), partition: PartitionId(0) };
        let position = Position { epoch: Epoch(0), offset: Offset(1), index_in_entry: 0 };
        NewLog { at, log_id: LogId(7), position, offset_applied: Offset(2) }
    }

    fn definition() -> Definition {
        let bytes = FieldType::BYTES;
        let mut spec =
            StoreSpec::documents("things", KeyType::Int64).partitions(1).field("it", bytes);
        (spec.options.versioned, spec.options.ttl_us) = (true, Some(60_000_000));
        spec.define(StoreId(1)).unwrap()
    }

    /// Returns a kilobyte that does not compress, derived from a row's number.
    fn value(number: u64) -> Vec<u8> {
        let word =
            |place: u64| forebay_core::partition::xxh3_64(&(number * 128 + place).to_le_bytes());
        (0..128).flat_map(|place| word(place).to_le_bytes()).collect()
    }

    fn put(number: u64, sequence: u64) -> Change {
        let op = FieldOp::Set(Some(Value::Bytes(value(number))));
        Change {
            sequence: Sequence(sequence),
            key: Key::plain(&number.to_le_bytes()).unwrap(),
            verb: Verb::Put,
            fields: vec![FieldChange { field: FieldId(1), op, ttl_us: None }],
            condition: Some(Condition::IfAbsent),
            ttl_us: None,
        }
    }

    fn entry(changes: Vec<Change>, definition: &Definition) -> Entry {
        let body = EntryBody::Changes(vec![ClientBatch { client: ClientId(1), changes }]);
        Entry::original(LogId(7), definition.version, body)
    }

    struct ToFile(std::fs::File);

    impl ImageSink for ToFile {
        fn write_at(&mut self, bytes: &[u8], at: u64) -> Result<()> {
            std::os::unix::fs::FileExt::write_all_at(&self.0, bytes, at).unwrap();
            Ok(())
        }
    }

    #[test]
    fn entries_without_a_log_become_an_image() {
        let definition = definition();
        let base = log().begins(&definition, Timestamp::from_micros(1_000));
        let mut loaded =
            LoadedPartition::new(std::slice::from_ref(&definition), base, 3, 64 * MIB).unwrap();
        for first in (0..ROWS).step_by(512) {
            let changes = (first..first + 512).map(|number| put(number, number + 1)).collect();
            let outcomes = loaded.add(entry(changes, &definition)).unwrap();
            assert!(outcomes.iter().all(|outcome| outcome.condition == ConditionOutcome::Applied));
        }
        let outcomes = loaded.add(entry(vec![put(5, ROWS + 1)], &definition)).unwrap();
        assert!(
            matches!(outcomes[0].condition, ConditionOutcome::ConditionFailed(Some(_))),
            "{outcomes:?}"
        );
        let (builder, state) = loaded.finish();
        let mut file = ToFile(tempfile::tempfile().unwrap());
        assert_eq!(builder.write(&state, &mut file).unwrap().documents, ROWS);

        let image = Image::open(Arc::new(MappedFile::from(file.0))).unwrap();
        let schema = SchemaAt::of(definition);
        let index = Index::new([Arc::clone(&schema)], [PartitionId(0)], 5).unwrap();
        let mut writer = index.writer(PartitionId(0)).unwrap();
        writer.start_rebuild_from_image(&image, &state.state).unwrap();
        let mut row_count = 0;
        let visited = writer.visit_rows(|key, row| {
            let number = u64::from_le_bytes(key.try_into().unwrap());
            let document = forebay_core::row::Document::decode(row, &schema.layout)?;
            assert_eq!(document.value(FieldId(1)), Some(&Value::Bytes(value(number))));
            assert_eq!(document.expires_at, Some(Timestamp::from_micros(60_001_000)));
            assert_eq!(document.version, Some(log().first_version()));
            row_count += 1;
            Ok(())
        });
        visited.unwrap();
        assert_eq!((row_count, state.state.dedup.windows().len()), (ROWS, 0));
    }
    #[test]
    fn documents_beyond_the_memory_limit_are_refused() {
        let definition = definition();
        let base = log().begins(&definition, Timestamp::from_micros(1_000));
        let mut loaded =
            LoadedPartition::new(std::slice::from_ref(&definition), base, 3, 8 * MIB).unwrap();
        let refused = (0..ROWS).step_by(512).find_map(|first| {
            let changes = (first..first + 512).map(|number| put(number, number + 1)).collect();
            loaded.add(entry(changes, &definition)).err()
        });
        assert_eq!(refused.map(|error| error.code()), Some(ErrorCode::LimitExceeded));
    }
}
