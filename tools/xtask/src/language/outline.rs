//! The types and modules that a source file declares, in Rust, Java and Python.

use super::declarations::{Declaration, DeclarationKind, Outline, name_at};
use super::lexer::{self, Lines, Syntax};
use super::{java, rust};

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
    fn python_classes_are_found() {
        let outline = outline("a.py", "class A(B):\n    class C:\n        '''\nclass D:\n'''\n");
        let names: Vec<(&str, bool)> =
            outline.declared.iter().map(|found| (found.name.as_str(), found.local)).collect();
        assert_eq!(names, [("A", false), ("C", true)]);
    }
}
