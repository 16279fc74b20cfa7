//! Rejects statements before they are planned: statements that are too long, or so deep that the
//! recursion over them could overflow the stack.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use forebay_core::limits::{SQL_BYTES_MAX, SQL_OPERATORS_MAX};
use forebay_core::{Error, Result};

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
