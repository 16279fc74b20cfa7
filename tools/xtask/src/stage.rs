//! A stage of `make test`, and its bounded and its long form.

use crate::suite::Suite;
use crate::workspace::Workspace;

/// Function that runs a stage.
pub type Run = fn(&Workspace) -> Result<Vec<Suite>, String>;

/// A stage of `make test`.
pub struct Stage {
    /// The name, for `--only` and the table of times.
    pub name: &'static str,
    /// Stages that must succeed first.
    pub needs: &'static [&'static str],
    /// The budget in seconds on two cores: from an empty target folder, and with nothing changed.
    pub budget_s: (u64, u64),
    /// The work of the stage, which prints its suites by [`show`](crate::suite_output::show).
    pub run: Run,
}

/// The two forms of a stage that takes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The part that `make test` runs, within the stage's budget.
    Bounded,
    /// The whole stage, for `make nightly`.
    Long,
}
