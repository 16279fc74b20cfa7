//! Tokens: any bytes are refused, or are a token in its only encoding.

use forebay_core::ErrorCode;
use forebay_wire::token::Token;

/// Decodes the input: mode u8, then a token; with an odd `mode` the checksum is appended.
///
/// # Panics
/// Panics if an accepted token does not encode to its own bytes.
pub fn token_decode(input: &[u8]) {
    let Some((mode, rest)) = input.split_first() else { return };
    let mut bytes = rest.to_vec();
    if mode % 2 == 1 {
        bytes.extend(crc32c::crc32c(rest).to_le_bytes());
    }
    match Token::decode(&bytes) {
        Ok(token) => {
            assert_eq!(&token.encode()[..], &bytes[..]);
            let mut merged = token.clone();
            merged.merge(&token).expect("a token merges with itself");
            assert_eq!(merged, token);
        }
        Err(error) => {
            let codes = [ErrorCode::InvalidArgument, ErrorCode::UpgradeNeeded];
            assert!(codes.contains(&error.code()), "{error}");
        }
    }
}
