//! The word lists of the rules, as `tools/xtask/language/words.toml` holds them.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use toml::Table;

/// The lists.
pub struct Words {
    /// Words that no sentence begins with.
    pub starters: BTreeSet<String>,
    /// Words that count in the measure only, together with the starters.
    pub weak_starters: BTreeSet<String>,
    /// Words that count in the measure as names of types.
    pub measured_names: BTreeSet<String>,
    /// Further words that no type is named by.
    pub bare_names: BTreeSet<String>,
    /// Nouns in -ed or -ing that may name a type.
    pub nouns: BTreeSet<String>,
    /// Imperatives that end like a participle or a third person.
    pub imperatives: BTreeSet<String>,
}

/// Returns the lists. They are a part of the program, so that a tree without them can be judged.
pub fn words() -> &'static Words {
    static WORDS: OnceLock<Words> = OnceLock::new();
    WORDS.get_or_init(|| {
        let table: Table =
            include_str!("../../language/words.toml").parse().unwrap_or_else(|_| Table::new());
        let list = |section: &str, name: &str| {
            let list = table.get(section).and_then(|section| section.get(name));
            let words = list.and_then(|list| list.as_str()).unwrap_or_default();
            words.split_whitespace().map(str::to_owned).collect()
        };
        Words {
            starters: list("sentences", "starters"),
            weak_starters: list("sentences", "weak"),
            measured_names: list("names", "measured"),
            bare_names: list("names", "bare"),
            nouns: list("names", "nouns"),
            imperatives: list("commits", "imperatives"),
        }
    })
}

/// Reports whether a sentence may not begin with a word.
pub fn is_starter(word: &str) -> bool {
    words().starters.contains(&word.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_list_is_lower_case() {
        let words = words();
        let lists = [
            &words.starters,
            &words.weak_starters,
            &words.measured_names,
            &words.bare_names,
            &words.nouns,
            &words.imperatives,
        ];
        for list in lists {
            assert!(list.len() > 5);
            assert!(list.iter().all(|word| word.bytes().all(|byte| byte.is_ascii_lowercase())));
        }
        assert!(words.starters.contains("what"));
        assert!(words.nouns.is_disjoint(&words.bare_names));
    }
}
