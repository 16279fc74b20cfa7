//! Parser of conditions in a small subset of SQL expressions, such as `price > 10 and (device <>
//! 'tv' or city is null)`.

use forebay_core::limits::VIEW_CONDITION_OPERATORS_MAX;
use forebay_core::value::Value;
use forebay_core::view::{Comparison, Operand, Predicate};
use forebay_core::{Error, Result};
use sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, Value as Literal};
use sqlparser::dialect::GenericDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, Tokenizer};

/// Parses a condition over column names.
///
/// # Errors
/// `InvalidArgument` naming the text that is not part of a condition; `LimitExceeded` if the
/// condition is too long.
pub(super) fn parse(text: &str) -> Result<Predicate<String>> {
    let no_condition = |problem: &str| {
        let advice = "write a condition of SQL over columns";
        Error::invalid_argument(format!("the condition is invalid: {problem}; {advice}"))
    };
    let dialect = GenericDialect {};
    let tokens = Tokenizer::new(&dialect, text).tokenize();
    let tokens = tokens.map_err(|error| no_condition(&error.message))?;
    let operators = tokens.iter().filter(|token| is_operator(token)).count();
    if operators > VIEW_CONDITION_OPERATORS_MAX {
        let (limit, actual) = (VIEW_CONDITION_OPERATORS_MAX as u64, operators as u64);
        return Err(Error::limit_exceeded(
            "the condition is too long; shorten the condition",
            limit,
            actual,
        ));
    }
    let mut parser = Parser::new(&dialect).with_tokens(tokens);
    let expression = parser.parse_expr().map_err(|error| {
        let message = error.to_string();
        no_condition(message.strip_prefix("sql parser error: ").unwrap_or(&message))
    })?;
    let next = parser.peek_token().token;
    if next != Token::EOF {
        return Err(no_condition(&format!("found {next} after the condition")));
    }
    predicate(&expression)
}

/// Returns whether a token counts as an operator: anything but names, literals, commas and white
/// space.
fn is_operator(token: &Token) -> bool {
    match token {
        Token::Word(word) => word.keyword != Keyword::NoKeyword,
        Token::Comma | Token::Whitespace(_) => false,
        Token::Number(..) | Token::SingleQuotedString(_) => false,
        _ => true,
    }
}

fn predicate(expression: &Expr) -> Result<Predicate<String>> {
    match expression {
        Expr::Nested(inner) => predicate(inner),
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => {
            Ok(Predicate::Not(Box::new(predicate(expr)?)))
        }
        // A chain of the same operator becomes one flat condition of any length.
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            Ok(Predicate::All(match predicate(left)? {
                Predicate::All(mut all) => {
                    all.push(predicate(right)?);
                    all
                }
                first => vec![first, predicate(right)?],
            }))
        }
        Expr::BinaryOp { left, op: BinaryOperator::Or, right } => {
            Ok(Predicate::Any(match predicate(left)? {
                Predicate::Any(mut any) => {
                    any.push(predicate(right)?);
                    any
                }
                first => vec![first, predicate(right)?],
            }))
        }
        Expr::BinaryOp { left, op, right } => compare(left, op, right, expression),
        Expr::IsNull(column) => Ok(Predicate::IsMissing(column_of(column)?)),
        Expr::IsNotNull(column) => {
            Ok(Predicate::Not(Box::new(Predicate::IsMissing(column_of(column)?))))
        }
        Expr::Between { expr, negated, low, high } => {
            let bound = |comparison, value: &Expr| -> Result<Predicate<String>> {
                let (column, to) = (column_of(expr)?, Operand::Value(literal(value)?));
                Ok(Predicate::Compare { column, comparison, to })
            };
            let (low, high) =
                (bound(Comparison::GreaterOrEqual, low)?, bound(Comparison::LessOrEqual, high)?);
            Ok(negated_if(*negated, Predicate::All(vec![low, high])))
        }
        Expr::InList { expr, list, negated } => {
            let values = list.iter().map(literal).collect::<Result<_>>()?;
            Ok(negated_if(*negated, Predicate::IsOneOf { column: column_of(expr)?, values }))
        }
        // A boolean column is a condition by itself.
        Expr::Identifier(_) => Ok(Predicate::Compare {
            column: column_of(expression)?,
            comparison: Comparison::Equal,
            to: Operand::Value(Value::Bool(true)),
        }),
        other => Err(no_part(other)),
    }
}

fn negated_if(negated: bool, predicate: Predicate<String>) -> Predicate<String> {
    if negated { Predicate::Not(Box::new(predicate)) } else { predicate }
}

fn compare(
    left: &Expr,
    op: &BinaryOperator,
    right: &Expr,
    expression: &Expr,
) -> Result<Predicate<String>> {
    let comparison = match op {
        BinaryOperator::Eq => Comparison::Equal,
        BinaryOperator::NotEq => Comparison::NotEqual,
        BinaryOperator::Lt => Comparison::Less,
        BinaryOperator::LtEq => Comparison::LessOrEqual,
        BinaryOperator::Gt => Comparison::Greater,
        BinaryOperator::GtEq => Comparison::GreaterOrEqual,
        _ => return Err(no_part(expression)),
    };
    match (left, right) {
        (Expr::Identifier(_), Expr::Identifier(_)) => {
            let (column, to) = (column_of(left)?, Operand::Column(column_of(right)?));
            Ok(Predicate::Compare { column, comparison, to })
        }
        (Expr::Identifier(_), value) => {
            let (column, to) = (column_of(left)?, Operand::Value(literal(value)?));
            Ok(Predicate::Compare { column, comparison, to })
        }
        (value, Expr::Identifier(_)) => {
            let (column, to) = (column_of(right)?, Operand::Value(literal(value)?));
            Ok(Predicate::Compare { column, comparison: mirror(comparison), to })
        }
        _ => Err(no_part(expression)),
    }
}

