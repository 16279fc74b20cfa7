//! Feature views: their declaration and application, and their requirements on the stores around
//! them.

mod apply;
mod condition;
mod declaration;
mod emission;
mod rules;

pub use self::apply::Applied;
pub(crate) use self::rules::{check_alterations, check_delete, check_next, check_write};
