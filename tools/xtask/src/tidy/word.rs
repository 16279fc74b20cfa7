//! Words and paths in a line of a source.

/// Reports whether a character can be part of a name.
pub fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Reports whether a line has the word by itself, not as a part of a longer name.
pub fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(offset, _)| {
        let before = line[..offset].chars().next_back();
        let after = line[offset + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Reports whether a line has a path that begins with this one, not a relative path or an address
/// that contains it.
pub fn has_absolute(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(offset, _)| {
        let before = line[..offset].chars().next_back();
        !before.is_some_and(|c| is_word(c) || matches!(c, '.' | '-' | '}' | ')' | '~' | '*' | '/'))
    })
}
