//! Golden vectors of a shard's keys and state: their generator, and the check that this build
//! agrees with the file. `UPDATE_VECTORS=1` rewrites the file.

use std::collections::BTreeMap;

use forebay_core::Error;
use forebay_core::clock::Timestamp;
use forebay_core::fold::{FoldEffects, PartitionState};
use forebay_core::id::{
    ClientId, DocumentVersion, Epoch, LogId, Offset, PartitionCount, PartitionId, PartitionRef,
    Position, SchemaVersion, Sequence, StoreId,
};
use forebay_core::key::{Key, KeyType};
use forebay_core::key_order::KeyOrder;
use forebay_core::limits::OUTCOMES_KEPT;
use forebay_core::outcome::{ConditionOutcome, Outcome};
use forebay_core::state_rows::{FollowState, HEAD, Head, SkippedRecord, write_changed};
use forebay_testkit::vectors::{ShardKeyVector, ShardRowVector, ShardVectors, check, read};

const COMMAND: &str = "cargo test --workspace --test domain shard_vectors";

fn key(name: &str, order: KeyOrder, partition: &[u8], primary: &[u8]) -> ShardKeyVector {
    let identity = match order.partition {
        Some(_) => Key::partitioned(partition, primary),
        None => Key::plain(primary),
    };
    let identity = identity.unwrap();
    ShardKeyVector {
        name: name.to_owned(),
        key_type: order.primary.name().to_owned(),
        partition_key_type: order.partition.map(|key_type| key_type.name().to_owned()),
        identity_hex: hex::encode(identity.as_bytes()),
        stored_hex: hex::encode(order.stored(identity.as_bytes()).unwrap()),
    }
}

fn keys() -> Vec<ShardKeyVector> {
    let order = |primary, partition| KeyOrder { primary, partition };
    let mut keys = Vec::new();
    let plain = order(KeyType::Bytes, None);
    for (name, primary) in [
        ("empty", &b""[..]),
        ("a zero byte", b"\0"),
        ("text", b"user-1"),
        ("longer text", b"user-10"),
        ("not UTF-8", b"\xff\xfe"),
    ] {
        keys.push(key(name, plain, b"", primary));
    }
    for number in [i64::MIN, -1, 0, 1, 256, i64::MAX] {
        let name = format!("int64 {number}");
        keys.push(key(&name, order(KeyType::Int64, None), b"", &number.to_le_bytes()));
    }
    let behind_text = order(KeyType::String, Some(KeyType::String));
    for (name, partition, primary) in [
        ("both empty", &b""[..], &b""[..]),
        ("a partition key of a zero character", b"\0", b"z"),
        ("a tenant", b"tenant", b"user-1"),
        ("another user of the tenant", b"tenant", b"user-2"),
        ("a tenant with a zero character behind", b"tenant\0", b"user-1"),
        ("a tenant of a longer name", b"tenant-1", b"user-1"),
    ] {
        keys.push(key(name, behind_text, partition, primary));
    }
    let behind_number = order(KeyType::Bytes, Some(KeyType::Int64));
    for number in [-2_i64, 7] {
        let name = format!("behind int64 {number}");
        keys.push(key(&name, behind_number, &number.to_le_bytes(), b"user-1"));
    }
    keys
}

fn position(offset: u64) -> Position {
    Position { epoch: Epoch(1), offset: Offset(offset), index_in_entry: 3 }
}

fn state() -> PartitionState {
    let at = PartitionRef { store: StoreId(1 << 63 | 7), partition: PartitionId(2) };
    let mut state = PartitionState::new(at, PartitionCount(8));
    state.log_id = Some(LogId(0xf00d));
    state.position = position(41);
    state.offset_applied = Offset(42);
    state.partition_time = Timestamp::from_micros(1_700_000_000_000_000);
    state.schema_version = SchemaVersion(5);
    state.drop_all_count = 1;
    let time = state.partition_time;
    for sequence in [3, 4, 7, 1_030] {
        state.dedup.record(ClientId(0xabc), Sequence(sequence), time);
    }
    state.sources.insert(PartitionId(6), position(40));
    state
}

fn skip_error() -> Error {
    Error::corrupt("the entry's checksum is wrong")
}

