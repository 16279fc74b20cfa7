//! Finds functions and counts their lines, in Rust, Java, Python and shell. The source is blanked
//! (see `lexer`), so that a brace in a string is no brace.

use super::word::is_word;
use crate::language::lexer::{Syntax, blank};

/// A function, from the line of its name to the line of its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The name.
    pub name: String,
    /// The line of its name, from 1.
    pub line: usize,
    /// The number of lines.
    pub lines: usize,
}

/// Returns the functions of a source file, by the file's extension; none for other files.
#[must_use]
pub fn functions(extension: &str, source: &str) -> Vec<Function> {
    match extension {
        "rs" => in_braces(&blank(source, Syntax::Rust), rust_name),
        "java" => in_braces(&blank(source, Syntax::Java), java_name),
        "py" | "pyi" => in_python(&blank(source, Syntax::Python)),
        "sh" => in_shell(source),
        _ => Vec::new(),
    }
}

/// Finds every `{` after the head of a function. The head is the text back to the last `;`, `{` or
/// `}`.
fn in_braces(code: &str, name: fn(&str) -> Option<(usize, String)>) -> Vec<Function> {
    let mut found = Vec::new();
    let mut open: Vec<Option<(String, usize)>> = Vec::new();
    let mut head_start = 0;
    // A `;` inside brackets, as in `[u8; 4]`, does not end a head.
    let mut depth = 0_i32;
    for (offset, character) in code.char_indices() {
        match character {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ';' if depth <= 0 => head_start = offset + 1,
            '{' => {
                let head = name(&code[head_start..offset]);
                open.push(head.map(|(place, name)| (name, line_of(code, head_start + place))));
                (head_start, depth) = (offset + 1, 0);
            }
            '}' => {
                if let Some(Some((name, line))) = open.pop() {
                    let lines = line_of(code, offset) + 1 - line;
                    found.push(Function { name, line, lines });
                }
                (head_start, depth) = (offset + 1, 0);
            }
            _ => {}
        }
    }
    found
}

fn line_of(code: &str, offset: usize) -> usize {
    code[..offset].matches('\n').count() + 1
}

/// Returns the name after the last `fn` of the head; a pointer type `fn(` has no name.
fn rust_name(head: &str) -> Option<(usize, String)> {
    let mut found = None;
    for (offset, _) in head.match_indices("fn ") {
        let starts = !head[..offset].chars().next_back().is_some_and(is_word);
        let name: String =
            head[offset + 3..].trim_start().chars().take_while(|c| is_word(*c)).collect();
        if starts && !name.is_empty() {
            found = Some((offset, name));
        }
    }
    found
}

/// Returns the name in `name(...)` or `name(...) throws X` before a brace, if it is no keyword and
/// no class.
fn java_name(head: &str) -> Option<(usize, String)> {
    const NO_METHOD: [&str; 9] =
        ["if", "for", "while", "switch", "catch", "synchronized", "try", "new", "record"];
    let end = head.trim_end();
    let close = end.rfind(')')?;
    let after = end[close + 1..].trim();
    if !(after.is_empty() || after.starts_with("throws ")) {
        return None;
    }
    let mut depth = 0;
    let open = end[..=close].char_indices().rev().find_map(|(offset, character)| {
        depth += i32::from(character == ')') - i32::from(character == '(');
        (depth == 0).then_some(offset)
    })?;
    let before = end[..open].trim_end();
    let start = before.rfind(|c| !is_word(c)).map_or(0, |offset| offset + 1);
    let name = &before[start..];
    let previous = before[..start].split_whitespace().next_back().unwrap_or("");
    let is_method =
        !name.is_empty() && !NO_METHOD.contains(&name) && !NO_METHOD.contains(&previous);
    is_method.then(|| (start, name.to_owned()))
}

/// Finds the functions of Python. A `def` ends with the last line that is indented deeper.
fn in_python(code: &str) -> Vec<Function> {
    let lines = python_lines(code);
    let mut found = Vec::new();
    for (place, (line, indent, text)) in lines.iter().enumerate() {
        let head = text.strip_prefix("async ").unwrap_or(text);
        let Some(rest) = head.strip_prefix("def ") else { continue };
        let name = rest.chars().take_while(|c| is_word(*c)).collect();
        let inside = lines[place + 1..].iter().take_while(|(_, deeper, _)| deeper > indent);
        let last = inside.last().map_or(*line, |(last, ..)| *last);
        found.push(Function { name, line: *line, lines: last + 1 - line });
    }
    found
}

/// Returns logical lines: number, indent, text. A line inside brackets belongs to the line that
/// opened the brackets, so it has the deepest indent.
fn python_lines(code: &str) -> Vec<(usize, usize, &str)> {
    let mut depth = 0_i32;
    let mut lines = Vec::new();
    for (place, line) in code.lines().enumerate() {
        let text = line.trim();
        let indent = if depth > 0 { usize::MAX } else { line.len() - line.trim_start().len() };
        if !text.is_empty() {
            lines.push((place + 1, indent, text));
        }
        depth += line.matches(['(', '[', '{']).count() as i32;
        depth -= line.matches([')', ']', '}']).count() as i32;
    }
    lines
}

/// Finds the functions of shell, from `name() {` to a brace in the first column.
fn in_shell(source: &str) -> Vec<Function> {
    let mut found = Vec::new();
    let mut open: Option<(String, usize)> = None;
    for (place, line) in source.lines().enumerate() {
        if let Some(name) = line.strip_suffix("() {") {
            open = Some((name.to_owned(), place + 1));
        } else if line == "}"
            && let Some((name, line)) = open.take()
        {
            found.push(Function { name, line, lines: place + 2 - line });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(extension: &str, source: &str) -> Vec<(String, usize, usize)> {
        let functions = functions(extension, source).into_iter();
        functions.map(|function| (function.name, function.line, function.lines)).collect()
    }

    #[test]
    fn rust_functions_are_found_with_their_heads() {
        let source = "\
impl A {
    pub fn one<F: Fn(u8) -> [u8; 4]>(
        f: fn(u8) -> u8,
    ) -> u8
    where
        F: Copy,
    {
        let s = \"}\";
        fn inner() {}
        if f(1) == 1 { 2 } else { 3 }
    }
    fn declared(&self);
}
proptest! {
    #[test]
    fn two(x in 0..3) {
    }
}
";
        let expected =
            [("inner".to_owned(), 9, 1), ("one".to_owned(), 2, 10), ("two".to_owned(), 16, 2)];
        assert_eq!(listed("rs", source), expected);
    }

    #[test]
    fn java_methods_are_found_and_blocks_are_not() {
        let source = "\
record Pair(int a) {
    Pair {
    }
    int sum(List<String> x) throws IOException {
        for (String s : x) {
            run(() -> {
            });
        }
        return new Object() {
            int two() {
                return 2;
            }
        }.two();
    }
}
";
        assert_eq!(listed("java", source), [("two".to_owned(), 10, 3), ("sum".to_owned(), 4, 11)]);
    }

    #[test]
    fn python_functions_end_with_their_indentation() {
        let source = "\
class A:
    def one(
        self,
    ) -> int:
        '''
text
'''
        return [
1,
        ]

    async def two(self): pass


x = 1
";
        assert_eq!(listed("py", source), [("one".to_owned(), 2, 9), ("two".to_owned(), 12, 1)]);
    }

    #[test]
    fn shell_functions_are_found() {
        assert_eq!(listed("sh", "a=1\nrun() {\n  b\n}\n"), [("run".to_owned(), 2, 3)]);
    }
}
