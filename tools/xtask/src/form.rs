//! How much of its work a stage does.

/// The two forms of a stage that takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The part that `make test` runs, within the stage's budget.
    Bounded,
    /// All of it, for `make nightly`.
    Long,
}