fn rows() -> Vec<ShardRowVector> {
    let outcome = |sequence, condition| {
        let (client, sequence) = (ClientId(0xabc), Sequence(sequence));
        Outcome { client, sequence, position: position(41), condition }
    };
    let outcomes = vec![
        outcome(7, ConditionOutcome::Applied),
        outcome(8, ConditionOutcome::ConditionFailed(None)),
        outcome(9, ConditionOutcome::ConditionFailed(Some(DocumentVersion(77)))),
        outcome(10, ConditionOutcome::TooLarge),
    ];
    let clients = vec![ClientId(0xabc)];
    let effects = FoldEffects {
        clients,
        outcomes,
        sources: vec![PartitionId(6)],
        skipped: Some(skip_error()),
        ..FoldEffects::default()
    };
    let follow_state = FollowState {
        append_time: Some(Timestamp::from_micros(1_700_000_000_000_001)),
        opened: Some((Offset(3), Offset(40))),
        copy: 2,
        is_served: true,
    };
    let names = [
        "window",
        "source",
        "applied",
        "not met",
        "not met, versioned",
        "too large",
        "skipped",
        "head",
    ];
    let mut rows = Vec::new();
    write_changed(&effects, &state(), follow_state, 5, |key, row| {
        let name = names.get(rows.len()).copied().unwrap_or("one row too many");
        let (key_hex, row_hex) = (hex::encode(key), hex::encode(row.unwrap()));
        rows.push(ShardRowVector { name: name.to_owned(), key_hex, row_hex });
    });
    let bare = Head::of(
        &PartitionState::new(state().partition, PartitionCount(8)),
        FollowState::default(),
        0,
    );
    rows.push(ShardRowVector {
        name: "head of nothing".to_owned(),
        key_hex: hex::encode(HEAD),
        row_hex: hex::encode(bare.encode()),
    });
    rows
}

fn vectors() -> ShardVectors {
    ShardVectors {
        spec: "proto/spec/shard.md".to_owned(),
        description: "Identity bytes of documents and the keys that a shard stores them under, of \
            each kind of store in the shard's order; and rows of a shard's state."
            .to_owned(),
        keys: keys(),
        state: rows(),
    }
}

#[test]
fn shard_rows_match_the_golden_vectors() {
    check("shard.json", &vectors(), COMMAND);
    let vectors: ShardVectors = read("shard.json");
    for vector in &vectors.keys {
        let partition = vector.partition_key_type.as_deref().and_then(KeyType::named);
        let order = KeyOrder { primary: KeyType::named(&vector.key_type).unwrap(), partition };
        let identity = order.identity(&hex::decode(&vector.stored_hex).unwrap()).unwrap();
        assert_eq!(hex::encode(identity.as_bytes()), vector.identity_hex, "{}", vector.name);
    }
    let has_same_types = |one: &ShardKeyVector, other: &ShardKeyVector| {
        (&one.key_type, &one.partition_key_type) == (&other.key_type, &other.partition_key_type)
    };
    for pair in vectors.keys.windows(2).filter(|pair| has_same_types(&pair[0], &pair[1])) {
        assert!(pair[0].stored_hex < pair[1].stored_hex, "{} is in order", pair[1].name);
    }
    let head = vectors.state.iter().find(|row| row.name == "head").unwrap();
    let mut restored_state =
        Head::decode(&hex::decode(&head.row_hex).unwrap()).unwrap().into_restored();
    for row in &vectors.state {
        restored_state
            .take_row(&hex::decode(&row.key_hex).unwrap(), &hex::decode(&row.row_hex).unwrap())
            .unwrap();
    }
    assert_eq!(restored_state.state, state());
    assert_eq!(restored_state.next_outcome, 9);
    let outcome_of = |sequence| {
        restored_state.outcomes.get(ClientId(0xabc), Sequence(sequence)).unwrap().condition
    };
    assert_eq!(outcome_of(9), ConditionOutcome::ConditionFailed(Some(DocumentVersion(77))));
    assert_eq!(outcome_of(10), ConditionOutcome::TooLarge);
    let skipped = SkippedRecord { log_id: Some(LogId(0xf00d)), reason: skip_error() };
    assert_eq!(restored_state.skipped, BTreeMap::from([(Offset(41), skipped)]));
}

#[test]
fn oldest_outcomes_are_deleted() {
    let (client, sequence) = (ClientId(1), Sequence(1));
    let outcome =
        Outcome { client, sequence, position: position(1), condition: ConditionOutcome::Applied };
    let effects = FoldEffects { outcomes: vec![outcome; 2], ..FoldEffects::default() };
    let mut deleted_keys = Vec::new();
    let next = OUTCOMES_KEPT as u64 - 1;
    let next = write_changed(&effects, &state(), FollowState::default(), next, |key, row| {
        deleted_keys.extend(row.is_none().then(|| key.to_vec()));
    });
    assert_eq!(
        (next, deleted_keys),
        (OUTCOMES_KEPT as u64 + 1, vec![b"so\0\0\0\0\0\0\0\0".to_vec()])
    );
}
