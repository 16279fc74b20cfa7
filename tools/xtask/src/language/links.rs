//! Finds the relative links of Markdown: `[text](target)` and `[name]: target`.

use super::prose::{Block, BlockKind};

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
    for (at, mark) in block.masked.match_indices("](") {
        let start = at + mark.len();
        let end = block.text[start..].find(')').map_or(block.text.len(), |end| start + end);
        found.push((start, &block.text[start..end]));
    }
    if block.kind == BlockKind::Row
        && let Some(at) = block.text.find("]: ").filter(|_| block.text.starts_with('['))
    {
        found.push((at + 3, &block.text[at + 3..]));
    }
    let bare = |(start, text): (usize, &'_ str)| -> (usize, usize) {
        let length = text.find([' ', '>']).unwrap_or(text.len());
        let skipped = usize::from(text.starts_with('<'));
        (start + skipped, start + length)
    };
    let all = found.into_iter().map(bare);
    let all = all.map(|(start, end)| Link { start, target: &block.text[start..end] });
    all.filter(|link| !link.target.contains(':') && !link.target.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::prose::blocks;
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
}
