//! Repartition of a store, after a push has built a version with another number of partitions:
//!
//! 1. The forwarder appends the writes since the push to the version's logs.
//! 2. Writers pause new writes until the remaining entries are forwarded.
//! 3. The version becomes live; writers and readers switch to it.
//!
//! The process that maintains the snapshots of the first new partition completes a repartition, so
//! the repartition continues if any process dies. Late appends of slow writers to the old logs are
//! forwarded for as long as a version follows the old logs; then the old logs are deleted.

mod completion;
#[cfg(test)]
mod fixture;
mod forwarder;
mod router;
mod tasks;

pub(crate) use self::forwarder::check_log_holds;
pub(crate) use self::router::forwarded_client;
pub(crate) use self::tasks::RepartitionTasks;
