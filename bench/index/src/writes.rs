//! Writes: the cost of applying, its effect on concurrent reads, and the memory of documents.
//!
//! The index runs here without a reader around it: its one writer receives the fold's effects, as
//! the reader's tail passes them.

mod concurrent_reads;
mod growth;
mod overhead;

use std::sync::Arc;

use bytes::Bytes;
use forebay_bench_report::{Contender, Values};
use forebay_core::Result;
use forebay_core::catalog::SchemaAt;
use forebay_core::change::{Change, ClientBatch, Entry, EntryBody, FieldChange, FieldOp, Verb};
use forebay_core::clock::Timestamp;
use forebay_core::fold::{FoldEffects, PartitionState, Record};
use forebay_core::id::{
    ClientId, FieldId, LogId, PartitionCount, PartitionId, PartitionRef, SchemaVersion, Sequence,
    StoreId,
};
use forebay_core::key::{Key, KeyType};
use forebay_core::replica_state::Phase;
use forebay_core::row::Document;
use forebay_core::schema::StoreSpec;
use forebay_core::value::{FieldType, Value};
use forebay_index::{FieldHandle, Index, PartitionWriter, ReadAt};
use forebay_wire::entry::{decode_entry, encode_entry};

pub use concurrent_reads::{ConcurrentReads, READER_CORE};
pub use growth::Growth;
pub use overhead::bytes_per_entry;

use crate::cache_line::LoadChain;
use crate::clock::nanos;
use crate::data::Data;

/// Changes of one entry.
pub const ENTRY: u64 = 500;
/// Entries of one round.
const ENTRIES: u64 = 400;
/// Number of times that each document is replaced before updates are measured.
const REPLACED: u64 = 2;
const VALUE: FieldId = FieldId(1);
const LOG: LogId = LogId(7);

/// An index with one partition, its writer, and the fold's state.
pub struct Copy {
    /// Data that the index was filled with.
    pub data: Data,
    /// Index that readers use.
    pub index: Index,
    schema: Arc<SchemaAt>,
    writer: PartitionWriter,
    state: PartitionState,
    sequence: u64,
    line: LoadChain,
}

/// The form of stored documents, beyond key and value.
#[derive(Clone, Copy, Debug, Default)]
pub struct DocumentForm {
    /// Whether documents have an expiry.
    pub expires: bool,
    /// Whether documents have a version.
    pub version: bool,
}

impl Copy {
    /// Creates an empty index.
    ///
    /// # Errors
    /// Fails if the system gives no addresses.
    pub fn empty(data: Data) -> Result<Self> {
        let (store, partition) = (StoreId(1), PartitionId(0));
        let definition =
            StoreSpec::key_value("write", KeyType::Bytes).partitions(1).define(store)?;
        let schema = SchemaAt::of(definition);
        let index = Index::new([schema.clone()], [partition], 7)?;
        let mut writer = index.writer(partition)?;
        writer.set_phase(Phase::Serving);
        let count = PartitionCount::new(1)?;
        let mut state = PartitionState::new(PartitionRef { store, partition }, count);
        (state.schema_version, state.log_id) = (SchemaVersion(1), Some(LOG));
        state.partition_time = Timestamp::from_micros(1);
        let line = LoadChain::default();
        Ok(Self { data, index, schema, writer, state, sequence: 1, line })
    }

    /// Creates an index with all documents.
    ///
    /// # Errors
    /// Fails if there is no memory.
    pub fn fill(data: Data) -> Result<Self> {
        let mut copy = Self::empty(data)?;
        for first in (0..data.entries).step_by(ENTRY as usize) {
            let last = data.entries.min(first + ENTRY);
            copy.take(&copy.effect(first..last, DocumentForm::default())?)?;
        }
        Ok(copy)
    }

