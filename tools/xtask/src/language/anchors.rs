//! The anchors of a Markdown file, as forges derive them from its headings.

use std::collections::{BTreeMap, BTreeSet};

use super::prose::{BlockKind, blocks};

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
        let tags = source.match_indices(mark).map(|(at, _)| &source[at + mark.len()..]);
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
    let kept = text.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_those_of_forges() {
        let source = "# A `b_c`, [d](e.md)!\n## F – g\n## F – g\n<a id=\"h\"></a>\n";
        let expected = ["a-b_c-d", "f--g", "f--g-1", "h"].map(str::to_owned);
        assert_eq!(anchors(source), BTreeSet::from(expected));
    }
}
