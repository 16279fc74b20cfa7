//! The retained events of streams: stored by where they stand in their logs, found by their key, by
//! the columns that have an index and by when they happened, and gone when they were retained long
//! enough.

mod kept;
mod keys;
mod retain;
mod select;
pub mod service;
mod stored;

pub(crate) use self::kept::EventShards;
pub(crate) use self::retain::{DerivedUpTo, retain};
pub(crate) use self::select::{By, Selected, Selection};
