//! Statements that the engine's newest release answers wrongly: where two projections behind each
//! other compute columns of the same names, one of them may be taken for the other and dropped,
//! though both are meant (apache/datafusion, pull request 24686, is in no release yet). They are
//! planned without the rule that does so, which reads all columns of their tables.

use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan};

/// The rule.
const RULE: &str = "optimize_projections";

/// The state to plan a statement in.
pub(crate) fn without_them(state: SessionState, plan: &LogicalPlan) -> Result<SessionState> {
    if !are_in(plan, &mut Vec::new())? {
        return Ok(state);
    }
    let rules = state.optimizers().iter().filter(|rule| rule.name() != RULE);
    let rules = rules.map(Arc::clone).collect();
    Ok(SessionStateBuilder::new_from_existing(state).with_optimizer_rules(rules).build())
}

/// Whether a projection computes columns of the same names as one above it.
fn are_in(plan: &LogicalPlan, above: &mut Vec<Vec<String>>) -> Result<bool> {
    let names = computed(plan);
    if names.as_ref().is_some_and(|names| above.contains(names)) {
        return Ok(true);
    }
    let depth = above.len();
    above.extend(names);
    let mut found = false;
    for input in plan.inputs() {
        found = found || are_in(input, above)?;
    }
    plan.apply_subqueries(|subquery| {
        found = found || are_in(subquery, above)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    above.truncate(depth);
    Ok(found)
}

/// Names of the columns of a projection that computes some.
fn computed(plan: &LogicalPlan) -> Option<Vec<String>> {
    let LogicalPlan::Projection(projection) = plan else { return None };
    let is_computed = |expr: &Expr| {
        let mut expr = expr;
        while let Expr::Alias(alias) = expr {
            expr = &alias.expr;
        }
        !matches!(expr, Expr::Column(_) | Expr::Literal(..))
    };
    let is_one = projection.expr.iter().any(is_computed);
    is_one.then(|| projection.schema.fields().iter().map(|it| it.name().clone()).collect())
}
