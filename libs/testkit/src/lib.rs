//! What Forebay's tests share. Nothing that ships depends on it.

#[cfg(feature = "brokers")]
pub mod brokers;
pub mod model;
pub mod random;
#[cfg(feature = "sim")]
pub mod sim;
pub mod tree;
pub mod vectors;
