//! Rejects statements before they are planned: statements that are too long, so deep that the
//! recursion over them could overflow the stack, or whose plan is too large.

use std::ops::ControlFlow;
use std::ptr;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{ObjectName, Query, Visit, Visitor};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use forebay_core::limits::{SQL_BYTES_MAX, SQL_OPERATORS_MAX, SQL_PLAN_PARTS_MAX, SQL_TABLES_MAX};
use forebay_core::{Error, Result};

use crate::error::from_engine;

/// Checks a statement before it is parsed.
///
/// # Errors
/// `LimitExceeded` if the statement is too long, or has too many operators and words;
/// `InvalidArgument` if the text is not SQL.
pub(crate) fn check(sql: &str) -> Result<()> {
    if sql.len() > SQL_BYTES_MAX {
        let (limit, actual) = (SQL_BYTES_MAX as u64, sql.len() as u64);
        return Err(Error::limit_exceeded(
            "the statement is too long; shorten the statement",
            limit,
            actual,
        ));
    }
    let tokens = Tokenizer::new(&GenericDialect {}, sql).tokenize();
    let tokens = tokens.map_err(|error| Error::invalid_argument(error.to_string()))?;
    // Lists may be long: the limit counts only tokens that nest or may nest.
    let is_flat = |token: &Token| {
        let is_between = matches!(token, Token::Whitespace(_) | Token::Comma | Token::Period);
        is_between || matches!(token, Token::Number(..) | Token::SingleQuotedString(_))
    };
    let operators = tokens.iter().filter(|token| !is_flat(token)).count();
    if operators > SQL_OPERATORS_MAX {
        let message = "the statement has too many words and operators; split it, or use IN (…)";
        let (limit, actual) = (SQL_OPERATORS_MAX as u64, operators as u64);
        return Err(Error::limit_exceeded(message, limit, actual));
    }
    Ok(())
}

/// Checks a statement before it is planned. The planner copies a named query to wherever it is
/// named: a short statement may name a query twice in a query that is named twice, and so on.
///
/// # Errors
/// `LimitExceeded` if the statement names too many tables.
pub(crate) fn check_tables(statement: &Statement) -> Result<()> {
    let Statement::Statement(statement) = statement else { return Ok(()) };
    let mut counting = TableCount::default();
    let _ = statement.visit(&mut counting);
    if counting.tables > SQL_TABLES_MAX {
        let message = "the statement names too many tables; join fewer tables, or name a query \
                       less often";
        let (limit, actual) = (SQL_TABLES_MAX as u64, counting.tables as u64);
        return Err(Error::limit_exceeded(message, limit, actual));
    }
    Ok(())
}

/// Counts the tables of a statement.
#[derive(Default)]
struct TableCount {
    /// The tables of each query around the visited place, from outside in.
    tables_around: Vec<usize>,
    /// Names of the queries that the visited WITH clauses name, and their tables.
    named_tables: Vec<(String, usize)>,
    /// The named queries that are not visited to their end yet, by their places in memory.
    unvisited_queries: Vec<(*const Query, String)>,
    /// The tables of all finished outermost queries.
    tables: usize,
}

impl Visitor for TableCount {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.tables_around.push(0);
        for named_query in query.with.iter().flat_map(|with| &with.cte_tables) {
            let name = named_query.alias.name.value.to_lowercase();
            self.unvisited_queries.push((ptr::from_ref(&*named_query.query), name));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let tables = self.tables_around.pop().unwrap_or_default();
        let place = self.unvisited_queries.iter().position(|(pointer, _)| ptr::eq(*pointer, query));
        match (place, self.tables_around.last_mut()) {
            (Some(place), _) => {
                self.named_tables.push((self.unvisited_queries.swap_remove(place).1, tables))
            }
            (None, Some(tables_around)) => *tables_around = tables_around.saturating_add(tables),
            (None, None) => self.tables = self.tables.saturating_add(tables),
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        let name = relation.to_string().replace('"', "").to_lowercase();
        let named_table =
            self.named_tables.iter().rev().find(|(table_name, _)| *table_name == name);
        let tables = named_table.map_or(1, |(_, tables)| (*tables).max(1));
        if let Some(tables_around) = self.tables_around.last_mut() {
            *tables_around = tables_around.saturating_add(tables);
        }
        ControlFlow::Continue(())
    }
}

/// Checks a plan before the work on it, which grows with its size.
///
/// # Errors
/// `LimitExceeded` if the plan has too many nodes, columns and expressions.
pub(crate) fn check_plan(plan: &LogicalPlan) -> Result<()> {
    let mut parts = 0;
    let result = plan.apply_with_subqueries(|node| {
        parts += 1 + node.schema().fields().len();
        node.apply_expressions(|expression| {
            expression.apply(|_| {
                parts += 1;
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        let is_too_large = parts > SQL_PLAN_PARTS_MAX;
        Ok(if is_too_large { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    result.map_err(|error| from_engine(&error))?;
    if parts > SQL_PLAN_PARTS_MAX {
        let message = "the statement's plan is too large; join fewer tables, or name a query less \
                       often";
        let (limit, actual) = (SQL_PLAN_PARTS_MAX as u64, parts as u64);
        return Err(Error::limit_exceeded(message, limit, actual));
    }
    Ok(())
}
