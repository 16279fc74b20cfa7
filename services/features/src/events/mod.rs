//! The retained events of streams: stored by their positions in the logs; found by key, by indexed
//! columns and by event time; deleted once their retention has passed.

mod kept;
mod keys;
mod retain;
mod select;
pub mod service;
mod stored;

pub(crate) use self::kept::EventShards;
pub(crate) use self::retain::{DerivedUpTo, retain};
pub(crate) use self::select::{By, Selected, Selection};
