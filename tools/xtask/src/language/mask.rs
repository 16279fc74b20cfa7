//! Masks the parts of a text that are not words: code spans, inline tags of Javadoc and tags of
//! HTML. A masked text has the length of the original, so that offsets are the same in both.

use super::comments::Markup;

/// Returns the text with `C` for each byte of code and a space for each byte of a tag.
#[must_use]
pub fn mask(text: &str, markup: Markup) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut offset = 0;
    while offset < text.len() {
        let rest = &text[offset..];
        let Some(next) = rest.find(['`', '{', '<']) else { break };
        masked.push_str(&rest[..next]);
        let (length, fill) = token(&rest[next..], markup);
        match fill {
            Some(fill) => masked.push_str(&fill.repeat(length)),
            None => masked.push_str(&rest[next..next + length]),
        }
        offset += next + length;
    }
    masked.push_str(&text[offset..]);
    masked
}

/// Returns the length of what starts the text, and its filling if it is masked.
fn token(text: &str, markup: Markup) -> (usize, Option<&'static str>) {
    match text.as_bytes()[0] {
        b'`' => code_span(text),
        b'{' if markup == Markup::Javadoc && text.starts_with("{@") => {
            (text.find('}').map_or(text.len(), |end| end + 1), Some("C"))
        }
        b'<' if text[1..]
            .starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '!') =>
        {
            match text.find(['>', ' ']) {
                Some(end) if text[end..].starts_with('>') => (end + 1, Some(" ")),
                _ => (1, None),
            }
        }
        _ => (1, None),
    }
}

/// A code span ends with as many backticks as it starts with.
fn code_span(text: &str) -> (usize, Option<&'static str>) {
    let ticks = text.len() - text.trim_start_matches('`').len();
    let mut offset = ticks;
    while let Some(next) = text[offset..].find('`') {
        let start = offset + next;
        let run = text[start..].len() - text[start..].trim_start_matches('`').len();
        if run == ticks {
            return (start + run, Some("C"));
        }
        offset = start + run;
    }
    (ticks, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_masked_byte_by_byte() {
        let mask = |text| mask(text, Markup::Markdown);
        assert_eq!(mask("a `b` c"), "a CCC c");
        assert_eq!(mask("``a`é``"), "CCCCCCCC");
        assert_eq!(mask("a ` b"), "a ` b");
        assert_eq!(mask("<b>a</b> < c"), "   a     < c");
    }

    #[test]
    fn inline_tags_of_javadoc_are_code() {
        assert_eq!(mask("a {@code b} {c}", Markup::Javadoc), "a CCCCCCCCC {c}");
    }
}
