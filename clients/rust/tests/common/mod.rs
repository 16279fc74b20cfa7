//! Code that the test binaries of this crate share.

mod node;

use std::time::Duration;

use forebay::schema::FieldType;

pub use node::TestNode;

pub const INT64: FieldType = FieldType::INT64;
pub const STRING: FieldType = FieldType::STRING;
/// Longest wait for something that must happen; a test that waits so long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// A deadline that passes soon, for something that must not happen.
pub const SOON: Duration = Duration::from_millis(300);