/// Returns the same comparison with its sides exchanged.
fn mirror(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Equal | Comparison::NotEqual => comparison,
        Comparison::Less => Comparison::Greater,
        Comparison::LessOrEqual => Comparison::GreaterOrEqual,
        Comparison::Greater => Comparison::Less,
        Comparison::GreaterOrEqual => Comparison::LessOrEqual,
    }
}

fn column_of(expression: &Expr) -> Result<String> {
    match expression {
        Expr::Identifier(name) => Ok(name.value.clone()),
        Expr::Nested(inner) => column_of(inner),
        other => Err(no_part(other)),
    }
}

fn literal(expression: &Expr) -> Result<Value> {
    match expression {
        Expr::Nested(inner) => literal(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match &**expr {
            Expr::Value(value) => match &value.value {
                Literal::Number(digits, _) => number(&format!("-{digits}"), expression),
                _ => Err(no_part(expression)),
            },
            _ => Err(no_part(expression)),
        },
        Expr::Value(value) => match &value.value {
            Literal::Number(digits, _) => number(digits, expression),
            Literal::SingleQuotedString(text) => Ok(Value::String(text.clone())),
            Literal::Boolean(is_true) => Ok(Value::Bool(*is_true)),
            _ => Err(no_part(expression)),
        },
        other => Err(no_part(other)),
    }
}

fn number(digits: &str, expression: &Expr) -> Result<Value> {
    let integer = digits.parse().ok().map(Value::Int64);
    let float = || digits.parse().ok().filter(|float: &f64| float.is_finite()).map(Value::Float64);
    integer.or_else(float).ok_or_else(|| no_part(expression))
}

fn no_part(expression: &Expr) -> Error {
    Error::invalid_argument(format!(
        "`{expression}` is not allowed in a condition; compare columns with =, <>, <, <=, >, >=, \
         between, in and is null, join by and, or and not, and quote a column that has the name of \
         a SQL word: \"user\""
    ))
}

#[cfg(test)]
mod tests {
    use forebay_core::ErrorCode;

    use super::*;

    fn is_true(text: &str) -> bool {
        let values = [
            ("price", Value::Int64(10)),
            ("limit", Value::Int64(12)),
            ("city", Value::String("Rome".to_owned())),
            ("rate", Value::Float64(-0.5)),
            ("member", Value::Bool(true)),
        ];
        let value = |column: &String| {
            values.iter().find(|(name, _)| name == column).map(|(_, value)| value)
        };
        parse(text).unwrap().is_true(&value)
    }

    #[test]
    fn conditions_have_the_meaning_of_sql() {
        for text in [
            "price = 10",
            "10 >= price",
            "price between 10 and 20",
            "price not between 11 and 20",
            "price < limit",
            "city in ('Oslo', 'Rome') and not (price > 10)",
            "city not in ('Oslo')",
            "rate = -0.5",
            "member",
            "nothing is null and city is not null",
            "nothing = 1 or member",
            "price > 10 and city = 'Rome' or member",
        ] {
            assert!(is_true(text), "{text}");
        }
        for text in ["price <> 10", "10 < price", "nothing = 1", "not nothing = 1", "city in ('R')"]
        {
            assert!(!is_true(text), "{text}");
        }
    }

    #[test]
    fn invalid_conditions_are_refused() {
        for text in ["", "price >", "price + 1 = 2", "1 = 1", "f(price)", "price = null", "a.b = 1"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        let error = parse("price = 1; drop").unwrap_err();
        assert!(error.message().contains("found ; after the condition"), "{error}");
        let error = parse("user = 'ada'").unwrap_err();
        assert!(error.message().contains("\"user\""), "{error}");
        assert!(parse("\"user\" = 'ada'").is_ok());
    }

    #[test]
    fn long_condition_is_flat_and_an_oversize_condition_is_refused() {
        let all = vec!["price = 10"; 200].join(" and ");
        let Predicate::All(conditions) = parse(&all).unwrap() else { panic!("{all}") };
        assert_eq!(conditions.len(), 200);
        let values: Vec<_> = (0..5_000).map(|number| number.to_string()).collect();
        assert!(is_true(&format!("price in ({})", values.join(","))));
        for (word, times) in [("price = 1 and ", 4_000), ("not ", 10_000), ("(", 60_000)] {
            let long = format!("{}price = 1", word.repeat(times));
            assert_eq!(parse(&long).unwrap_err().code(), ErrorCode::LimitExceeded, "{word}");
        }
        let deep = format!("{}price = 1{}", "(".repeat(200), ")".repeat(200));
        assert!(parse(&deep).is_err());
    }
}
