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
    let lost_partition = PartitionId(2 * world.draw(2) as u32);
    world.stop().await;
    world.lose_log(old.store, lost_partition).map_err(|error| error.to_string())?;
    world.note(format!("the log of partition {lost_partition} is lost"));
    world.start().await.map_err(text)?;
    let any_reader = lock(&shared.readers)[0].reader.clone();
    let is_lost = |key: i64| any_reader.partition_of(KeyValue::Int64(key)) == Ok(lost_partition);
    lock(&shared.expected).forget(is_lost);
    let mut remaining_token = old.clone();
    remaining_token.positions.remove(&lost_partition);
    *lock(&shared.token) = Some(remaining_token);
    let client = world.client().map_err(text)?;
    let store = client.store(STORE).await.map_err(text)?;
    let keys = (0..).filter(|key| is_lost(*key)).take(WRITES as usize);
    for key in keys.collect::<Vec<_>>() {
        write(shared, &store, key).await?;
    }
    lock(&shared.readers).iter_mut().for_each(super::readers::SimReader::forget);
    let readers: Vec<_> =
        lock(&shared.readers).iter().map(|reader| reader.reader.clone()).collect();
    oracle::check(shared, &readers)
        .await
        .map_err(|violation| format!("after a lost log: {violation}"))?;
    for reader in &readers {
        expect_lost(&old, reader, lost_partition).await?;
    }
    world.trace.count_event("log lost, token lost", 1);
    Ok(())
}

async fn expect_lost(
    old: &Token,
    reader: &forebay_reader::Reader,
    lost_partition: PartitionId,
) -> Result<(), String> {
    let mut of_lost = Token::new(old.store);
    of_lost.positions.extend(old.positions.get(&lost_partition).map(|at| (lost_partition, *at)));
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
