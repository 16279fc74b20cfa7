//! The lexer splits a source file into code, comments and string literals. The lexer knows
//! only the syntax that this needs, and works on bytes, because `make check` runs unoptimised.

/// The lexical rules of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// Nested block comments, raw strings, lifetimes.
    Rust,
    /// Text blocks.
    Java,
    /// Raw strings in backticks.
    Go,
    /// C, and every language that is like C in this respect: proto, JavaScript.
    C,
    /// `#` comments, triple quotes; Starlark, too.
    Python,
    /// `#` comments, triple quotes, literal strings without escapes.
    Toml,
}

/// The kind of a span that is not code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// A comment up to the end of its line.
    Line,
    /// A comment between its marks.
    Block,
    /// A string or character literal.
    Literal,
}

/// A comment or a literal, with its marks, as a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The kind.
    pub kind: SpanKind,
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

impl Syntax {
    /// Returns the syntax of a file by its name, `None` if the lexer does not know it.
    #[must_use]
    pub fn of(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let extension = name.rsplit_once('.').map_or(name, |(_, extension)| extension);
        match extension {
            "rs" => Some(Self::Rust),
            "java" => Some(Self::Java),
            "go" => Some(Self::Go),
            "c" | "h" | "proto" | "js" | "ts" => Some(Self::C),
            "py" | "pyi" | "bzl" | "bazel" | "BUILD" => Some(Self::Python),
            "toml" => Some(Self::Toml),
            _ => None,
        }
    }

    fn has_hash_comments(self) -> bool {
        matches!(self, Self::Python | Self::Toml)
    }
}

/// Returns the comments and the literals of a source, in order.
#[must_use]
pub fn spans(source: &str, syntax: Syntax) -> Vec<Span> {
    let bytes = source.as_bytes();
    let mut found = Vec::new();
    let mut offset = 0;
    while offset < bytes.len() {
        // A call for each byte would take most of the time.
        let may_open = matches!(bytes[offset], b'/' | b'"' | b'\'' | b'#' | b'`' | b'r');
        match may_open.then(|| span(source, offset, syntax)).flatten() {
            Some((kind, end)) => {
                found.push(Span { kind, start: offset, end });
                offset = end;
            }
            None => offset += 1,
        }
    }
    found
}

/// Returns the source with spaces in place of its comments and literals. Each byte keeps its
/// offset and each line its number.
#[must_use]
pub fn code(source: &str, spans: &[Span]) -> String {
    let mut output = String::with_capacity(source.len());
    let mut offset = 0;
    for span in spans {
        output.push_str(&source[offset..span.start]);
        for (place, line) in source[span.start..span.end].split('\n').enumerate() {
            output.push_str(if place > 0 { "\n" } else { "" });
            output.push_str(&" ".repeat(line.len()));
        }
        offset = span.end;
    }
    output.push_str(&source[offset..]);
    output
}

/// Returns the source as [`code`] does, for callers without an interest in the spans.
#[must_use]
pub fn blank(source: &str, syntax: Syntax) -> String {
    code(source, &spans(source, syntax))
}

/// Returns kind and end of the comment or literal that starts at `offset`.
fn span(source: &str, offset: usize, syntax: Syntax) -> Option<(SpanKind, usize)> {
    let bytes = source.as_bytes();
    match bytes[offset] {
        b'#' if syntax.has_hash_comments() => Some((SpanKind::Line, line_end(source, offset))),
        b'/' if !syntax.has_hash_comments() => match bytes.get(offset + 1) {
            Some(b'/') => Some((SpanKind::Line, line_end(source, offset))),
            Some(b'*') => {
                Some((SpanKind::Block, block_end(source, offset, syntax == Syntax::Rust)))
            }
            _ => None,
        },
        b'"' => Some((SpanKind::Literal, literal_end(source, offset, syntax))),
        b'\'' if syntax != Syntax::Rust || is_character(source, offset) => {
            Some((SpanKind::Literal, literal_end(source, offset, syntax)))
        }
        b'`' if syntax == Syntax::Go => Some((SpanKind::Literal, after(source, offset + 1, "`"))),
        b'r' if syntax == Syntax::Rust => {
            let hashes = raw_hashes(bytes, offset)?;
            let close = format!("\"{}", "#".repeat(hashes));
            Some((SpanKind::Literal, after(source, offset + hashes + 2, &close)))
        }
        _ => None,
    }
}

fn line_end(source: &str, offset: usize) -> usize {
    source[offset..].find('\n').map_or(source.len(), |length| offset + length)
}

/// Returns the end of the next `close` at or after `offset`, or the end of the source.
fn after(source: &str, offset: usize, close: &str) -> usize {
    source[offset..].find(close).map_or(source.len(), |length| offset + length + close.len())
}

fn block_end(source: &str, offset: usize, nested: bool) -> usize {
    let (mut offset, mut depth) = (offset + 2, 1);
    while depth > 0 {
        let close = after(source, offset, "*/");
        let open = source[offset..close].find("/*").filter(|_| nested);
        match open {
            Some(length) => (offset, depth) = (offset + length + 2, depth + 1),
            None => (offset, depth) = (close, depth - 1),
        }
        if offset >= source.len() {
            return source.len();
        }
    }
    offset
}

