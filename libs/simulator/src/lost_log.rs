//! A log that is lost and created again under its readers: no reader continues from the old one,
//! tokens of the old log are refused as lost, and all readers show later writes.

use std::time::Duration;

use forebay::schema::KeyValue;
use forebay::writes::{Token, WriteOutcome};
use forebay::{ErrorCode, Store};
use forebay_core::id::PartitionId;

use super::acknowledgement::send_until_acknowledged;
use super::expected_state::Fields;
use super::oracle;
use super::store::STORE;
use super::workload::{KEYS, WorkloadState, lock};

const WRITES: i64 = 6;
const TOKEN_WAIT: Duration = Duration::from_secs(30);

/// Loses the log of one partition, and checks the reaction of readers and clients.
///
/// # Errors
/// Returns the broken rule.
pub(crate) async fn run(shared: &WorkloadState) -> Result<(), String> {
    let text = |error: forebay::Error| error.to_string();
    let world = &shared.world;
    let old = lock(&shared.token).clone().ok_or("nothing was written")?;
    // Choose a partition that all readers follow.
    let lost = PartitionId(2 * world.draw(2) as u32);
    world.stop().await;
    world.lose_log(old.store, lost).map_err(|error| error.to_string())?;
    world.note(format!("the log of partition {lost} is lost"));
    world.start().await.map_err(text)?;
    let any_reader = lock(&shared.readers)[0].reader.clone();
    let is_lost = |key: i64| any_reader.partition_of(KeyValue::Int64(key)) == Ok(lost);
    lock(&shared.expected).forget(is_lost);
    let mut kept = old.clone();
    kept.positions.remove(&lost);
    *lock(&shared.token) = Some(kept);
    let client = world.client().map_err(text)?;
    let store = client.store(STORE).await.map_err(text)?;
    let keys = (0..).filter(|key| is_lost(*key)).take(WRITES as usize);
    for key in keys.collect::<Vec<_>>() {
        write(shared, &store, key).await?;
    }
    lock(&shared.readers).iter_mut().for_each(super::readers::SimReader::forget);
    let readers: Vec<_> =
        lock(&shared.readers).iter().map(|reader| reader.reader.clone()).collect();
    oracle::check(shared, &readers).await.map_err(|what| format!("after a lost log: {what}"))?;
    for reader in &readers {
        expect_lost(&old, reader, lost).await?;
    }
    world.trace.fired("log lost, token lost", 1);
    Ok(())
}

async fn expect_lost(
    old: &Token,
    reader: &forebay_reader::Reader,
    lost: PartitionId,
) -> Result<(), String> {
    let mut of_lost = Token::new(old.store);
    of_lost.positions.extend(old.positions.get(&lost).map(|at| (lost, *at)));
    if of_lost.positions.is_empty() {
        return Ok(());
    }
    match reader.await_token(&of_lost, TOKEN_WAIT).await {
        Err(error) if error.code() == ErrorCode::TokenLost => Ok(()),
        other => Err(format!("a token of a lost log is answered {other:?}")),
    }
}

async fn write(shared: &WorkloadState, store: &Store, key: i64) -> Result<(), String> {
    let revision = 1_000_000 + key % KEYS as i64;
    shared.begin(key, Some(Fields { revision, total: 1, ..Fields::default() }), None);
    let write = store.upsert(key).set("revision", revision).increment("total", 1);
    let outcome: WriteOutcome =
        send_until_acknowledged(&shared.world, || write.clone().send()).await?;
    shared.acknowledged(&[key], &outcome.token)
}
