//! What Forebay's tests share. Nothing that ships depends on it.

pub mod model;
#[cfg(feature = "sim")]
pub mod sim;
pub mod vectors;
