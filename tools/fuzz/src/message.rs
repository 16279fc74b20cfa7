//! Messages: any protobuf is refused, or is a domain value that round-trips through its own
//! message.

use forebay_core::catalog::ControlRecord;
use forebay_core::change::{Change, ClientBatch, Condition, FieldChange, Source};
use forebay_core::dead_letter::DeadLetter;
use forebay_core::id::Position;
use forebay_core::key::Key;
use forebay_core::row::Document;
use forebay_core::schema::{Alteration, Definition, Field, FieldSpec, StoreSpec};
use forebay_core::value::{FieldType, Value};
use forebay_core::{ErrorCode, Result};
use forebay_wire::dead_letter::Cursor;
use forebay_wire::document::{ScanCursor, StoreCursor, document_message, document_of};
use forebay_wire::outcome::ChangeResult;
use forebay_wire::status::{error_of_status, status_of_error, write_error_of_status};
use forebay_wire::v1;
use forebay_wire::value::{nullable_value, nullable_value_message};
use prost::Message;
use tonic::{Code, Status};

/// A function that decodes an input.
pub type Decode = fn(&[u8]);

/// The messages that a service or a client receives from outside, by their numbers in an input.
pub const MESSAGES: [(&str, Decode); 19] = [
    ("value", |bytes| back(bytes, Value::try_from, |of| v1::Value::from(of))),
    ("nullable-value", |bytes| back(bytes, nullable_value, |v| nullable_value_message(v.as_ref()))),
    ("field-type", |bytes| back(bytes, FieldType::try_from, |of| v1::FieldType::from(*of))),
    ("field-spec", |bytes| back(bytes, FieldSpec::try_from, |of| v1::FieldSpec::from(of))),
    ("store-spec", |bytes| back(bytes, StoreSpec::try_from, |of| v1::StoreSpec::from(of))),
    ("field", |bytes| back(bytes, Field::try_from, |of| v1::Field::from(of))),
    ("definition", |bytes| back(bytes, Definition::try_from, |of| v1::Definition::from(of))),
    ("alteration", |bytes| back(bytes, Alteration::try_from, |of| v1::Alteration::from(of))),
    ("field-change", |bytes| back(bytes, FieldChange::try_from, |of| v1::FieldChange::from(of))),
    ("condition", |bytes| back(bytes, Condition::try_from, |of| v1::Condition::from(*of))),
    ("change", |bytes| back(bytes, Change::try_from, |of| v1::Change::from(of))),
    ("client-batch", |bytes| back(bytes, ClientBatch::try_from, |of| v1::ClientBatch::from(of))),
    ("position", |bytes| back(bytes, Position::try_from, |of| v1::Position::from(*of))),
    ("source", |bytes| back(bytes, Source::try_from, |of| v1::Source::from(*of))),
    ("control-record", |bytes| {
        back(bytes, ControlRecord::try_from, |of| v1::ControlRecord::from(of))
    }),
    ("change-result", |bytes| back(bytes, ChangeResult::try_from, |of| v1::ChangeResult::from(of))),
    ("dead-letter", |bytes| back(bytes, DeadLetter::try_from, |of| v1::DeadLetter::from(of))),
    ("details", details),
    ("document", |bytes| {
        let give = |(key, document): &(Key, Document)| {
            document_message(key.as_bytes(), document, |_| true)
        };
        back(bytes, document_of, give);
    }),
];

/// Decodes the input: message number u8, then the message's bytes.
///
/// # Panics
/// Panics if an accepted value does not round-trip through its own message.
pub fn message_decode(input: &[u8]) {
    let Some((which, rest)) = input.split_first() else { return };
    let (_, decode) = MESSAGES[usize::from(*which) % MESSAGES.len()];
    decode(rest);
}

/// Decodes a message, encodes the value, and decodes the result again.
fn back<D, W: Message + Default>(
    bytes: &[u8],
    take: impl Fn(W) -> Result<D>,
    give: impl Fn(&D) -> W,
) {
    let Ok(message) = W::decode(bytes) else { return };
    match take(message) {
        Ok(taken) => {
            let given = give(&taken).encode_to_vec();
            let message = W::decode(given.as_slice()).expect("an encoded value is a message");
            let again = take(message).expect("an encoded value can be converted back");
            // Compared by bytes, because a NaN differs from itself.
            assert_eq!(give(&again).encode_to_vec(), given);
        }
        Err(error) => {
            let codes = [
                ErrorCode::InvalidArgument,
                ErrorCode::LimitExceeded,
                ErrorCode::Corrupt,
                ErrorCode::UpgradeNeeded,
            ];
            assert!(codes.contains(&error.code()), "{error}");
        }
    }
}

/// Decodes the details of a status, and the cursors of listings and scans, all of which are a
/// peer's bytes.
fn details(bytes: &[u8]) {
    for code in [Code::Unavailable, Code::Internal, Code::InvalidArgument] {
        let status = Status::with_details(code, "a message", bytes.to_vec().into());
        for error in [error_of_status(&status), write_error_of_status(&status)] {
            assert_eq!(error_of_status(&status_of_error(&error)), error);
        }
    }
    match Cursor::decode(bytes) {
        Ok(cursor) => assert_eq!(Cursor::decode(&cursor.encode()), Ok(cursor)),
        Err(error) => assert_eq!(error.code(), ErrorCode::InvalidArgument),
    }
    match ScanCursor::decode(bytes) {
        Ok(cursor) => assert_eq!(ScanCursor::decode(&cursor.encode()), Ok(cursor)),
        Err(error) => assert_eq!(error.code(), ErrorCode::InvalidArgument),
    }
    match StoreCursor::decode(bytes) {
        Ok(cursor) => assert_eq!(StoreCursor::decode(&cursor.encode()), Ok(cursor)),
        Err(error) => assert_eq!(error.code(), ErrorCode::InvalidArgument),
    }
}
