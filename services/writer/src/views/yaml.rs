//! Elements of declarations in YAML: ordered maps, words or maps, and errors with line and column.

use std::fmt;
use std::marker::PhantomData;

use forebay_core::Error;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_saphyr::{Location, Spanned};

/// Words of earlier declarations, and the words that replaced them.
const RENAMED_WORDS: [(&str, &str); 16] = [
    ("view", "name"),
    ("stream", "source"),
    ("filter", "where"),
    ("lookups", "joins"),
    ("group_by", "entity"),
    ("keep", "extra_columns"),
    ("lateness", "allowed_lateness"),
    ("hop", "slide"),
    ("last_n", "last"),
    ("distinct_count", "approx_count_distinct"),
    ("bounds", "confidence_stddevs"),
    ("quantiles", "approx_quantile"),
    ("ranks", "q"),
    ("emit", "materialize"),
    ("cadence", "interval"),
    ("grace", "expiry_grace"),
];

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

/// Converts a parser error to the form of all other errors.
pub(super) fn no_yaml(error: &serde_saphyr::Error) -> Error {
    // The lines after the first one are an excerpt of the text.
    let said = error.to_string();
    let first = said.lines().next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    let message = match first.split_once(": ") {
        Some((place, message)) if place.starts_with("line ") => message,
        _ => first,
    };
    let renamed = renamed_word(message);
    let message = renamed.as_deref().unwrap_or(message);
    match error.location() {
        Some(place) => at(place, message),
        None => Error::invalid_argument(message),
    }
}

/// Returns the message for a word of earlier declarations; `None` for every other message.
fn renamed_word(message: &str) -> Option<String> {
    let (word, _) = message.strip_prefix("unknown field `")?.split_once('`')?;
    let (old, new) = RENAMED_WORDS.into_iter().find(|(old, _)| *old == word)?;
    Some(format!("`{old}` is unknown; write `{new}`"))
}

/// Adds a location to an error.
pub(super) fn located_error(place: Location, error: Error) -> Error {
    error.while_doing(&format!("line {}, column {}", place.line(), place.column()))
}

pub(super) fn at(place: Location, message: &str) -> Error {
    located_error(place, Error::invalid_argument(message))
}
