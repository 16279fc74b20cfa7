//! Finds the relative links of Markdown, `[text](target)` and `[name]: target`, and the anchors of
//! a file, as forges derive them from its headings.

use std::collections::{BTreeMap, BTreeSet};

use super::prose::{Block, BlockKind, blocks};

/// A link to a file of the tree or to a heading of the same file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link<'a> {
    /// The offset of the target in the block.
    pub start: usize,
    /// The target as written.
    pub target: &'a str,
}

/// Returns the relative links of a block.
#[must_use]
pub fn links(block: &Block) -> Vec<Link<'_>> {
    let mut found = Vec::new();
    for (offset, mark) in block.masked.match_indices("](") {
        let start = offset + mark.len();
        let end = block.text[start..].find(')').map_or(block.text.len(), |end| start + end);
        found.push((start, &block.text[start..end]));
    }
    if block.kind == BlockKind::Row
        && let Some(offset) = block.text.find("]: ").filter(|_| block.text.starts_with('['))
    {
        found.push((offset + 3, &block.text[offset + 3..]));
    }
    let target_of = |(start, text): (usize, &'_ str)| -> (usize, usize) {
        let length = text.find([' ', '>']).unwrap_or(text.len());
        let opening = usize::from(text.starts_with('<'));
        (start + opening, start + length)
    };
    let all = found.into_iter().map(target_of);
    let all = all.map(|(start, end)| Link { start, target: &block.text[start..end] });
    all.filter(|link| !link.target.contains(':') && !link.target.is_empty()).collect()
}

/// Returns the anchors of a file: one for each heading, and the identifiers of tags.
#[must_use]
pub fn anchors(source: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for block in blocks("a.md", source).iter().filter(|block| block.kind == BlockKind::Heading) {
        let slug = slug(&block.text);
        let count = counts.entry(slug.clone()).or_default();
        found.insert(if *count == 0 { slug } else { format!("{slug}-{count}") });
        *count += 1;
    }
    for mark in ["id=\"", "name=\""] {
        let tags = source.match_indices(mark).map(|(offset, _)| &source[offset + mark.len()..]);
        found.extend(tags.filter_map(|rest| rest.split_once('"')).map(|(id, _)| id.to_owned()));
    }
    found
}

/// Returns letters in lower case, digits, hyphens and underscores, with a hyphen for each space.
fn slug(heading: &str) -> String {
    let mut text = heading.to_owned();
    while let Some((before, after)) = text.split_once("](") {
        let rest = after.split_once(')').map_or("", |(_, rest)| rest);
        text = format!("{before}{rest}");
    }
    let slug_letters = text.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    slug_letters.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(source: &str) -> Vec<String> {
        let blocks = blocks("a.md", source);
        blocks.iter().flat_map(links).map(|link| link.target.to_owned()).collect()
    }

    #[test]
    fn relative_links_are_found() {
        assert_eq!(
            targets("a [b](c.md) [`d`](<e.md#f> \"g\") ![h](i.svg)"),
            ["c.md", "e.md#f", "i.svg"]
        );
        assert_eq!(targets("[a]: b.md\n"), ["b.md"]);
        assert_eq!(targets("`[a](b.md)` [c](https://d.example/e.md)"), Vec::<String>::new());
    }

    #[test]
    fn anchors_equal_those_of_forges() {
        let source = "# A `b_c`, [d](e.md)!\n## F – g\n## F – g\n<a id=\"h\"></a>\n";
        let expected = ["a-b_c-d", "f--g", "f--g-1", "h"].map(str::to_owned);
        assert_eq!(anchors(source), BTreeSet::from(expected));
    }
}
