//! Tokens: round trips, merges and refusals.

use std::collections::BTreeMap;

use forebay_core::ErrorCode;
use forebay_core::id::{Epoch, LogId, Offset, PartitionId, Position, StoreId};
use forebay_core::limits::PARTITIONS_MAX;
use forebay_wire::token::Token;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::strategies;

fn refusal_of(bytes: &[u8]) -> ErrorCode {
    Token::decode(bytes).unwrap_err().code()
}

fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

fn at(offset: u64) -> Position {
    Position { epoch: Epoch(0), offset: Offset(offset), index_in_entry: 0 }
}

fn token(store: u64, positions: &[(u32, u64, u64)]) -> Token {
    let positions = positions
        .iter()
        .map(|(partition, log, offset)| (PartitionId(*partition), (LogId(*log), at(*offset))))
        .collect();
    Token { store: StoreId(store), positions }
}

proptest! {
    #[test]
    fn tokens_round_trip(token in strategies::token()) {
        let bytes = token.encode();
        prop_assert_eq!(bytes.len(), 13 + 26 * token.positions.len());
        prop_assert_eq!(Token::decode(&bytes), Ok(token));
    }

    #[test]
    fn arbitrary_bytes_are_no_token(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        prop_assert_eq!(refusal_of(&bytes), ErrorCode::InvalidArgument);
        if let Err(error) = Token::decode(&seal(bytes)) {
            let code = error.code();
            prop_assert!(matches!(code, ErrorCode::InvalidArgument | ErrorCode::UpgradeNeeded));
        }
    }

    #[test]
    fn garbled_token_is_refused(
        token in strategies::token(),
        at in any::<Index>(),
        bit in 0u8..8,
    ) {
        let mut bytes = token.encode().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert_eq!(refusal_of(&bytes), ErrorCode::InvalidArgument);
        prop_assert_eq!(refusal_of(&bytes[..at]), ErrorCode::InvalidArgument);
    }

    /// Compares a merge with a naive model: the larger position of each partition.
    #[test]
    fn merge_takes_the_larger_position(
        first_positions in prop::collection::btree_map(0u32..6, strategies::position(), 0..6),
        second_positions in prop::collection::btree_map(0u32..6, strategies::position(), 0..6),
    ) {
        let token_of = |positions: &BTreeMap<u32, Position>| Token {
            store: StoreId(1),
            positions: positions.iter().map(|(p, at)| (PartitionId(*p), (LogId(9), *at))).collect(),
        };
        let mut merged = token_of(&first_positions);
        merged.merge(&token_of(&second_positions)).unwrap();
        let mut model = first_positions.clone();
        for (partition, position) in &second_positions {
            let largest = model.entry(*partition).or_insert(*position);
            *largest = (*largest).max(*position);
        }
        prop_assert_eq!(&merged, &token_of(&model));
        let mut other_way = token_of(&second_positions);
        other_way.merge(&token_of(&first_positions)).unwrap();
        prop_assert_eq!(other_way, merged);
    }
}

#[test]
fn tokens_of_two_stores_or_two_logs_do_not_merge() {
    let mut token_a = token(1, &[(0, 5, 10), (1, 5, 3)]);
    let before = token_a.clone();
    let error = token_a.merge(&token(2, &[(0, 5, 11)])).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    let error = token_a.merge(&token(1, &[(0, 5, 11), (1, 6, 1)])).unwrap_err();
    assert_eq!(error.code(), ErrorCode::TokenLost);
    assert_eq!(error.context().partition, Some(PartitionId(1)));
    assert_eq!(token_a, before);
    let error = token_a.advance(PartitionId(0), LogId(4), at(99)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::TokenLost);
    token_a.advance(PartitionId(0), LogId(5), at(9)).unwrap();
    assert_eq!(token_a, before);
}

#[test]
fn newer_token_asks_for_an_upgrade() {
    let mut bytes = vec![2];
    bytes.extend_from_slice(&[0; 50]);
    assert_eq!(refusal_of(&seal(bytes)), ErrorCode::UpgradeNeeded);
    assert_eq!(refusal_of(&seal(vec![0; 9])), ErrorCode::InvalidArgument);
    assert_eq!(refusal_of(&[]), ErrorCode::InvalidArgument);
    assert_eq!(refusal_of(&seal(Vec::new())), ErrorCode::InvalidArgument);
}

#[test]
fn forged_token_is_refused_with_advice() {
    let good = token(1, &[(3, 5, 10), (4, 5, 11)]).encode();
    let (header, positions) = good[..good.len() - 4].split_at(9);
    let (first, second) = positions.split_at(26);
    let forged_tokens = [
        [header, second, first].concat(),
        [header, first, first].concat(),
        [header, first, &second[..25]].concat(),
        [header, &PARTITIONS_MAX.to_le_bytes(), &first[4..]].concat(),
    ];
    assert!(Token::decode(&seal([header, first, second].concat())).is_ok());
    for bytes in forged_tokens {
        let error = Token::decode(&seal(bytes)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
        assert!(error.message().contains("pass its bytes on unchanged"));
    }
}

#[test]
fn token_may_cover_every_partition() {
    let all: Vec<_> = (0..PARTITIONS_MAX).map(|partition| (partition, 1, 2)).collect();
    let token = token(1, &all);
    assert_eq!(Token::decode(&token.encode()), Ok(token));
}
