//! The engine in this process: each write is an entry through the fold and into a shard, each read
//! a row from the shard. A shard has no log: the change log before it makes writes durable.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_bench_micro::clock::nanos;
use forebay_bench_micro::latency::Latency;
use forebay_bench_micro::server::scratch;
use forebay_core::catalog::SchemaAt;
use forebay_core::change::{Change, ClientBatch, Entry, EntryBody, FieldChange, FieldOp, Verb};
use forebay_core::clock::Timestamp;
use forebay_core::fold::{PartitionState, Record, Schemas};
use forebay_core::id::{
    ClientId, FieldId, LogId, PartitionCount, PartitionId, PartitionRef, SchemaVersion, Sequence,
    StoreId,
};
use forebay_core::key::{Key, KeyType};
use forebay_core::key_order::KeyOrder;
use forebay_core::row::Row;
use forebay_core::schema::StoreSpec;
use forebay_core::state_rows::FollowState;
use forebay_core::value::Value;
use forebay_core::{Error, Result};
use forebay_shard::{Resources, ShardDirectory, ShardWriter};
use tempfile::TempDir;

use super::data;
use super::job::{Job, Side};

/// Memory of all shards, as a node has by default.
const MEMORY_BYTES: usize = 256 << 20;

/// A shard for each size of values.
pub struct Engine {
    shards: BTreeMap<usize, RefCell<Shard>>,
    _folder: TempDir,
}

struct Shard {
    writer: ShardWriter,
    state: PartitionState,
    schema: OneSchema,
    value: FieldId,
    sequence: u64,
}

struct OneSchema(Arc<SchemaAt>);

impl Schemas for OneSchema {
    fn at(&self, version: SchemaVersion) -> Option<Arc<SchemaAt>> {
        (version == self.0.definition.version).then(|| Arc::clone(&self.0))
    }
}

impl Engine {
    /// Opens empty shards.
    ///
    /// # Errors
    /// Fails if the disk fails.
    pub fn open(values: &[usize]) -> std::result::Result<Self, String> {
        let folder = scratch()?;
        let error_text = |error: Error| error.to_string();
        let resources = Resources::new(MEMORY_BYTES).map_err(error_text)?;
        let directory = ShardDirectory::new(folder.path(), resources);
        let shard = |(place, value_bytes): (usize, &usize)| {
            let shard = Shard::open(&directory, StoreId(place as u64 + 1)).map_err(error_text)?;
            Ok((*value_bytes, RefCell::new(shard)))
        };
        let shards = values.iter().enumerate().map(shard);
        Ok(Self { shards: shards.collect::<std::result::Result<_, String>>()?, _folder: folder })
    }
}

impl Side for Engine {
    fn run(&self, job: &Job) -> std::result::Result<Latency, String> {
        let shard = self.shards.get(&job.value_bytes).ok_or("no such shard")?;
        let (mut shard, mut latency) = (shard.borrow_mut(), Latency::new()?);
        for operation in job.operations_of(0) {
            let document = job.document(operation);
            let (key, began) = (data::key(document), nanos());
            if job.order.is_write {
                let put_result = shard.put(&key, data::value(document, job.value_bytes));
                put_result.map_err(|error| error.to_string())?;
            } else {
                shard.get(&key, |value| job.check(document, value))?;
            }
            latency.record(nanos() - began);
        }
        Ok(latency)
    }
}

impl Shard {
    fn open(directory: &ShardDirectory, store: StoreId) -> Result<Self> {
        let definition =
            StoreSpec::key_value("simple", KeyType::String).partitions(1).define(store)?;
        let at = PartitionRef { store, partition: PartitionId(0) };
        let writer = directory.create(at, KeyOrder::of(&definition))?;
        let value = definition.fields[0].id;
        let schema = OneSchema(SchemaAt::of(definition));
        let state = PartitionState::new(at, PartitionCount(1));
        let mut shard = Self { writer, state, schema, value, sequence: 0 };
        shard.apply(SchemaVersion(0), EntryBody::LogHeader)?;
        Ok(shard)
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        self.sequence += 1;
        let op = FieldOp::Set(Some(Value::Bytes(value.to_vec())));
        let change = Change {
            sequence: Sequence(self.sequence),
            key: Key::plain(key.as_bytes())?,
            verb: Verb::Put,
            fields: vec![FieldChange { field: self.value, op, ttl_us: None }],
            condition: None,
            ttl_us: None,
        };
        let batch = ClientBatch { client: ClientId(1), changes: vec![change] };
        self.apply(self.schema.0.definition.version, EntryBody::Changes(vec![batch]))
    }

    fn apply(&mut self, schema_version: SchemaVersion, body: EntryBody) -> Result<()> {
        let entry = Entry::original(LogId(1), schema_version, body);
        let offset = self.state.offset_applied;
        let append_time = Timestamp::from_micros(offset.0 as i64);
        let record = Record { offset, append_time, entry: Ok(entry) };
        let applied = self
            .state
            .apply(record, &self.writer, &self.schema)
            .map_err(|error| Error::internal(format!("{error:?}")))?;
        let append_time = Some(append_time);
        let follow_state = FollowState { append_time, is_served: true, copy: 1, opened: None };
        self.writer.apply(&applied, &self.state, follow_state)
    }

    fn get<T>(
        &self,
        key: &str,
        visit: impl FnOnce(Option<&[u8]>) -> std::result::Result<T, String>,
    ) -> std::result::Result<T, String> {
        let error_text = |error: Error| error.to_string();
        let key = Key::plain(key.as_bytes()).map_err(error_text)?;
        let Some(bytes) = self.writer.shard().row(key.as_bytes()).map_err(error_text)? else {
            return visit(None);
        };
        let layout = &self.schema.0.layout;
        let row = Row::new(&bytes, layout).map_err(error_text)?;
        let slot = layout.slot(self.value).ok_or("a store without values")?;
        visit(Some(row.bytes(slot).map_err(error_text)?))
    }
}
