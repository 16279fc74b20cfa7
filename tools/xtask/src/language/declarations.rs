//! The types and modules that a source file declares, in Rust, Java and Python.

use super::lexer::{self, Lines, Syntax, is_word};
use super::{java, rust};

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

/// Returns the declarations of a file; none for a language without types.
#[must_use]
pub fn outline(path: &str, source: &str) -> Outline {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    let syntax = match extension {
        "rs" => Syntax::Rust,
        "java" => Syntax::Java,
        "py" | "pyi" => Syntax::Python,
        _ => return Outline::default(),
    };
    let code = lexer::blank(source, syntax);
    let lines = Lines::of(source);
    match syntax {
        Syntax::Rust => rust::outline(&code, &lines),
        Syntax::Java => java::outline(&code, &lines),
        _ => python(&code),
    }
}

/// Returns the name at an offset, after spaces; empty if there is none.
#[must_use]
pub fn name_at(code: &str, at: usize) -> &str {
    let rest = code[at..].trim_start();
    let length = rest.bytes().take_while(|byte| is_word(*byte)).count();
    &rest[..length]
}

fn python(code: &str) -> Outline {
    let mut outline = Outline::default();
    for (place, line) in code.lines().enumerate() {
        let text = line.trim_start();
        let Some(rest) = text.strip_prefix("class ") else { continue };
        outline.declared.push(Declaration {
            kind: DeclarationKind::Type,
            name: name_at(rest, 0).to_owned(),
            line: place + 1,
            test: false,
            local: text.len() < line.len(),
            selected: false,
        });
    }
    outline
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_python_are_found() {
        let outline = outline("a.py", "class A(B):\n    class C:\n        '''\nclass D:\n'''\n");
        let names: Vec<(&str, bool)> =
            outline.declared.iter().map(|found| (found.name.as_str(), found.local)).collect();
        assert_eq!(names, [("A", false), ("C", true)]);
    }
}
