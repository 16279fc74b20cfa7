//! The embedded index: the documents of one store that a process reads from its own memory.
//!
//! It knows definitions, keys and rows. It has never heard of a log, a socket or a clock: whoever
//! writes brings what the fold answered, whoever reads brings the time.
//!
//! # Who writes
//!
//! One [`PartitionWriter`] per partition; there is no second handle, and all its methods that
//! change something take `&mut self`. Writers of different partitions share no memory. For one
//! entry the writer
//!
//! 1. stores the documents: each record is written to new memory, then one slot is swung to it,
//!    never changed in place; when all documents are dropped, the new ones go to a new *table*,
//!    which nobody sees yet;
//! 2. publishes the table's root, in the *space* that readers come to through the header, then the
//!    schema version, then the partition time, each with release;
//! 3. publishes the status (position, time, version, counts) as one consistent set;
//! 4. only then retires a table that was dropped.
//!
//! # Who reads
//!
//! Any number of threads, through a [`View`] per call. A read loads, each with acquire or stronger,
//! in the opposite order: phase, partition time, schema version, space, root, directory, slot,
//! record. So
//!
//! - a status that names a position is true of every later read: the documents of that position
//!   were stored before it was published;
//! - a reader that sees the new schema version also sees the new documents. One that saw the old
//!   version and then finds a new row takes the row's own version. Either way the document is what
//!   it was before the entry or what it is after, never a new row seen through an old definition;
//! - a document that an entry both drops and writes again is found in the old table or in the new
//!   one, for the root is one word;
//! - a search that began before a bucket group was split, or before a table ended, goes on in the
//!   old memory, which stays as it was until the view ends;
//! - time: a document counts as absent from the moment that it expires, by the later of the
//!   caller's clock and the partition time. Its memory goes later, at some entry.
//!
//! No reader takes a lock or waits: every retry means that a writer got further. No reader writes a
//! line that another reader uses: the guard of a view and the counts of reads each lie on a line of
//! the thread's own. (Of an [`Image`] a reader sets the bit of a block that it is the first to come
//! to, once; where that block is damaged it mends it, behind a lock, or waits for who does.) A view
//! that is held delays the reclaim of old records, and nothing else.
//!
//! # Who shares
//!
//! A partition may lie in files that other processes read too (`live`). Then no reader holds a
//! guard that its writer knows of; each copies what it finds and believes the copy if nothing was
//! used again meanwhile. A partition of another version of the store may name records that lie in
//! the files of the version before, which keeps those as they are. All else is as above.
//!
//! # What a read promises
//!
//! Each document is whole: whatever is read of one [`RowRef`], one `get_document` or one row of a
//! gathered matrix is of one moment between two entries. Two documents, also of one call, may be of
//! different moments. The decision behind this interface is
//! `tools/decisions/0003-index-interface.md`.

mod batch;
mod budget;
mod counters;
mod gather;
mod generation;
mod handle;
mod header;
mod image;
mod index;
mod key;
mod lines;
mod live;
mod lookup;
mod memory;
mod number;
mod reclaim;
mod row_ref;
mod scan;
#[cfg(forebay_shuttle)]
#[doc(hidden)]
pub mod schedule;
#[cfg(not(forebay_shuttle))]
mod schedule;
mod schemas;
mod storage;
mod table;
mod view;
mod writer;

pub use batch::{KeyAnswer, PackedValues};
pub use budget::MemoryUse;
pub use counters::ReadCounts;
pub use gather::{Conversion, GatherColumns, GatherField, GatherOut, GatherPlan};
pub use handle::FieldHandle;
pub use header::{Following, Held, PartitionPhase, Progress};
pub use image::{Image, ImageAbout, ImageFile, ImageSink, MappedFile};
pub use index::{Index, IndexMetrics, PartitionStatus};
pub use key::{DocumentKey, KeyList, PackedKeys};
#[doc(hidden)]
pub use lines::MemoryLines;
pub use live::{Beginning, LiveDirectory, Resumed};
pub use number::{Element, FieldScalar};
pub use row_ref::{FieldRead, RowRef};
pub use scan::{Scan, ScannedDocument};
pub use schemas::SchemaSet;
pub use view::{Admission, CopyOut, KeyStatus, ReadAt, View};
pub use writer::{PartitionWriter, Upkeep};
