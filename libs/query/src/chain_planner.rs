//! Planning of chains of `||`, AND and OR. The parser nests a chain as deeply as it is long, and
//! the planner repeats work for each level: the operands of `||` become the arguments of one call,
//! and a chain of conditions becomes a tree of few levels.

use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, ScalarUDF};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::functions::{Concat, JOINED};

/// Planner of chains of `||`, AND and OR.
#[derive(Debug)]
pub(crate) struct ChainPlanner;

impl ExprPlanner for ChainPlanner {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        _: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        Ok(match expr.op {
            BinaryOperator::StringConcat => {
                // The planner formats the whole expression below each call, and does so for each
                // call: the calls of a chain become one.
                let mut parts = parts_of(expr.left);
                parts.extend(parts_of(expr.right));
                PlannerResult::Planned(ScalarUDF::from(Concat::new(false)).call(parts))
            }
            BinaryOperator::And => {
                PlannerResult::Planned(level(expr.left, Operator::And, expr.right))
            }
            BinaryOperator::Or => {
                PlannerResult::Planned(level(expr.left, Operator::Or, expr.right))
            }
            _ => PlannerResult::Original(expr),
        })
    }
}

/// Adds a condition to a chain of AND or OR. The planner repeats its work on all that is below a
/// condition for each condition, so the chain becomes a tree of few levels, of the same order.
fn level(chain: Expr, op: Operator, mut last: Expr) -> Expr {
    let mut rest = chain;
    loop {
        match rest {
            Expr::BinaryExpr(BinaryExpr { left, op: outer_op, right })
                if outer_op == op && levels(&right, op) <= levels(&last, op) =>
            {
                last = Expr::BinaryExpr(BinaryExpr::new(right, op, Box::new(last)));
                rest = *left;
            }
            rest => return Expr::BinaryExpr(BinaryExpr::new(Box::new(rest), op, Box::new(last))),
        }
    }
}

/// Returns the number of levels of an operator below an expression.
fn levels(mut expression: &Expr, op: Operator) -> usize {
    let mut levels = 0;
    while let Expr::BinaryExpr(BinaryExpr { left, op: inner_op, .. }) = expression
        && *inner_op == op
    {
        (expression, levels) = (left, levels + 1);
    }
    levels
}

/// Returns the strings that an expression joins by `||`, or the expression itself.
fn parts_of(expression: Expr) -> Vec<Expr> {
    match expression {
        Expr::ScalarFunction(call) if call.func.name() == JOINED => call.args,
        other => vec![other],
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::col;

    use super::*;

    /// Appends the columns below an expression, each with its depth, from left to right.
    fn collect<'e>(expression: &'e Expr, depth: usize, found: &mut Vec<(usize, &'e str)>) {
        match expression {
            Expr::BinaryExpr(BinaryExpr { left, right, .. }) => {
                collect(left, depth + 1, found);
                collect(right, depth + 1, found);
            }
            Expr::Column(column) => found.push((depth, column.name.as_str())),
            other => panic!("{other} is no column"),
        }
    }

    #[test]
    fn chain_of_conditions_becomes_a_shallow_tree_in_the_same_order() {
        let names: Vec<_> = (0..1_000).map(|number| format!("c{number}")).collect();
        let conditions = names.iter().map(|name| col(name.as_str()));
        let chain = conditions.reduce(|chain, last| level(chain, Operator::And, last)).unwrap();
        let mut found = Vec::new();
        collect(&chain, 0, &mut found);
        assert!(found.iter().map(|(_, name)| *name).eq(names.iter()), "{found:?}");
        let deepest = found.iter().map(|(depth, _)| *depth).max();
        assert!(deepest <= Some(20), "{deepest:?}");
    }
}
