//! Blanks comments and the insides of strings, line by line, so that the rules of tidy look at
//! code only. Not a parser: just enough of each language's lexer to know what is text. Line
//! breaks stay, so every line keeps its number.

/// Which lexer to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Nested block comments, raw strings, lifetimes.
    Rust,
    /// Text blocks.
    Java,
    /// `#` comments, triple quotes.
    Python,
}

/// The source with everything that is not code turned into spaces.
#[must_use]
pub fn blank(source: &str, language: Language) -> String {
    let mut lexer = Lexer { input: source.chars().collect(), at: 0, output: String::new() };
    while lexer.at < lexer.input.len() {
        lexer.step(language);
    }
    lexer.output
}

struct Lexer {
    input: Vec<char>,
    at: usize,
    output: String,
}

impl Lexer {
    fn step(&mut self, language: Language) {
        let here = self.input[self.at];
        match language {
            Language::Python if here == '#' => self.skip_line(),
            Language::Python if here == '"' || here == '\'' => self.skip_quoted(here),
            Language::Python => self.keep(),
            _ if self.starts_with("//") => self.skip_line(),
            _ if self.starts_with("/*") => self.skip_block(language == Language::Rust),
            Language::Java if here == '"' || here == '\'' => self.skip_quoted(here),
            Language::Rust if here == '"' => self.skip_string('"'),
            Language::Rust if here == '\'' => self.char_or_lifetime(),
            Language::Rust if self.raw_hashes().is_some() => self.skip_raw(),
            _ => self.keep(),
        }
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(step, wanted)| self.peek(step) == Some(wanted))
    }

    fn peek(&self, steps: usize) -> Option<char> {
        self.input.get(self.at + steps).copied()
    }

    fn keep(&mut self) {
        self.output.push(self.input[self.at]);
        self.at += 1;
    }

    fn skip(&mut self, count: usize) {
        for _ in 0..count {
            let Some(here) = self.peek(0) else { return };
            self.output.push(if here == '\n' { '\n' } else { ' ' });
            self.at += 1;
        }
    }

    fn skip_line(&mut self) {
        while self.peek(0).is_some_and(|here| here != '\n') {
            self.skip(1);
        }
    }

    fn skip_block(&mut self, nested: bool) {
        self.skip(2);
        let mut depth = 1;
        while depth > 0 && self.at < self.input.len() {
            if self.starts_with("*/") {
                depth -= 1;
                self.skip(2);
            } else if nested && self.starts_with("/*") {
                depth += 1;
                self.skip(2);
            } else {
                self.skip(1);
            }
        }
    }

    /// A string that three quotes may open, in which case three close it.
    fn skip_quoted(&mut self, quote: char) {
        let triple: String = [quote; 3].iter().collect();
        if !self.starts_with(&triple) {
            return self.skip_string(quote);
        }
        self.skip(3);
        while self.at < self.input.len() && !self.starts_with(&triple) {
            self.skip(if self.peek(0) == Some('\\') { 2 } else { 1 });
        }
        self.skip(3);
    }

    fn skip_string(&mut self, quote: char) {
        self.skip(1);
        while self.peek(0).is_some_and(|here| here != quote) {
            self.skip(if self.peek(0) == Some('\\') { 2 } else { 1 });
        }
        self.skip(1);
    }

    /// `'a'` and `'\n'` are characters; `'a` is a lifetime or a label.
    fn char_or_lifetime(&mut self) {
        if self.peek(1) == Some('\\') || self.peek(2) == Some('\'') {
            self.skip_string('\'');
        } else {
            self.keep();
        }
    }

    /// `r"`, `r#"`, `br##"`: the count of hashes, if a raw string starts here.
    fn raw_hashes(&self) -> Option<usize> {
        let before = self.at.checked_sub(1).map(|at| self.input[at]);
        if self.peek(0) != Some('r') || before.is_some_and(|c| is_word(c) && c != 'b' && c != 'c') {
            return None;
        }
        let hashes = (1..).take_while(|step| self.peek(*step) == Some('#')).count();
        (self.peek(hashes + 1) == Some('"')).then_some(hashes)
    }

    fn skip_raw(&mut self) {
        let hashes = self.raw_hashes().unwrap_or(0);
        let close: String = std::iter::once('"').chain((0..hashes).map(|_| '#')).collect();
        self.skip(hashes + 2);
        while self.at < self.input.len() && !self.starts_with(&close) {
            self.skip(1);
        }
        self.skip(hashes + 1);
    }
}

/// Whether a character can stand inside a name.
#[must_use]
pub fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str, language: Language) -> String {
        blank(source, language).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn rust_text_goes_and_code_stays() {
        let rust = |source| words(source, Language::Rust);
        assert_eq!(rust("a /* b /* c */ d */ e // f\ng"), "a e g");
        assert_eq!(rust(r#"a("b \" {") c"#), "a( ) c");
        assert_eq!(rust("a(r#\"b \" {\"#) c"), "a( ) c");
        assert_eq!(rust("f::<'a>('{', '\\'', b'x', 'é') g"), "f::<'a>( , , b , ) g");
        assert_eq!(rust("for x in y { r\"{\" }"), "for x in y { }");
        assert_eq!(rust("var\"{\""), "var");
    }

    #[test]
    fn java_and_python_text_goes_and_code_stays() {
        assert_eq!(words("a(\"\"\"\n {\"x\n\"\"\") /* b */ '{' c", Language::Java), "a( ) c");
        assert_eq!(words("a('#') # b\n'''c\n\"d''' e", Language::Python), "a( ) e");
    }

    #[test]
    fn lines_keep_their_numbers() {
        let source = "a /*\n\n*/ b\n\"\n\" c\n// d\ne";
        assert_eq!(blank(source, Language::Rust).lines().count(), source.lines().count());
    }

    #[test]
    fn an_open_end_ends() {
        for source in ["\"abc", "/* abc", "r#\"abc", "'\\", "'''abc", "r"] {
            for language in [Language::Rust, Language::Java, Language::Python] {
                assert_eq!(blank(source, language).len(), source.len());
            }
        }
    }
}
