//! Messages between Forebay's processes, and the content of its logs: the generated protobuf
//! messages, their conversions to and from `forebay-core`, entry frames and tokens.
//!
//! This crate is the only (de)serialization boundary: no other crate knows the bytes of a change,
//! an error or a token. Conversions from the domain are total. Conversions to the domain refuse
//! invalid messages with a [`forebay_core::Error`]; no bytes make them panic. If a message holds
//! content that only a newer build knows, the code is `UpgradeNeeded`.
//!
//! ```
//! use forebay_core::value::{FieldType, ScalarType};
//! use forebay_wire::v1;
//! let wire = v1::FieldType::from(FieldType::List(ScalarType::Int64));
//! assert_eq!(FieldType::try_from(wire)?, FieldType::List(ScalarType::Int64));
//! # Ok::<(), forebay_core::Error>(())
//! ```

pub mod change;
pub mod dead_letter;
mod decode_error;
pub mod document;
pub mod endpoint;
pub mod entry;
pub mod error;
pub mod outcome;
pub mod schema;
pub mod shard_copy;
pub mod status;
pub mod token;
pub mod value;
pub mod view;

/// The messages and services of `proto/forebay/v1`, as generated.
pub mod v1 {
    #![allow(missing_docs, clippy::all, clippy::pedantic, rustdoc::all)]
    tonic::include_proto!("forebay.v1");
}
