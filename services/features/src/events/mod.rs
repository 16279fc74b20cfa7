//! The retained events of streams: stored by their positions in the logs; found by key, by indexed
//! columns and by event time; deleted once their retention has passed.

mod event_shards;
mod keys;
mod retention;
mod select;
pub mod service;
mod stored_event;

pub(crate) use self::event_shards::{EventRows, EventShards};
pub(crate) use self::retention::{DerivedOffsets, run_retention};
pub(crate) use self::select::{EventLookup, SelectedEvent, Selection};
