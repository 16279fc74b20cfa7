//! Forebay's Rust client: write once through a durable log, and read in the process that needs the
//! data.
//!
//! A [`Reader`] holds a full copy of a store in this process and answers from its own memory. A
//! [`Client`] writes to stores and administers them over gRPC. The client numbers each write, so
//! that the write happens once, however often the client sends it: over lost answers, restarts of
//! the writer and manual retries.
//!
//! ```no_run
//! use forebay::prelude::*;
//!
//! #[tokio::main]
//! async fn main() -> forebay::Result<()> {
//!     let client = Client::connect("127.0.0.1:7070", ClientOptions::default()).await?;
//!     let spec = StoreSpec::documents("users", KeyType::String)
//!         .partitions(8)
//!         .field("age", FieldType::INT64)
//!         .field("visits", FieldType::INT64);
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
//!   [`WriteError`](writes::WriteError) holds the write, and
//!   [`PendingWrite::retry`](writes::PendingWrite::retry) resolves the same write.
//! * [`Store::batch`] sends many changes at once; changes of one partition are atomic and in order.
//! * [`Store::write_stream`] sends without waiting for each answer, and preserves the order of each
//!   partition over every failure.
//!
//! Events of a stream are inserted the same way, and [`Store::select`] finds the retained events.
//!
//! Errors are [`Error`]: one code table for all languages, and a message that says what to do next.

mod admin;
mod batch;
mod change_spec;
mod client;
mod coalescer;
mod connection;
mod dead_letters;
mod definition_change;
mod memory;
mod memory_store;
mod options;
mod ordered_reads;
mod outcome;
mod pending_write;
mod plan;
mod reader;
mod request_stream;
mod select;
mod sequence;
mod store;
mod store_backend;
mod store_state;
mod stream;
mod write_builder;
mod write_driver;

pub use client::Client;
pub use forebay_core::{Error, ErrorCode, Result};
pub use forebay_reader::ReaderOptions;
pub use options::ClientOptions;
pub use reader::Reader;
pub use store::Store;

/// Reads: their options, keys, fields, results, batches and scans; remote reads of a store's shards
/// and selects of a stream's events.
pub mod reads {
    pub use forebay_core::row::{Document, FieldCell, Presence};
    pub use forebay_index::{
        Conversion, CopyOut, DocumentKey, Element, FieldHandle, FieldRead, FieldScalar,
        GatherColumns, GatherField, GatherOut, GatherPlan, KeyAnswer, KeyList, KeyStatus,
        PackedKeys, PackedValues, RowRef, Scan, ScannedDocument, View,
    };
    pub use forebay_reader::{
        CheckpointOptions, OnSchemaChange, PartitionFilter, ReadOptions, ReaderView,
    };
    pub use forebay_snapshot::SnapshotStore;

    pub use crate::ordered_reads::{OrderedDocument, OrderedReads, OrderedScan, OrderedStream};
    pub use crate::select::{Event, EventColumn, EventQuery, EventQueryResult};
}

/// Writes: single changes, batches and write streams, with their outcomes and errors.
pub mod writes {
    pub use forebay_wire::token::Token;

    pub use crate::batch::Batch;
    pub use crate::options::StreamOptions;
    pub use crate::outcome::{BatchOutcome, WriteOutcome, WriteResult};
    pub use crate::pending_write::{PendingWrite, WriteError};
    pub use crate::stream::{Acknowledgement, StreamSummary, WriteStream};
    pub use crate::write_builder::Write;
}

/// Definitions of stores and streams, the types of keys and fields, and ids.
pub mod schema {
    pub use forebay_core::clock::Timestamp;
    pub use forebay_core::id::{
        DocumentVersion, FieldId, Offset, PartitionId, SchemaVersion, StoreId,
    };
    pub use forebay_core::key::{KeyType, KeyValue};
    pub use forebay_core::schema::{
        Alteration, ColumnIndex, ColumnRules, Definition, Field, FieldSpec, StoreOptions,
        StoreSpec, Stream, StreamSpec,
    };
    pub use forebay_core::value::{FieldType, ScalarType, Value, VectorType};
}

/// The state of readers and stores: status, metrics, verification and dead letters.
pub mod status {
    pub use forebay_core::dead_letter::DeadLetter;
    pub use forebay_index::{MemoryUse, ReadCounts};
    pub use forebay_reader::{
        CatchUp, CheckpointCounts, Counts, DifferenceKind, PartitionStatus, Phase, ReaderMetrics,
        ReaderStatus, RebuildProgress, SnapshotDownload, Verification,
    };

    pub use crate::dead_letters::DeadLetterPage;
}

/// A reader and its store in memory, for tests of programs that read.
pub mod testing {
    pub use forebay_reader::SimulatedState;

    pub use crate::memory::{InMemoryReader, Row};
}

/// The sources of time and randomness of a client; the simulator brings its own.
pub mod environment {
    pub use forebay_core::clock::{Clock, SystemClock};
    pub use forebay_core::entropy::{Entropy, SystemEntropy};

    pub use crate::options::ClientParts;
}

/// The names that most programs use: `use forebay::prelude::*;`.
pub mod prelude {
    pub use crate::reads::{DocumentKey, ReadOptions};
    pub use crate::schema::{FieldType, KeyType, StoreSpec, Timestamp, Value};
    pub use crate::writes::WriteResult;
    pub use crate::{Client, ClientOptions, ErrorCode, Reader, ReaderOptions, Store};
}

/// Compiles the README's programs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
