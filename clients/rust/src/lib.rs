//! Forebay's Rust client: write once through a durable log, and read in the process that needs the
//! data.
//!
//! A [`Reader`] holds a live copy of a store in this process and answers from its own memory. A
//! [`Client`] writes to stores and administers them over gRPC. The client numbers each write, so
//! that the write happens once, however often the client sends it: over lost answers, restarts of
//! the writer and manual retries.
//!
//! ```no_run
//! use forebay::{Client, ClientOptions, FieldType, KeyType, ScalarType, StoreSpec};
//!
//! #[tokio::main]
//! async fn main() -> forebay::Result<()> {
//!     let client = Client::connect("127.0.0.1:4400", ClientOptions::default()).await?;
//!     let spec = StoreSpec::documents("users", KeyType::String, 8)
//!         .field("age", FieldType::Scalar(ScalarType::Int64))
//!         .field("visits", FieldType::Scalar(ScalarType::Int64));
//!     let users = client.create_store(&spec).await?;
//!
//!     let written = users.upsert("u1").set("age", 41).increment("visits", 1).send().await?;
//!     println!("in the log; a reader that has applied {:?} sees it", written.token);
//!     Ok(())
//! }
//! ```
//!
//! # Guarantees of a write
//!
//! * An answer means that the write is in the log, with the quorum or disk that the log requires.
//! * A passed deadline means that the outcome is unknown: `UnknownOutcome`, never "failed". The
//!   [`WriteError`] holds the write; [`PendingWrite::retry`] settles the same write.
//! * [`Store::batch`] sends many changes at once; changes of one partition are atomic and in order.
//! * [`Store::write_stream`] sends without waiting for each answer, and preserves the order of each
//!   partition over every failure.
//!
//! Events of a stream are inserted the same way, and [`Store::select`] finds the retained events.
//!
//! Errors are [`Error`]: one code table for all languages, and a message that says what to do next.

mod admin;
mod administer;
mod batch;
mod client;
mod connect;
mod dead_letters;
mod draft;
mod memory;
mod options;
mod ordered;
mod outcome;
mod pending;
mod plan;
mod reader;
mod request_stream;
mod select;
mod sequence;
mod settle;
mod store;
mod stream;
mod together;
mod write;

pub use batch::Batch;
pub use client::Client;
pub use dead_letters::DeadLetterPage;
pub use memory::{InMemoryReader, Row};
pub use options::{ClientOptions, ClientParts, StreamOptions};
pub use ordered::{OrderedDocument, OrderedReads, OrderedScan, OrderedStream};
pub use outcome::{BatchOutcome, WriteError, WriteOutcome, WriteResult};
pub use pending::PendingWrite;
pub use reader::Reader;
pub use select::{Select, Selected, SelectedColumn, SelectedEvent};
pub use store::Store;
pub use stream::{Acknowledgement, StreamSummary, WriteStream};
pub use write::Write;

pub use forebay_core::clock::{Clock, SystemClock, Timestamp};
pub use forebay_core::dead_letter::DeadLetter;
pub use forebay_core::entropy::{Entropy, SystemEntropy};
pub use forebay_core::id::{DocumentVersion, FieldId, Offset, PartitionId, SchemaVersion, StoreId};
pub use forebay_core::key::{KeyType, KeyValue};
pub use forebay_core::row::{Document, FieldCell, Presence};
pub use forebay_core::schema::{
    Alteration, ColumnIndex, ColumnRules, Definition, Field, FieldSpec, StoreOptions, StoreSpec,
    Stream, StreamSpec,
};
pub use forebay_core::value::{FieldType, ScalarType, Value, VectorType};
pub use forebay_core::{Error, ErrorCode, Result};
pub use forebay_index::{
    Conversion, CopyOut, DocumentKey, Element, FieldHandle, FieldRead, FieldScalar, GatherColumns,
    GatherField, GatherOut, GatherPlan, KeyAnswer, KeyList, KeyStatus, PackedKeys, PackedValues,
    RowRef, Scan, ScannedDocument, View,
};
pub use forebay_reader::{
    CatchUp, CheckpointCounts, CheckpointOptions, Counts, Difference, Fetching, Forced,
    OnSchemaChange, OnSkipped, PartitionFilter, PartitionStatus, Phase, Read, ReaderMetrics,
    ReaderOptions, ReaderStatus, Rebuilding, Skipped, Verified,
};
pub use forebay_snapshot::SnapshotStore;
pub use forebay_wire::token::Token;

/// The generated client of the writer service.
type Rpc = forebay_wire::v1::writer_client::WriterClient<tonic::transport::Channel>;

/// Compiles the README's programs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