    /// Returns the fold's effect for an entry that puts these documents.
    ///
    /// # Errors
    /// No error in practice: keys and values are within their limits.
    pub fn effect(
        &self,
        numbers: impl Iterator<Item = u64>,
        form: DocumentForm,
    ) -> Result<FoldEffects> {
        let (mut value, mut writes) = (Vec::new(), Vec::new());
        for number in numbers {
            self.data.value(number, &mut value);
            let expires = form.expires.then_some(Timestamp::from_micros(i64::MAX / 2));
            let version = form.version.then(|| self.state.position.document_version());
            let mut document = Document::new(expires, version);
            document.set(VALUE, Some(Value::Bytes(value.clone())), None);
            let key = &self.data.key(number)[..self.data.key_bytes()];
            writes.push((Key::plain(key)?, Some(document.encode(&self.schema.layout)?)));
        }
        // The order of the fold.
        writes.sort_by(|(left, _), (right, _)| left.cmp(right));
        Ok(FoldEffects { writes, ..FoldEffects::default() })
    }

    /// Applies an effect as the next entry.
    ///
    /// # Errors
    /// Fails if there is no memory.
    pub fn take(&mut self, effects: &FoldEffects) -> Result<()> {
        self.state.offset_applied = self.state.offset_applied.next();
        self.writer.apply(effects, &self.state)
    }

    /// Returns the bytes of the documents, as the index counts them.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.index.metrics().memory_bytes()
    }

    /// Returns nanoseconds of one dependent line of the memory of the documents.
    fn line(&mut self) -> std::result::Result<f64, String> {
        self.line.measure(&self.index.memory_lines().map_err(words)?)
    }

    /// Returns the handle of the values.
    ///
    /// # Errors
    /// No error in practice: the field is the store's only one.
    pub fn handle(&self) -> Result<FieldHandle> {
        self.index.field_as("value", FieldType::BYTES)
    }

    /// Returns the time of reads.
    #[must_use]
    pub fn now() -> ReadAt<'static> {
        ReadAt::new(Timestamp::from_micros(2))
    }

    /// Returns document numbers from all over the store: a chain of them.
    pub fn chain(&self, from: u64) -> impl Iterator<Item = u64> + use<> {
        let data = self.data;
        std::iter::successors(Some(from), move |number| Some(data.next(*number)))
    }

    /// Returns an entry as the log stores it, which upserts these documents.
    fn entry(&mut self, numbers: impl Iterator<Item = u64>) -> Result<Bytes> {
        let (mut value, mut changes) = (Vec::new(), Vec::new());
        for number in numbers {
            self.data.value(number, &mut value);
            let op = FieldOp::Set(Some(Value::Bytes(value.clone())));
            changes.push(Change {
                sequence: Sequence(self.sequence),
                key: Key::plain(&self.data.key(number)[..self.data.key_bytes()])?,
                verb: Verb::Upsert,
                fields: vec![FieldChange { field: VALUE, op, ttl_us: None }],
                condition: None,
                ttl_us: None,
            });
            self.sequence += 1;
        }
        let body = EntryBody::Changes(vec![ClientBatch { client: ClientId(9), changes }]);
        encode_entry(&Entry::original(LOG, SchemaVersion(1), body))
    }

    /// Replaces each document twice, unmeasured: from then on memory no longer grows, and each
    /// update frees the memory of another record.
    ///
    /// # Errors
    /// Fails if there is no memory.
    pub fn warm_up(&mut self) -> Result<()> {
        let mut numbers = self.updates(REPLACED * self.data.entries).peekable();
        while numbers.peek().is_some() {
            let effect =
                self.effect(numbers.by_ref().take(ENTRY as usize), DocumentForm::default())?;
            self.take(&effect)?;
        }
        Ok(())
    }

    /// Returns the documents of the next `count` updates.
    fn updates(&mut self, count: u64) -> impl Iterator<Item = u64> + use<> {
        let numbers = self.chain(self.data.after(0, self.sequence));
        self.sequence += count;
        numbers.take(count as usize)
    }

    /// Measures updates of existing documents: the index alone. Each effect is built right before
    /// it is applied, outside of the timed part: a reader's tail also applies fresh effects of the
    /// fold, and many effects built in advance would fall out of the caches.
    fn apply(&mut self) -> std::result::Result<Values, String> {
        let mut numbers = self.updates(ENTRIES * ENTRY);
        let mut times = Vec::with_capacity(ENTRIES as usize);
        for _ in 0..ENTRIES {
            let effect =
                self.effect(numbers.by_ref().take(ENTRY as usize), DocumentForm::default());
            let effect = effect.map_err(words)?;
            let began = nanos();
            self.take(&effect).map_err(words)?;
            times.push(nanos() - began);
        }
        self.check()?;
        let all: u64 = times.iter().sum();
        let per_update = all as f64 / (ENTRIES * ENTRY) as f64;
        Ok(vec![
            ("apply".to_owned(), per_update),
            ("apply median entry".to_owned(), crate::clock::median(times) / ENTRY as f64),
            ("apply M/s".to_owned(), 1e3 / per_update),
        ])
    }

    /// Measures the same updates from the log's bytes: decoded and checked, and then also folded
    /// and applied.
    fn apply_log(&mut self) -> std::result::Result<Values, String> {
        let mut numbers = self.chain(self.data.after(0, self.sequence));
        let mut entry = |_| self.entry(numbers.by_ref().take(ENTRY as usize));
        let entries = (0..ENTRIES).map(&mut entry).collect::<Result<Vec<_>>>().map_err(words)?;
        let began = nanos();
        for entry in &entries {
            std::hint::black_box(decode_entry(entry).map_err(words)?);
        }
        let decoded = nanos();
        for bytes in &entries {
            let (offset, append_time) = (self.state.offset_applied, self.state.partition_time);
            let record = Record { offset, append_time, entry: decode_entry(bytes) };
            let effects = self.state.apply(record, &self.writer, self.index.schemas());
            let effects = effects.map_err(|error| format!("{error:?}"))?;
            if effects.writes.is_empty() {
                return Err(format!("an entry was skipped: {:?}", effects.skipped));
            }
            self.writer.apply(&effects, &self.state).map_err(words)?;
        }
        let applied = nanos();
        self.check()?;
        let per_entry = |nanos: u64| nanos as f64 / (ENTRIES * ENTRY) as f64;
        Ok(vec![
            ("decode and check".to_owned(), per_entry(decoded - began)),
            ("decode, check and apply".to_owned(), per_entry(applied - decoded)),
            ("from the log M/s".to_owned(), 1e3 / per_entry(applied - decoded)),
        ])
    }

    /// Checks that updates create no document and lose none.
    fn check(&self) -> std::result::Result<(), String> {
        let documents = self.writer.usage().documents;
        if documents == self.data.entries {
            return Ok(());
        }
        Err(format!("{documents} documents of {}", self.data.entries))
    }
}

