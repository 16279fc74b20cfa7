//! Ends the planning of a statement at its deadline. The planner does not yield while it works, so
//! a rule that changes nothing stands before each of its rules and checks the time.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use forebay_core::{Error, ErrorCode};
use tokio::time::Instant;

use crate::error::external;

/// Name of the rule in errors.
const NAME: &str = "deadline";

/// Returns the error of a statement that takes too long.
pub(crate) fn too_long() -> Error {
    let message = "the statement took too long; read fewer rows, or split the statement";
    Error::new(ErrorCode::DeadlineExceeded, message)
}

/// Adds a check of the deadline before each rule of the planner.
pub(crate) fn with_deadline(state: SessionStateBuilder, deadline: Instant) -> SessionStateBuilder {
    let check = Arc::new(Deadline(deadline));
    let analyzer = Analyzer::new().rules.into_iter().flat_map(|rule| [check.clone() as _, rule]);
    let optimizer = Optimizer::new().rules.into_iter().flat_map(|rule| [check.clone() as _, rule]);
    let physical = PhysicalOptimizer::new().rules.into_iter();
    let physical = physical.flat_map(|rule| [check.clone() as _, rule]);
    state
        .with_analyzer_rules(analyzer.collect())
        .with_optimizer_rules(optimizer.collect())
        .with_physical_optimizer_rules(physical.collect())
}

#[derive(Debug)]
struct Deadline(Instant);

impl Deadline {
    fn check(&self) -> Result<()> {
        if Instant::now() < self.0 { Ok(()) } else { Err(external(too_long())) }
    }
}

impl AnalyzerRule for Deadline {
    fn name(&self) -> &str {
        NAME
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        self.check().map(|()| plan)
    }
}

impl OptimizerRule for Deadline {
    fn name(&self) -> &str {
        NAME
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        self.check().map(|()| Transformed::no(plan))
    }
}

impl PhysicalOptimizerRule for Deadline {
    fn name(&self) -> &str {
        NAME
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.check().map(|()| plan)
    }

    fn schema_check(&self) -> bool {
        true
    }
}
