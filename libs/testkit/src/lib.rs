//! Shared parts of Forebay's tests. No shipped program depends on this crate.

#[cfg(feature = "brokers")]
pub mod brokers;
pub mod child;
pub mod model;
#[cfg(feature = "objects")]
pub mod object_front;
#[cfg(feature = "objects")]
pub mod object_proxy;
#[cfg(feature = "objects")]
pub mod object_servers;
#[cfg(feature = "objects")]
pub mod objects;
#[cfg(any(feature = "brokers", feature = "objects"))]
mod processes;
pub mod random;
pub mod tree;
pub mod vectors;
