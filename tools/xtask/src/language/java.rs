//! The outline of a Java file: its package and its types, top-level and nested.

use super::declarations::{Declaration, DeclarationKind, Outline, name_at};
use super::lexer::{Lines, is_word};

/// Returns the outline of blanked code.
pub fn outline(code: &str, lines: &Lines) -> Outline {
    let mut outline = Outline::default();
    let bytes = code.as_bytes();
    let mut offset = 0;
    while offset < bytes.len() {
        if !is_word(bytes[offset]) {
            offset += 1;
            continue;
        }
        let start = offset;
        while offset < bytes.len() && is_word(bytes[offset]) {
            offset += 1;
        }
        let spaced = code[offset..].starts_with([' ', '\n']);
        if !spaced || code[..start].ends_with('.') {
            continue;
        }
        let name = name_at(code, offset);
        let is_type = match &code[start..offset] {
            "package" if outline.package.is_empty() && outline.declared.is_empty() => {
                let end = code[offset..].find(';').map_or(code.len(), |end| offset + end);
                outline.package = code[offset..end].trim().to_owned();
                false
            }
            "class" | "interface" | "enum" => true,
            "record" => {
                let rest = code[offset..].trim_start();
                rest[name.len()..].trim_start().starts_with(['(', '<'])
            }
            _ => false,
        };
        if is_type && !name.is_empty() {
            outline.declared.push(Declaration {
                kind: DeclarationKind::Type,
                name: name.to_owned(),
                line: lines.number(start),
                test: false,
                local: false,
                selected: false,
            });
        }
    }
    outline
}

#[cfg(test)]
mod tests {
    use super::super::outline::outline;

    #[test]
    fn types_and_package_are_found() {
        let source = "\
package a.b;
/** A class of things. */
public final class A<T> {
    record C(int d) {}
    enum D { E }
    @interface F {}
    private static final Class<?> G = A.class;
    void record(String record) { record = \"class H\"; }
}
";
        let outline = outline("A.java", source);
        let names: Vec<(&str, usize)> =
            outline.declared.iter().map(|found| (found.name.as_str(), found.line)).collect();
        assert_eq!(names, [("A", 3), ("C", 4), ("D", 5), ("F", 6)]);
        assert_eq!(outline.package, "a.b");
    }
}
