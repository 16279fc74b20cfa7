//! The bounded and the long form of a stage.

/// The two forms of a stage that takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The part that `make test` runs, within the stage's budget.
    Bounded,
    /// The whole stage, for `make nightly`.
    Long,
}
