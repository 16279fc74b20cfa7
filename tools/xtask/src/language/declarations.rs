//! Declarations of types and modules in a source file.

use super::lexer::is_word;

/// The kind of a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclarationKind {
    /// A type, a trait or an alias of a type.
    Type,
    /// A module with its text in the same file.
    Module,
}

/// A declared name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The kind.
    pub kind: DeclarationKind,
    /// The name.
    pub name: String,
    /// The line, from 1.
    pub line: usize,
    /// Whether only builds of tests have it.
    pub test: bool,
    /// Whether it is inside a function, or below the top level of Python.
    pub local: bool,
    /// Whether an attribute `cfg` selects it.
    pub selected: bool,
}

/// The declarations of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// The package, as Java names it.
    pub package: String,
    /// The types and modules.
    pub declared: Vec<Declaration>,
    /// The ranges of bytes that only builds of tests have.
    pub tests: Vec<(usize, usize)>,
    /// Modules in files of their own that only builds of tests have.
    pub test_modules: Vec<String>,
}

/// Returns the name at an offset, after spaces; empty if there is none.
#[must_use]
pub fn name_at(code: &str, offset: usize) -> &str {
    let rest = code[offset..].trim_start();
    let length = rest.bytes().take_while(|byte| is_word(*byte)).count();
    &rest[..length]
}
