//! Workaround for statements that the newest DataFusion release answers wrongly. If two consecutive
//! projections compute columns of the same names, the optimizer may take one projection for the
//! other and drop it, although both are needed (apache/datafusion, pull request 24686, is in no
//! release yet). Such statements are planned without this optimizer rule, and therefore read all
//! columns of their tables.

use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan};

/// Name of the optimizer rule.
const RULE: &str = "optimize_projections";

/// Returns the state for planning a statement, without the rule if necessary.
pub(crate) fn without_faulty_rule(state: SessionState, plan: &LogicalPlan) -> Result<SessionState> {
    if !has_equal_projections(plan, &mut Vec::new())? {
        return Ok(state);
    }
    let rules = state.optimizers().iter().filter(|rule| rule.name() != RULE);
    let rules = rules.map(Arc::clone).collect();
    Ok(SessionStateBuilder::new_from_existing(state).with_optimizer_rules(rules).build())
}

/// Returns whether a projection computes columns of the same names as a projection above it.
fn has_equal_projections(plan: &LogicalPlan, names_above: &mut Vec<Vec<String>>) -> Result<bool> {
    let names = computed_names(plan);
    if names.as_ref().is_some_and(|names| names_above.contains(names)) {
        return Ok(true);
    }
    let depth = names_above.len();
    names_above.extend(names);
    let mut found = false;
    for input in plan.inputs() {
        found = found || has_equal_projections(input, names_above)?;
    }
    plan.apply_subqueries(|subquery| {
        found = found || has_equal_projections(subquery, names_above)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    names_above.truncate(depth);
    Ok(found)
}

/// Returns the column names of a projection that computes columns.
fn computed_names(plan: &LogicalPlan) -> Option<Vec<String>> {
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
