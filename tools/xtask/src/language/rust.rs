//! The outline of a Rust file: a scan of its words and braces, with the blocks that enclose each.
//! Associated types are no declarations, since a trait of another crate may ask for the name.

use super::declarations::{Declaration, DeclarationKind, Outline, name_at};
use super::lexer::{Lines, is_word};

/// The kind of item that a block belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Module,
    Implementation,
    Function,
    Other,
}

struct OpenBlock {
    owner: Owner,
    start: usize,
    test: bool,
}

struct Scan<'a> {
    code: &'a str,
    lines: &'a Lines,
    outline: Outline,
    open: Vec<OpenBlock>,
    head: usize,
    owner: Owner,
    depth: i32,
}

/// Returns the outline of blanked code.
pub fn outline(code: &str, lines: &Lines) -> Outline {
    let scan = Scan {
        code,
        lines,
        outline: Outline::default(),
        open: Vec::new(),
        head: 0,
        owner: Owner::Other,
        depth: 0,
    };
    scan.run()
}

impl Scan<'_> {
    fn run(mut self) -> Outline {
        let bytes = self.code.as_bytes();
        let mut offset = 0;
        while offset < bytes.len() {
            match bytes[offset] {
                b'(' | b'[' => self.depth += 1,
                b')' | b']' => self.depth -= 1,
                b';' if self.depth <= 0 => self.restart(offset + 1),
                b'{' => self.enter(offset),
                b'}' => self.leave(offset),
                byte if is_word(byte) => {
                    let start = offset;
                    while offset < bytes.len() && is_word(bytes[offset]) {
                        offset += 1;
                    }
                    self.word(start, offset);
                    continue;
                }
                _ => {}
            }
            offset += 1;
        }
        self.outline
    }

    fn restart(&mut self, offset: usize) {
        (self.head, self.owner, self.depth) = (offset, Owner::Other, 0);
    }

    fn enter(&mut self, offset: usize) {
        let test = self.in_test() || self.selected_for_tests(offset);
        self.open.push(OpenBlock { owner: self.owner, start: self.head, test });
        self.restart(offset + 1);
    }

    fn leave(&mut self, offset: usize) {
        if let Some(open) = self.open.pop()
            && open.test
            && !self.in_test()
        {
            self.outline.tests.push((open.start, offset));
        }
        self.restart(offset + 1);
    }

    fn in_test(&self) -> bool {
        self.open.last().is_some_and(|open| open.test)
    }

    /// Reports whether the item whose head ends at `end` is selected for tests alone.
    fn selected_for_tests(&self, end: usize) -> bool {
        let head = &self.code[self.head..end];
        head.contains("#[cfg(test)]") || head.contains("#[cfg(all(test,")
    }

    fn word(&mut self, start: usize, end: usize) {
        let before = self.code[..start].bytes().next_back();
        if matches!(before, Some(b'#' | b'.' | b'$' | b'\'')) {
            return;
        }
        let enclosing = self.open.last().map_or(Owner::Module, |open| open.owner);
        match &self.code[start..end] {
            "fn" => self.owner = Owner::Function,
            "impl" if self.owner == Owner::Other => self.owner = Owner::Implementation,
            "trait" => {
                self.owner = Owner::Implementation;
                self.declare(DeclarationKind::Type, end);
            }
            "struct" | "enum" => self.declare(DeclarationKind::Type, end),
            "type" if enclosing != Owner::Implementation => {
                self.declare(DeclarationKind::Type, end)
            }
            "mod" => self.module(end),
            _ => {}
        }
    }

    fn module(&mut self, end: usize) {
        self.owner = Owner::Module;
        let name = name_at(self.code, end);
        let rest = self.code[end..].trim_start();
        if rest[name.len()..].trim_start().starts_with('{') {
            self.declare(DeclarationKind::Module, end);
        } else if self.selected_for_tests(end) {
            self.outline.test_modules.push(name.to_owned());
        }
    }

    fn declare(&mut self, kind: DeclarationKind, end: usize) {
        let name = name_at(self.code, end);
        if name.is_empty() || !self.code[end..].starts_with(char::is_whitespace) {
            return;
        }
        let test = self.in_test() || self.selected_for_tests(end);
        self.outline.declared.push(Declaration {
            kind,
            name: name.to_owned(),
            line: self.lines.number(end),
            test,
            local: self.open.iter().any(|open| open.owner == Owner::Function),
            selected: self.code[self.head..end].contains("#[cfg("),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::outline::outline;

    const SOURCE: &str = "\
pub struct A<T>([T; 4]);
pub(crate) enum B { C { d: u8 } }
impl Iterator for A<[u8; 2]> {
    type Item = u8;
    fn next(&mut self) -> impl Copy {
        struct E;
    }
}
trait F { type G; }
type H = u8;
#[cfg(unix)]
struct I { r#type: u8 }
mod j {
    union K { l: u8 }
}
#[cfg(test)]
mod tests {
    struct M;
}
#[cfg(test)]
mod n;
mod o;
macro_rules! p { ($q:ident) => { struct $q; }; }
";

    #[test]
    fn declarations_are_found_with_their_enclosing_items() {
        let outline = outline("a.rs", SOURCE);
        let names: Vec<&str> = outline.declared.iter().map(|found| found.name.as_str()).collect();
        assert_eq!(names, ["A", "B", "E", "F", "H", "I", "j", "tests", "M"]);
        let marked = |mark: fn(&super::Declaration) -> bool| -> Vec<&str> {
            let found = outline.declared.iter().filter(|found| mark(found));
            found.map(|found| found.name.as_str()).collect()
        };
        assert_eq!(marked(|found| found.local), ["E"]);
        assert_eq!(marked(|found| found.test), ["tests", "M"]);
        assert_eq!(marked(|found| found.selected), ["I", "tests"]);
        assert_eq!(outline.declared[2].line, 6);
        assert_eq!(outline.test_modules, ["n"]);
        assert_eq!(outline.tests.len(), 1);
    }
}
