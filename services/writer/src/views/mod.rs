//! Feature views: their declaration and application, and their requirements on the stores around
//! them.

mod apply;
mod condition;
mod declaration;
mod documents;
mod feature;
mod materialization;
mod rules;
mod yaml;

pub use self::apply::ApplyEffect;
pub use self::documents::{ViewDocument, read_view_documents};
pub(crate) use self::rules::{check_alterations, check_delete, check_next, check_write};
