//! What Forebay's processes say to each other and what its logs hold: the generated protobuf
//! messages, the conversions between them and `forebay-core`, entry frames and tokens.
//!
//! This is the only (de)serialization boundary: no other crate knows how a change, an error or a
//! token looks as bytes. Conversions from the domain are total. Conversions to it refuse, with a
//! [`forebay_core::Error`], what cannot be; none panics on any bytes. Where a message holds what a
//! newer build may have written and this one does not know, the code is `UpgradeNeeded`.
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
pub mod document;
pub mod entry;
pub mod error;
pub mod outcome;
mod refusal;
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
