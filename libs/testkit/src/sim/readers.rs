//! The simulated readers: what they show, as the checker's states.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay::{Token, Value};
use forebay_core::clock::Clock;
use forebay_core::id::FieldId;
use forebay_core::key::{KeyType, KeyValue};
use forebay_core::row::Document;
use forebay_core::schema::StoreSpec;
use forebay_core::value::{FieldType, ScalarType};
use forebay_core::{Error, Result};
use forebay_reader::{Read, Reader};

use super::expected::{Fields, Shown, State};
use super::world::{STORE, World};

const REVISION: FieldId = FieldId(1);
const TOTAL: FieldId = FieldId(2);
const NOTE: FieldId = FieldId(3);
const PARTITIONS: u32 = 3;
const SCAN_BATCH: usize = 64;
/// Wait of a read after a token; the caller asks again when a fault takes longer.
const TOKEN_WAIT: Duration = Duration::from_secs(5);

/// The store that all of a simulation is about.
pub(crate) fn spec() -> StoreSpec {
    StoreSpec::documents(STORE, KeyType::Int64, PARTITIONS)
        .field("revision", FieldType::Scalar(ScalarType::Int64))
        .field("total", FieldType::Scalar(ScalarType::Int64))
        .field("note", FieldType::Scalar(ScalarType::String))
}

/// A reader, and what it has shown so far.
pub(crate) struct SimReader {
    pub(crate) reader: Reader,
    pub(crate) shown: Shown,
}

impl SimReader {
    pub(crate) async fn open(world: &World) -> Result<Self> {
        Ok(Self { reader: world.reader().await?, shown: Shown::default() })
    }
}

/// What is applied, without waiting.
pub(crate) fn read_local(reader: &Reader, key: i64) -> Result<State> {
    let document = reader.read_local(None, |view| view.get_document(KeyValue::Int64(key)))?;
    document.map(|document| fields(&document)).transpose()
}

/// What is applied once the token is.
pub(crate) async fn read_after(reader: &Reader, key: i64, token: &Token) -> Result<State> {
    let partition = reader.partition_of(KeyValue::Int64(key))?;
    let read = Read::after_token(token.clone(), TOKEN_WAIT);
    let document =
        reader.read(&read, &[partition], |view| view.get_document(KeyValue::Int64(key))).await?;
    document.map(|document| fields(&document)).transpose()
}

/// Every document.
pub(crate) fn read_all(reader: &Reader) -> Result<BTreeMap<i64, Fields>> {
    let mut found = BTreeMap::new();
    let mut scan = reader.scan();
    loop {
        let visited = reader.scan_next(&mut scan, None, SCAN_BATCH, |scanned| {
            let KeyValue::Int64(key) = scanned.key.primary() else {
                return Err(Error::internal("a key of another type"));
            };
            found.insert(key, fields(&scanned.row.document()?)?);
            Ok(())
        })?;
        if visited == 0 {
            return Ok(found);
        }
    }
}

fn fields(document: &Document) -> Result<Fields> {
    let number = |field| match document.value(field) {
        None => Ok(0),
        Some(Value::Int64(number)) => Ok(*number),
        Some(other) => Err(Error::internal(format!("a number came back as {other:?}"))),
    };
    let note = match document.value(NOTE) {
        Some(Value::String(note)) => Some(note.clone()),
        _ => None,
    };
    Ok(Fields { revision: number(REVISION)?, total: number(TOTAL)?, note })
}

/// Waits until a reader is ready, however often a fault gets in between; bounded all the same.
pub(crate) async fn await_ready(world: &World, reader: &Reader) -> Result<()> {
    let mut last = None;
    for _ in 0..20 {
        match reader.await_ready(Duration::from_secs(30)).await {
            Ok(()) => return Ok(()),
            Err(error) => last = Some(error),
        }
    }
    let now = world.clock.now();
    Err(last.unwrap_or_else(|| Error::internal(format!("not ready at {now}"))))
}
