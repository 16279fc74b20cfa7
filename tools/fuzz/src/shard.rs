//! Shards: any bytes are a stored key, a head or a row of the state in its only encoding, or are
//! refused.

use forebay_core::ErrorCode;
use forebay_core::fold::PartitionState;
use forebay_core::id::{PartitionCount, PartitionId, PartitionRef, StoreId};
use forebay_core::key::KeyType;
use forebay_core::key_order::KeyOrder;
use forebay_core::state_rows::{FollowState, HEAD, Head};

/// Returns the first byte of an input with a stored key of such a store.
pub fn mode_of_key(primary: KeyType, partition: Option<KeyType>) -> u8 {
    let number = |key_type| {
        KeyType::ALL.iter().position(|candidate| *candidate == key_type).unwrap_or_default() as u8
    };
    number(primary) + 3 * partition.map_or(0, |key_type| 1 + number(key_type))
}

/// First byte of an input with a row of the state.
pub const MODE_OF_ROW: u8 = 12;

/// Decodes the input: mode u8; below 12 a stored key of one kind of store; from 12 on key length
/// u8, key and value of a row of the state.
///
/// # Panics
/// Panics if an accepted key or head does not encode to its own bytes.
pub fn shard_rows(input: &[u8]) {
    let Some((mode, rest)) = input.split_first() else { return };
    if *mode >= MODE_OF_ROW {
        return state_row(rest);
    }
    let partition = (mode / 3).checked_sub(1).map(|number| KeyType::ALL[usize::from(number)]);
    let order = KeyOrder { primary: KeyType::ALL[usize::from(mode % 3)], partition };
    match order.identity(rest) {
        Ok(key) => assert_eq!(order.stored(key.as_bytes()).as_deref(), Ok(rest)),
        Err(error) => {
            assert!(matches!(error.code(), ErrorCode::Corrupt | ErrorCode::LimitExceeded));
        }
    }
}

fn state_row(rest: &[u8]) {
    let Some((length, rest)) = rest.split_first() else { return };
    let Some((key, row)) = rest.split_at_checked(usize::from(*length)) else { return };
    if key == HEAD {
        match Head::decode(row) {
            Ok(head) => assert_eq!(head.encode(), row),
            Err(error) => {
                assert!(matches!(error.code(), ErrorCode::Corrupt | ErrorCode::UpgradeNeeded));
            }
        }
        return;
    }
    let at = PartitionRef { store: StoreId(1), partition: PartitionId(0) };
    let state = PartitionState::new(at, PartitionCount(1));
    let mut restored = Head::of(&state, FollowState::default(), 0).into_restored();
    if let Err(error) = restored.take_row(key, row) {
        assert_eq!(error.code(), ErrorCode::Corrupt);
        assert_eq!(restored.state, state);
    }
}