/// Returns the contenders of a filled index.
pub fn contenders(copy: &std::cell::RefCell<Copy>) -> Vec<Contender<'_>> {
    vec![
        Contender::new("D", || copy.borrow_mut().line()),
        Contender::several("apply", || copy.borrow_mut().apply()),
        Contender::several("from the log", || copy.borrow_mut().apply_log()),
    ]
}

fn words(error: forebay_core::Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::data::Keys;

    #[test]
    fn updates_are_applied_with_and_without_the_log() {
        let data = Data { entries: 5_000, keys: Keys::Bytes16, value_bytes: 50 };
        let copy = RefCell::new(Copy::fill(data).unwrap());
        for mut contender in contenders(&copy) {
            let values = (contender.run)().unwrap();
            assert!(values.iter().all(|(_, value)| *value > 0.0), "{values:?}");
        }
        assert!(copy.borrow().memory_bytes() > data.payload_bytes());
    }

    #[test]
    fn warm_writer_replaces_documents_without_growth() {
        let data = Data { entries: 5_000, keys: Keys::Bytes16, value_bytes: 50 };
        let mut copy = Copy::fill(data).unwrap();
        copy.warm_up().unwrap();
        assert_eq!(copy.sequence, 1 + REPLACED * data.entries);
        let warm = copy.memory_bytes();
        (0..3).for_each(|_| copy.warm_up().unwrap());
        copy.check().unwrap();
        assert!(copy.memory_bytes() < warm + data.payload_bytes() / 2);
    }
}
