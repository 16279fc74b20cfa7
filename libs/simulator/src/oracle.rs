//! The check at the end of a run: every reader equals the naive model of the log that it has
//! applied.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay::ErrorCode;
use forebay::schema::Definition;
use forebay::writes::Token;
use forebay_core::clock::Clock;
use forebay_core::id::{Offset, PartitionCount, PartitionId, PartitionRef, SchemaVersion, StoreId};
use forebay_core::key::{Key, KeyValue};
use forebay_log::{ChangeLog, LogRecord, ReadLimit};
use forebay_reader::Reader;
use forebay_testkit::model::{Model, ModelDocument};
use forebay_wire::entry::decode_entry;

use super::expected_state::Fields;
use super::readers::{await_ready, read_all};
use super::store::{PARTITIONS, STORE};
use super::workload::{WorkloadState, lock};

/// Wait for a reader to apply a token at the end, after all faults.
const TOKEN_WAIT: Duration = Duration::from_secs(60);
/// Wait for a reader to rebuild a replica.
const REBUILT_WITHIN: Duration = Duration::from_secs(120);
const READ: ReadLimit = ReadLimit { bytes_max: 1 << 20, wait_max: Duration::ZERO };

/// Waits until these readers have applied everything acknowledged, then compares them with the
/// lines of all keys and with the model.
///
/// # Errors
/// Returns the first difference.
pub(crate) async fn check(shared: &WorkloadState, readers: &[Reader]) -> Result<(), String> {
    let text = |error: forebay::Error| error.to_string();
    let token = lock(&shared.token).clone().ok_or("nothing was written")?;
    let admin = shared.world.client().map_err(text)?;
    let newest = admin.describe_store(STORE, None).await.map_err(text)?;
    let mut definitions = Vec::new();
    for version in 1..newest.version.0 {
        let version = Some(SchemaVersion(version));
        definitions.push(admin.describe_store(STORE, version).await.map_err(text)?);
    }
    definitions.push(newest);
    for reader in readers {
        caught_up(shared, reader, &token).await?;
    }
    for partition in PartitionCount(PARTITIONS).partitions() {
        let records = records(shared, token.store, partition).await?;
        check_partition(shared, readers, &definitions, partition, &records)?;
    }
    Ok(())
}

/// Reads all documents; retries if a damaged part of a replica is found by this read.
async fn read_whole(reader: &Reader) -> forebay_core::Result<BTreeMap<i64, Fields>> {
    let deadline = tokio::time::Instant::now() + REBUILT_WITHIN;
    loop {
        match read_all(reader) {
            Err(error)
                if error.code() == ErrorCode::Unavailable
                    && tokio::time::Instant::now() < deadline =>
            {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            read => return read,
        }
    }
}

async fn caught_up(shared: &WorkloadState, reader: &Reader, token: &Token) -> Result<(), String> {
    await_ready(&shared.world, reader).await.map_err(|error| error.to_string())?;
    reader.await_token(token, TOKEN_WAIT).await.map_err(|error| error.to_string())?;
    let found = read_whole(reader).await.map_err(|error| error.to_string())?;
    let followed_partitions: Vec<_> =
        reader.status().partitions.iter().map(|p| p.partition).collect();
    let follows = |key| {
        reader
            .partition_of(KeyValue::Int64(key))
            .is_ok_and(|place| followed_partitions.contains(&place))
    };
    lock(&shared.expected).check_all(&found, follows, shared.world.moment())
}

/// Returns all records of a partition in the node's log.
async fn records(
    shared: &WorkloadState,
    store: StoreId,
    partition: PartitionId,
) -> Result<Vec<LogRecord>, String> {
    let log = shared.world.log().ok_or("no node runs at the end")?;
    let at = PartitionRef { store, partition };
    let mut records = Vec::<LogRecord>::new();
    let mut from = Offset(0);
    loop {
        let read = log.read(at, from, READ).await.map_err(|error| error.to_string())?;
        let Some(last) = read.records.last() else { return Ok(records) };
        from = last.offset.next();
        records.extend(read.records);
    }
}

/// Compares each reader with the model of exactly the records that it has applied.
fn check_partition(
    shared: &WorkloadState,
    readers: &[Reader],
    definitions: &[Definition],
    partition: PartitionId,
    records: &[LogRecord],
) -> Result<(), String> {
    let applied = |reader: &Reader| {
        let statuses = reader.status().partitions;
        let status = statuses.into_iter().find(|status| status.partition == partition);
        status.map(|status| status.offset_applied)
    };
    let mut readers_by_offset: Vec<_> =
        readers.iter().filter_map(|reader| Some((applied(reader)?, reader))).collect();
    readers_by_offset.sort_by_key(|(offset, _)| *offset);
    let at = PartitionRef { store: definitions[0].store, partition };
    let mut model = Model::new(at, PartitionCount(PARTITIONS));
    definitions.iter().for_each(|definition| model.define(definition.clone()));
    let mut records = records.iter().peekable();
    for (applied, reader) in readers_by_offset {
        while let Some(record) = records.next_if(|record| record.offset < applied) {
            // A record that is no entry changes nothing.
            if let Ok(entry) = decode_entry(&record.entry) {
                model.apply(record.offset, record.append_time, &entry);
            }
        }
        equals(shared, reader, &model, partition)?;
    }
    Ok(())
}

fn equals(
    shared: &WorkloadState,
    reader: &Reader,
    model: &Model,
    partition: PartitionId,
) -> Result<(), String> {
    let now = shared.world.clock.now();
    let text = |error: forebay::Error| error.to_string();
    let expected: BTreeMap<i64, ModelDocument> = model
        .documents()
        .keys()
        .filter_map(|key| Some((number(key)?, model.get(key, now)?)))
        .collect();
    let mut keys = read_all(reader).map_err(text)?.into_keys().collect::<Vec<_>>();
    keys.extend(expected.keys());
    for key in keys {
        if reader.partition_of(KeyValue::Int64(key)).map_err(text)? != partition {
            continue;
        }
        let read = reader.get_document(KeyValue::Int64(key));
        let document = read.map_err(text)?.as_ref().map(ModelDocument::from);
        if document.as_ref() != expected.get(&key) {
            let expected = expected.get(&key);
            return Err(format!("key {key}: a reader has {document:?}, the model {expected:?}"));
        }
    }
    Ok(())
}

fn number(key: &Key) -> Option<i64> {
    Some(i64::from_le_bytes(key.as_bytes().try_into().ok()?))
}
