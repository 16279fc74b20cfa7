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
    ("value", |bytes| convert_back(bytes, Value::try_from, |value| v1::Value::from(value))),
    ("nullable-value", |bytes| {
        convert_back(bytes, nullable_value, |v| nullable_value_message(v.as_ref()))
    }),
    ("field-type", |bytes| {
        convert_back(bytes, FieldType::try_from, |value| v1::FieldType::from(*value))
    }),
    ("field-spec", |bytes| {
        convert_back(bytes, FieldSpec::try_from, |value| v1::FieldSpec::from(value))
    }),
    ("store-spec", |bytes| {
        convert_back(bytes, StoreSpec::try_from, |value| v1::StoreSpec::from(value))
    }),
    ("field", |bytes| convert_back(bytes, Field::try_from, |value| v1::Field::from(value))),
    ("definition", |bytes| {
        convert_back(bytes, Definition::try_from, |value| v1::Definition::from(value))
    }),
    ("alteration", |bytes| {
        convert_back(bytes, Alteration::try_from, |value| v1::Alteration::from(value))
    }),
    ("field-change", |bytes| {
        convert_back(bytes, FieldChange::try_from, |value| v1::FieldChange::from(value))
    }),
    ("condition", |bytes| {
        convert_back(bytes, Condition::try_from, |value| v1::Condition::from(*value))
    }),
    ("change", |bytes| convert_back(bytes, Change::try_from, |value| v1::Change::from(value))),
    ("client-batch", |bytes| {
        convert_back(bytes, ClientBatch::try_from, |value| v1::ClientBatch::from(value))
    }),
    ("position", |bytes| {
        convert_back(bytes, Position::try_from, |value| v1::Position::from(*value))
    }),
    ("source", |bytes| convert_back(bytes, Source::try_from, |value| v1::Source::from(*value))),
    ("control-record", |bytes| {
        convert_back(bytes, ControlRecord::try_from, |value| v1::ControlRecord::from(value))
    }),
    ("change-result", |bytes| {
        convert_back(bytes, ChangeResult::try_from, |value| v1::ChangeResult::from(value))
    }),
    ("dead-letter", |bytes| {
        convert_back(bytes, DeadLetter::try_from, |value| v1::DeadLetter::from(value))
    }),
    ("details", details),
    ("document", |bytes| {
        let give = |(key, document): &(Key, Document)| {
            document_message(key.as_bytes(), document, |_| true)
        };
        convert_back(bytes, document_of, give);
    }),
];

/// Decodes the input: message number u8, then the message's bytes.
///
/// # Panics
/// Panics if an accepted value does not round-trip through its own message.
pub fn message_decode(input: &[u8]) {
    let Some((mode, rest)) = input.split_first() else { return };
    let (_, decode) = MESSAGES[usize::from(*mode) % MESSAGES.len()];
    decode(rest);
}

/// Decodes a message, encodes the value, and decodes the result again.
fn convert_back<D, W: Message + Default>(
    bytes: &[u8],
    take: impl Fn(W) -> Result<D>,
    give: impl Fn(&D) -> W,
) {
    let Ok(message) = W::decode(bytes) else { return };
    match take(message) {
        Ok(value) => {
            let encoded = give(&value).encode_to_vec();
            let message = W::decode(encoded.as_slice()).expect("an encoded value is a message");
            let second_value = take(message).expect("an encoded value can be converted back");
            // Compared by bytes, because a NaN differs from itself.
            assert_eq!(give(&second_value).encode_to_vec(), encoded);
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
