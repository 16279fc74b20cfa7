//! The shard of one partition: the documents of the partition in key order, in RocksDB, with a
//! position that is updated together with them.
//!
//! A shard has no log of its own, because it is built from the partition's log. A single write
//! batch contains everything that an entry changes. Therefore a kill leaves exactly the state of
//! some prefix of the log (`tools/docs/src/semantics.md`, section 3). Format:
//! `proto/spec/shard.md`.
//!
//! ```
//! use forebay_core::fold::{FoldEffects, PartitionState};
//! use forebay_core::id::{LogId, PartitionCount, PartitionId, PartitionRef, StoreId};
//! use forebay_core::key::{Key, KeyType};
//! use forebay_core::key_order::{Direction, KeyOrder};
//! use forebay_core::schema::StoreSpec;
//! use forebay_core::state_rows::FollowState;
//! use forebay_shard::{Resources, ShardDirectory};
//!
//! let folder = tempfile::tempdir().unwrap();
//! let spec = StoreSpec::documents("users", KeyType::String).partitions(1);
//! let definition = spec.define(StoreId(7))?;
//! let order = KeyOrder::of(&definition);
//! let directory = ShardDirectory::new(folder.path(), Resources::new(64 << 20)?);
//! let at = PartitionRef { store: StoreId(7), partition: PartitionId(0) };
//! let mut writer = directory.create(at, order)?;
//!
//! let mut state = PartitionState::new(at, PartitionCount(1));
//! state.log_id = Some(LogId(1));
//! let write = (Key::plain(b"ada")?, Some(b"a row".to_vec()));
//! let applied = FoldEffects { writes: vec![write], ..FoldEffects::default() };
//! writer.apply(&applied, &state, FollowState::default())?;
//!
//! let view = writer.shard().view()?;
//! let mut scan = view.scan(&order.all(), Direction::Forward);
//! assert_eq!(scan.next()?.unwrap().0, Key::plain(b"ada")?);
//! assert!(scan.next()?.is_none());
//! # Ok::<(), forebay_core::Error>(())
//! ```

mod bulk_load;
mod copy;
mod directory;
mod engine;
mod error;
mod event_position;
mod events;
mod expiry;
mod open_shard_count;
mod resources;
mod shard;
mod view;
mod writer;

pub use bulk_load::BulkLoad;
pub use copy::{
    Export, ExportFile, ExportMode, ExportRows, Import, PartBlock, PartEnd, PartSource, RangeDone,
};
pub use directory::ShardDirectory;
pub use engine::ROCKSDB_VERSION;
pub use event_position::{EVENT_POSITION_BYTES, EventPosition};
pub use events::EventScan;
pub use resources::Resources;
pub use shard::Shard;
pub use view::{OwnedView, Scan, View};
pub use writer::ShardWriter;