/// Returns the end of a literal with one quote or three. A literal with one quote ends with its
/// line at the latest, except in Rust.
fn literal_end(source: &str, offset: usize, syntax: Syntax) -> usize {
    let bytes = source.as_bytes();
    let quote = bytes[offset];
    let escapes = syntax != Syntax::Toml || quote == b'"';
    let tripled = matches!(syntax, Syntax::Java | Syntax::Python | Syntax::Toml)
        && bytes[offset..].starts_with(&[quote; 3]);
    let mut end = offset + if tripled { 3 } else { 1 };
    while end < bytes.len() {
        match bytes[end] {
            b'\\' if escapes => end += 1,
            b'\n' if !tripled && syntax != Syntax::Rust => return end,
            byte if byte == quote && !tripled => return end + 1,
            byte if byte == quote && bytes[end..].starts_with(&[quote; 3]) => return end + 3,
            _ => {}
        }
        end += 1;
    }
    // An escape may have led into the middle of a character, or beyond the end.
    source.len()
}

/// Reports whether a quote of Rust opens a character; `'a` is a lifetime or a label.
fn is_character(source: &str, offset: usize) -> bool {
    let mut rest = source[offset + 1..].chars();
    rest.next() == Some('\\') || rest.next() == Some('\'')
}

/// Returns the count of hashes if a raw string starts here: `r"`, `r#"`, `br##"`.
fn raw_hashes(bytes: &[u8], offset: usize) -> Option<usize> {
    let before = offset.checked_sub(1).map(|offset| bytes[offset]);
    if before.is_some_and(|byte| is_word(byte) && byte != b'b' && byte != b'c') {
        return None;
    }
    let hashes = bytes[offset + 1..].iter().take_while(|byte| **byte == b'#').count();
    (bytes.get(offset + 1 + hashes) == Some(&b'"')).then_some(hashes)
}

/// Reports whether a byte can be part of a name. Bytes of other scripts count as parts.
#[must_use]
pub fn is_word(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | 0x80..)
}

/// The numbers of the lines of a source, by offset.
pub struct Lines {
    starts: Vec<usize>,
}

impl Lines {
    /// Finds the lines of a source.
    #[must_use]
    pub fn of(source: &str) -> Self {
        let starts =
            std::iter::once(0).chain(source.match_indices('\n').map(|(offset, _)| offset + 1));
        Self { starts: starts.collect() }
    }

    /// Returns the number, from 1, of the line that holds an offset.
    #[must_use]
    pub fn number(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset)
    }

    /// Returns the offset of the first byte of the line that holds `offset`.
    #[must_use]
    pub fn start(&self, offset: usize) -> usize {
        self.starts[self.number(offset) - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str, syntax: Syntax) -> String {
        blank(source, syntax).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_and_literals_of_rust_are_blanked() {
        let rust = |source| words(source, Syntax::Rust);
        assert_eq!(rust("a /* b /* c */ d */ e // f\ng"), "a e g");
        assert_eq!(rust(r#"a("b \" {") c"#), "a( ) c");
        assert_eq!(rust("a(r#\"b \" {\"#) c"), "a( ) c");
        assert_eq!(rust("f::<'a>('{', '\\'', b'x', 'é') g"), "f::<'a>( , , b , ) g");
        assert_eq!(rust("var\"{\" r#type"), "var r#type");
    }

    #[test]
    fn comments_and_literals_of_other_languages_are_blanked() {
        assert_eq!(words("a(\"\"\"\n {\"x\n\"\"\") /* b */ '{' c", Syntax::Java), "a( ) c");
        assert_eq!(words("a('#') # b\n'''c\n\"d''' e", Syntax::Python), "a( ) e");
        assert_eq!(words("a = 'b\\' # c\nd = \"\\\"#\"", Syntax::Toml), "a = d =");
        assert_eq!(words("a `\\` + `\n//` b // c", Syntax::Go), "a + b");
        assert_eq!(words("a 'b\nc", Syntax::C), "a c");
    }

    #[test]
    fn unterminated_literals_end_and_lines_keep_their_numbers() {
        let all = [Syntax::Rust, Syntax::Java, Syntax::Go, Syntax::C, Syntax::Python, Syntax::Toml];
        for source in ["\"abc", "/* abc", "r#\"abc", "'\\", "'''abc", "r", "\"\\é", "`", "é\n\"é\n"]
        {
            for syntax in all {
                let code = blank(source, syntax);
                assert_eq!(code.len(), source.len(), "{source}");
                assert_eq!(code.lines().count(), source.lines().count(), "{source}");
            }
        }
    }

    #[test]
    fn lines_are_counted_from_one() {
        let lines = Lines::of("a\nbc\n");
        assert_eq!([0, 1, 2, 4, 5].map(|at| lines.number(at)), [1, 1, 2, 2, 3]);
        assert_eq!(lines.start(3), 2);
    }
}
