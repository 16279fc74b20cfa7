//! The embedded index: the documents of one store that a process reads from its own memory.
//!
//! The index works on definitions, keys and rows, and uses no log, no socket and no clock: the
//! writer passes in the results of the fold, and each reader passes in the time.
//!
//! # Writers
//!
//! Each partition has one [`PartitionWriter`]. There is no second handle, and every method that
//! changes something takes `&mut self`. Writers of different partitions share no memory. For one
//! entry the writer
//!
//! 1. stores the documents: it writes each record to new memory, then switches one slot to the
//!    record, and never changes a record in place; if the entry drops all documents, the new
//!    documents go to a new *table* that no reader sees yet;
//! 2. publishes the table's root, in the *space* that readers reach through the header, then the
//!    schema version, then the partition time, each with release;
//! 3. publishes the status (position, time, version, counts) as one consistent set;
//! 4. retires a dropped table, only after step 3.
//!
//! # Readers
//!
//! Any number of threads read, through one [`View`] per call. A read loads, each with acquire or
//! stronger, in the opposite order: phase, partition time, schema version, space, root, directory,
//! slot, record. These properties follow:
//!
//! - A status that names a position is true of every later read, because the writer stored the
//!   documents of that position before it published the status.
//! - A reader that sees the new schema version also sees the new documents. A reader that saw the
//!   old version and then finds a new row uses the row's own version. Either way the document is in
//!   its state before the entry or in its state after the entry; a reader never interprets a new
//!   row by an old definition.
//! - A reader finds a document that an entry both drops and rewrites in the old table or in the new
//!   table, because the root is one word.
//! - A search that began before a bucket group was split, or before a table ended, continues in the
//!   old memory, which stays unchanged until the view ends.
//! - A document counts as absent from its expiry on, by the later of the caller's clock and the
//!   partition time. A later entry reclaims the document's memory.
//!
//! Readers take no lock and do not wait: every retry means that a writer made progress. No reader
//! writes a cache line that another reader uses: the guard of a view and the counts of reads are
//! each on a line of the thread's own. Images are the exception: the first reader of a block of an
//! [`Image`] sets the block's bit, once. If the block is damaged, this reader repairs it under a
//! lock, and other readers of the block wait for the repair. A view that is held delays the reclaim
//! of old records, and nothing else.
//!
//! # Sharing between processes and versions
//!
//! A partition may be in files that other processes read too (`shared_copy`). Readers then hold no
//! guard that the partition's writer knows of. Each reader copies the record that it finds, and
//! uses the copy only if no memory was reused since the read began. A partition of another version
//! of the store may refer to records in the files of the previous version; the previous version
//! then keeps those records unchanged. Everything else is as above.
//!
//! # Layers
//!
//! Each layer imports only from itself and from the layers above it in this list. The imports
//! between the files have no circle.
//!
//! - *Data*: `key`, `handle`, `number`, `row_ref`, `memory_account`, `counters`, `schedule`. Plain
//!   data that replicas of every storage share is in `replica_state` and `schema_set` of
//!   `forebay_core`.
//! - *Words*: `header_words`, the status that a partition's writer publishes, and its words.
//! - *Memory*: `memory::geometry`, then `image` without `image::write`, then `memory`.
//! - *Records*: `table` up to `table::directory`, then `space` and `reclaim`, then the rest of
//!   `table`, and `image::write`.
//! - *Shared copies*: `shared_copy` up to `shared_copy::spaces`, then `header`, by which readers
//!   reach a partition.
//! - *Partitions*: `resources`, `generation`, `writer_state`, `shared_copy::takeover`.
//! - *Calls*: `inner` (the context of all calls, with the partitions), `writer`, `view`,
//!   `lookup`, `get`, `batch`, `gather`, `scan`, `index`.
//! - *Benchmarks*: `cache_line_probe`.
//!
//! `sharing` has parts in the layers from *Memory* to *Partitions*.
//!
//! # Read guarantees
//!
//! Each document is whole: the results of one [`RowRef`], one `get_document` or one row of a
//! gathered matrix belong to one moment between two entries. Two documents, even of one call, may
//! belong to different moments. The decision behind this interface is
//! `tools/decisions/0003-give-each-index-partition-one-writer-and-each-call-one-view.md`.

mod batch;
mod cache_line_probe;
mod counters;
mod gather;
mod generation;
mod get;
mod handle;
mod header;
mod header_words;
mod image;
mod index;
mod inner;
mod key;
mod lookup;
mod memory;
mod memory_account;
mod number;
mod reclaim;
mod resources;
mod row_ref;
mod scan;
#[cfg(forebay_shuttle)]
#[doc(hidden)]
pub mod schedule;
#[cfg(not(forebay_shuttle))]
mod schedule;
mod shared_copy;
mod sharing;
mod space;
mod table;
mod view;
mod writer;
mod writer_state;

pub use batch::{KeyAnswer, PackedValues};
#[doc(hidden)]
pub use cache_line_probe::CacheLineProbe;
pub use counters::ReadCounts;
pub use gather::{Conversion, GatherColumns, GatherField, GatherOut, GatherPlan};
pub use get::CopyOut;
pub use handle::FieldHandle;
pub use image::{Image, ImageFile, ImageMetadata, ImageSink, MappedFile};
pub use index::{Index, IndexMetrics, PartitionStatus};
pub use key::{DocumentKey, KeyList, PackedKeys};
pub use memory::MaintenanceTask;
pub use memory_account::MemoryUse;
pub use number::{Element, FieldScalar};
pub use row_ref::{FieldRead, RowRef};
pub use scan::{Scan, ScannedDocument};
pub use shared_copy::{InitialSource, SharedCopyDirectory};
pub use view::{KeyStatus, ReadAdmission, ReadAt, View};
pub use writer::PartitionWriter;
