//! Elements of declarations in YAML: ordered maps, words or maps, and errors with line and column.

use std::fmt;
use std::marker::PhantomData;

use forebay_core::Error;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_saphyr::{Location, Spanned};

/// A word, or a map.
pub(super) struct WordOr<T>(pub(super) std::result::Result<String, T>);

/// A map that keeps the order of its text.
pub(super) struct OrderedMap<T>(pub(super) Vec<(Spanned<String>, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrderedMap<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct OrderedMapVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for OrderedMapVisitor<T> {
            type Value = OrderedMap<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a map of names")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(OrderedMap(entries))
            }
        }

        deserializer.deserialize_map(OrderedMapVisitor(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for WordOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct WordOrVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for WordOrVisitor<T> {
            type Value = WordOr<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a word or a map")
            }

            fn visit_str<E>(self, word: &str) -> std::result::Result<Self::Value, E> {
                Ok(WordOr(Ok(word.to_owned())))
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                map: A,
            ) -> std::result::Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(|map| WordOr(Err(map)))
            }
        }

        deserializer.deserialize_any(WordOrVisitor(PhantomData))
    }
}

/// An error at a location of a text, which may be a part of a file.
pub(super) struct LocatedError {
    location: Location,
    error: Error,
}

impl LocatedError {
    /// Adds line and column in the file to the error; the first line of the text has this number.
    pub(super) fn in_file(self, first_line: u32) -> Error {
        let Self { location, error } = self;
        let line = lines_before(first_line).saturating_add(location.line());
        error.while_doing(&format!("line {line}, column {}", location.column()))
    }
}

/// Converts a parser error to the form of all other errors. The first line of the text has this
/// number in its file.
pub(super) fn no_yaml(error: &serde_saphyr::Error, first_line: u32) -> Error {
    let options = serde_saphyr::render_options! { line_offset: lines_before(first_line) };
    // The lines after the first one are an excerpt of the text.
    let text = error.render_with_options(options);
    let first = text.lines().next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    let message = match first.split_once(": ") {
        Some((prefix, message)) if prefix.starts_with("line ") => message,
        _ => first,
    };
    match error.location() {
        Some(location) => error_at(location, message).in_file(first_line),
        None => Error::invalid_argument(message),
    }
}

/// Returns the number of lines before a text whose first line has this number; 0 counts as 1.
fn lines_before(first_line: u32) -> u64 {
    first_line.saturating_sub(1).into()
}

/// Adds a location to an error.
pub(super) fn located_error(location: Location, error: Error) -> LocatedError {
    LocatedError { location, error }
}

pub(super) fn error_at(location: Location, message: &str) -> LocatedError {
    located_error(location, Error::invalid_argument(message))
}
