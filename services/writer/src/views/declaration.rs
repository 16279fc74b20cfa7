//! Declarations of feature views in YAML, one document for each view. Every error has a line and a
//! column.

use std::fmt;
use std::marker::PhantomData;

use forebay_core::limits::{
    VIEW_CADENCE_US, VIEW_DECLARATION_BYTES_MAX, VIEW_GRACE_US, VIEW_LATENESS_US,
};
use forebay_core::value::Value;
use forebay_core::view::{
    AggregateKind, DISTINCT_LG_K, EmissionSpec, FeatureSpec, LookupSpec, NamedWindow, QUANTILES_K,
    TOP_LG_COUNTERS, ViewFault, ViewPart, ViewSpec, Window,
};
use forebay_core::{Error, Result};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_saphyr::{Location, Spanned};

use super::condition;

/// A declared view, and the locations of its parts in the text.
#[derive(Debug)]
pub(crate) struct Declaration {
    /// The view.
    pub(crate) spec: ViewSpec,
    places: Places,
}

#[derive(Debug)]
struct Places {
    view: Location,
    stream: Location,
    filter: Option<Location>,
    lookups: Vec<Location>,
    group_by: Vec<Location>,
    keep: Vec<Location>,
    features: Vec<Location>,
    emit: Option<Location>,
}

impl Declaration {
    /// Parses the view that a text declares.
    ///
    /// # Errors
    /// `InvalidArgument` with line and column of the invalid part; `LimitExceeded` for a text or a
    /// condition that is too long.
    pub(crate) fn read(text: &str) -> Result<Self> {
        if text.len() > VIEW_DECLARATION_BYTES_MAX {
            let (limit, actual) = (VIEW_DECLARATION_BYTES_MAX as u64, text.len() as u64);
            return Err(Error::limit_exceeded(
                "the declaration is too long; shorten the declaration",
                limit,
                actual,
            ));
        }
        let views = serde_saphyr::from_multiple::<ViewYaml>(text);
        let views = views.map_err(|error| no_yaml(&error))?;
        let mut views = views.into_iter();
        let nothing = || {
            Error::invalid_argument(
                "line 1, column 1: the text declares no view; give its name, stream, groups and \
                 features",
            )
        };
        let view = views.next().ok_or_else(nothing)?;
        match views.next() {
            None => view.declaration(),
            Some(other) => {
                let message = "this is a second view; declare each in a text of its own";
                Err(at(other.view.referenced, message))
            }
        }
    }

    /// Adds the line and the column of the faulty part to an error.
    pub(crate) fn locate(&self, fault: ViewFault) -> Error {
        let ViewFault { part, error } = fault;
        let of = |places: &[Location], number: usize| places.get(number).copied();
        let place = match part {
            ViewPart::View => None,
            ViewPart::Stream => Some(self.places.stream),
            ViewPart::Filter => self.places.filter,
            ViewPart::Lookup(number) => of(&self.places.lookups, number),
            ViewPart::GroupBy(number) => of(&self.places.group_by, number),
            ViewPart::Keep(number) => of(&self.places.keep, number),
            ViewPart::Feature(number) => of(&self.places.features, number),
            ViewPart::Emission => self.places.emit,
        };
        let place = place.unwrap_or(self.places.view);
        located_error(place, error)
    }
}

/// Converts a parser error to the form of all other errors.
fn no_yaml(error: &serde_saphyr::Error) -> Error {
    // The lines after the first one are an excerpt of the text.
    let said = error.to_string();
    let first = said.lines().next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    let message = match first.split_once(": ") {
        Some((place, message)) if place.starts_with("line ") => message,
        _ => first,
    };
    match error.location() {
        Some(place) => at(place, message),
        None => Error::invalid_argument(message),
    }
}

/// Adds a location to an error.
fn located_error(place: Location, error: Error) -> Error {
    let message = located(place, error.message());
    Error::new(error.code(), message).with_context(error.context().clone())
}

fn located(place: Location, message: &str) -> String {
    format!("line {}, column {}: {message}", place.line(), place.column())
}

fn at(place: Location, message: &str) -> Error {
    Error::invalid_argument(located(place, message))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ViewYaml {
    view: Spanned<String>,
    stream: Spanned<String>,
    partitions: Option<u32>,
    filter: Option<Spanned<String>>,
    #[serde(default)]
    lookups: Vec<Spanned<LookupYaml>>,
    group_by: Vec<Spanned<String>>,
    #[serde(default)]
    keep: Vec<Spanned<String>>,
    lateness: Option<Spanned<String>>,
    windows: Option<Ordered<Spanned<WindowYaml>>>,
    features: Ordered<Spanned<FeatureYaml>>,
    emit: Option<Spanned<EmitYaml>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EmitYaml {
    store: String,
    cadence: Option<Spanned<String>>,
    grace: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LookupYaml {
    store: String,
    key: Option<String>,
    #[serde(default)]
    required: bool,
    columns: Ordered<ColumnYaml>,
}

/// A field of the store, optionally with a default for events that find no document.
#[derive(Deserialize)]
#[serde(untagged)]
enum ColumnYaml {
    Field(String),
    Filled(FilledYaml),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FilledYaml {
    field: String,
    default: Literal,
}

/// A YAML literal.
#[derive(Deserialize)]
#[serde(untagged)]
enum Literal {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
}

/// A word, or a map.
struct WordOr<T>(std::result::Result<String, T>);

type WindowYaml = WordOr<SpanYaml>;
type FeatureYaml = WordOr<AggregateYaml>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpanYaml {
    tumbling: Option<String>,
    sliding: Option<String>,
    hop: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AggregateYaml {
    count: Option<String>,
    accumulating_count: Option<String>,
    sum: Option<String>,
    avg: Option<String>,
    min: Option<String>,
    max: Option<String>,
    variance: Option<String>,
    stddev: Option<String>,
    skewness: Option<String>,
    kurtosis: Option<String>,
    first: Option<String>,
    last: Option<String>,
    last_n: Option<String>,
    distinct_count: Option<String>,
    quantiles: Option<String>,
    top_k: Option<String>,
    n: Option<u16>,
    ranks: Option<Vec<f64>>,
    k: Option<u16>,
    lg_k: Option<u8>,
    bounds: Option<u8>,
    lg_counters: Option<u8>,
}

/// A map that keeps the order of its text.
struct Ordered<T>(Vec<(Spanned<String>, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Ordered<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct InOrder<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for InOrder<T> {
            type Value = Ordered<T>;

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
                Ok(Ordered(entries))
            }
        }

        deserializer.deserialize_map(InOrder(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for WordOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
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

        deserializer.deserialize_any(Either(PhantomData))
    }
}

impl ViewYaml {
    fn declaration(self) -> Result<Declaration> {
        let places_of = |all: &[Spanned<String>]| all.iter().map(|one| one.referenced).collect();
        let places = Places {
            view: self.view.referenced,
            stream: self.stream.referenced,
            filter: self.filter.as_ref().map(|filter| filter.referenced),
            lookups: self.lookups.iter().map(|lookup| lookup.referenced).collect(),
            group_by: places_of(&self.group_by),
            keep: places_of(&self.keep),
            features: self.features.0.iter().map(|(name, _)| name.referenced).collect(),
            emit: self.emit.as_ref().map(|emit| emit.referenced),
        };
        let filter = self.filter.map(|filter| {
            condition::parse(&filter.value).map_err(|error| located_error(filter.referenced, error))
        });
        let values = |all: Vec<Spanned<String>>| all.into_iter().map(|one| one.value).collect();
        let spec = ViewSpec {
            name: self.view.value,
            stream: self.stream.value,
            partitions: self.partitions,
            filter: filter.transpose()?,
            lookups: self.lookups.into_iter().map(|lookup| lookup.value.spec()).collect(),
            group_by: values(self.group_by),
            keep: values(self.keep),
            features: self.features.0.into_iter().map(feature).collect::<Result<_>>()?,
            windows: windows(self.windows)?,
            lateness_us: micros_or(self.lateness, VIEW_LATENESS_US)?,
            emission: self.emit.map(|emit| emit.value.spec()).transpose()?,
        };
        Ok(Declaration { spec, places })
    }
}

impl LookupYaml {
    fn spec(self) -> LookupSpec {
        let column = |(name, column): (Spanned<String>, ColumnYaml)| match column {
            ColumnYaml::Field(field) => (name.value, field, None),
            ColumnYaml::Filled(FilledYaml { field, default }) => {
                (name.value, field, Some(default.value()))
            }
        };
        LookupSpec {
            store: self.store,
            key: self.key,
            columns: self.columns.0.into_iter().map(column).collect(),
            is_required: self.required,
        }
    }
}

impl EmitYaml {
    fn spec(self) -> Result<EmissionSpec> {
        Ok(EmissionSpec {
            store: self.store,
            cadence_us: micros_or(self.cadence, VIEW_CADENCE_US)?,
            grace_us: micros_or(self.grace, VIEW_GRACE_US)?,
        })
    }
}

impl Literal {
    fn value(self) -> Value {
        match self {
            Self::Bool(is_true) => Value::Bool(is_true),
            Self::Integer(number) => Value::Int64(number),
            Self::Float(number) => Value::Float64(number),
            Self::Text(text) => Value::String(text),
        }
    }
}

/// Converts the named windows; without any, the view covers all time.
fn windows(windows: Option<Ordered<Spanned<WindowYaml>>>) -> Result<Vec<NamedWindow>> {
    let Some(Ordered(windows)) = windows else {
        return Ok(vec![NamedWindow { name: String::new(), window: Window::Lifetime }]);
    };
    let window = |(name, yaml): (Spanned<String>, Spanned<WindowYaml>)| {
        let window = yaml.value.window().map_err(|message| at(yaml.referenced, &message))?;
        window.check().map_err(|error| located_error(yaml.referenced, error))?;
        Ok(NamedWindow { name: name.value, window })
    };
    windows.into_iter().map(window).collect()
}

impl WindowYaml {
    fn window(self) -> std::result::Result<Window, String> {
        const FORMS: &str = "a window is `lifetime`, {tumbling: 1d}, or {sliding: 1h, hop: 1m}";
        match self.0 {
            Ok(word) if word == "lifetime" => Ok(Window::Lifetime),
            Err(SpanYaml { tumbling: Some(length), sliding: None, hop: None }) => {
                Ok(Window::Tumbling { length_us: micros(&length)? })
            }
            Err(SpanYaml { tumbling: None, sliding: Some(length), hop: Some(hop) }) => {
                Ok(Window::Sliding { length_us: micros(&length)?, hop_us: micros(&hop)? })
            }
            _ => Err(FORMS.to_owned()),
        }
    }
}

/// Parses a duration; returns `without` if there is none.
fn micros_or(text: Option<Spanned<String>>, without: i64) -> Result<i64> {
    let Some(text) = text else { return Ok(without) };
    micros(&text.value).map_err(|message| at(text.referenced, &message))
}

fn micros(text: &str) -> std::result::Result<i64, String> {
    let wrong = |error| format!("`{text}` is not a duration such as 90s, 5m, 1h or 30d: {error}");
    let duration = humantime::parse_duration(text).map_err(wrong)?;
    i64::try_from(duration.as_micros())
        .map_err(|_| format!("`{text}` is too long; shorten the duration"))
}

fn feature((name, yaml): (Spanned<String>, Spanned<FeatureYaml>)) -> Result<FeatureSpec> {
    let place = yaml.referenced;
    let kind = match yaml.value.0 {
        Ok(word) => AggregateYaml::of_word(&word),
        Err(aggregate) => aggregate.kind(),
    };
    let (kind, input) = kind.map_err(|message| at(place, &message))?;
    Ok(FeatureSpec { name: name.value, kind, input })
}

impl AggregateYaml {
    /// Returns an aggregate that needs no column.
    fn of_word(word: &str) -> std::result::Result<(AggregateKind, Option<String>), String> {
        let kinds = [AggregateKind::Count, AggregateKind::AccumulatingCount];
        let found = kinds.into_iter().find(|kind| kind.name() == word);
        let message = || format!("`{word}` needs a column; write {{{word}: COLUMN}}");
        found.map(|kind| (kind, None)).ok_or_else(message)
    }

    fn kind(mut self) -> std::result::Result<(AggregateKind, Option<String>), String> {
        use AggregateKind as Kind;
        let n = self.n.take();
        let ranks = self.ranks.take();
        let (k, lg_k) = (self.k.take(), self.lg_k.take());
        let (bounds, lg_counters) = (self.bounds.take(), self.lg_counters.take());
        let given = [
            ("n", n.is_some()),
            ("ranks", ranks.is_some()),
            ("k", k.is_some()),
            ("lg_k", lg_k.is_some()),
            ("bounds", bounds.is_some()),
            ("lg_counters", lg_counters.is_some()),
        ];
        let parameters = (n, ranks, k, lg_k, bounds, lg_counters);
        let (kind, input) = self.one(parameters)?;
        let taken: &[&str] = match &kind {
            Kind::LastN { .. } => &["n"],
            Kind::DistinctCount { .. } => &["lg_k", "bounds"],
            Kind::Quantiles { .. } => &["ranks", "k"],
            Kind::TopK { .. } => &["n", "lg_counters"],
            _ => &[],
        };
        match given.into_iter().find(|(name, is_given)| *is_given && !taken.contains(name)) {
            Some((name, _)) => Err(format!("{} takes no `{name}`; remove it", kind.name())),
            None => Ok((kind, Some(input))),
        }
    }

    /// Returns the single named aggregate and its column.
    fn one(self, parameters: Parameters) -> std::result::Result<(AggregateKind, String), String> {
        use AggregateKind as Kind;
        let (n, ranks, k, lg_k, bounds, lg_counters) = parameters;
        let lg_k = lg_k.unwrap_or(DISTINCT_LG_K);
        let ranks = ranks.unwrap_or_else(|| vec![0.5]);
        let k = k.unwrap_or(QUANTILES_K);
        let lg_counters = lg_counters.unwrap_or(TOP_LG_COUNTERS);
        let named = [
            (self.count, Kind::Count),
            (self.accumulating_count, Kind::AccumulatingCount),
            (self.sum, Kind::Sum),
            (self.avg, Kind::Average),
            (self.min, Kind::Min),
            (self.max, Kind::Max),
            (self.variance, Kind::Variance),
            (self.stddev, Kind::StandardDeviation),
            (self.skewness, Kind::Skewness),
            (self.kurtosis, Kind::Kurtosis),
            (self.first, Kind::First),
            (self.last, Kind::Last),
            (self.last_n, Kind::LastN { count: n.unwrap_or(1) }),
            (self.distinct_count, Kind::DistinctCount { lg_k, bounds }),
            (self.quantiles, Kind::Quantiles { ranks, k }),
            (self.top_k, Kind::TopK { count: n.unwrap_or(10), lg_counters }),
        ];
        let mut named = named.into_iter().filter_map(|(column, kind)| Some((kind, column?)));
        match (named.next(), named.next()) {
            (Some(one), None) => Ok(one),
            (None, _) => Err(
                "the feature names no aggregate; name an aggregate and its column, as in {sum: \
                    price}"
                    .to_owned(),
            ),
            (Some((one, _)), Some((other, _))) => {
                let (one, other) = (one.name(), other.name());
                Err(format!(
                    "a feature has one aggregate, not both {one} and {other}; declare two features"
                ))
            }
        }
    }
}

type Parameters = (Option<u16>, Option<Vec<f64>>, Option<u16>, Option<u8>, Option<u8>, Option<u8>);

#[cfg(test)]
mod tests {
    use forebay_core::ErrorCode;

    use super::*;

    const VIEW: &str = "\
# What users spend.
view: spending
stream: orders
partitions: 8
filter: price > 10 and device <> 'tv'
lookups:
  - store: cities
    key: city
    required: true
    columns:
      country: country
      people: {field: population, default: 0}
group_by: [country, key]
keep: [weight]
lateness: 5m
windows:
  1h: {sliding: 1h, hop: 1m}
  day: {tumbling: 1d}
  all: lifetime
features:
  orders: count
  spent: {sum: price}
  price: {quantiles: price, ranks: [0.5, 0.9], k: 200}
  cities: {distinct_count: city, bounds: 2}
  top: {top_k: city, n: 3}
emit:
  store: user_features
  cadence: 1s
";
    const TOTALS: &str = "view: totals\nstream: orders\ngroup_by: [key]\nfeatures: {n: count}\n";

    fn error(text: &str) -> (ErrorCode, String) {
        let error = Declaration::read(text).unwrap_err();
        (error.code(), error.message().to_owned())
    }

    #[test]
    fn features_and_windows_are_read_in_their_own_order() {
        let spending = Declaration::read(VIEW).unwrap();
        let ViewSpec { features, windows, lookups, .. } = &spending.spec;
        let names: Vec<_> = features.iter().map(|feature| feature.name.as_str()).collect();
        assert_eq!(names, ["orders", "spent", "price", "cities", "top"]);
        assert_eq!(features[1].input.as_deref(), Some("price"));
        let quantiles = AggregateKind::Quantiles { ranks: vec![0.5, 0.9], k: 200 };
        assert_eq!(features[2].kind, quantiles);
        let distinct = AggregateKind::DistinctCount { lg_k: DISTINCT_LG_K, bounds: Some(2) };
        assert_eq!(features[3].kind, distinct);
        let top = AggregateKind::TopK { count: 3, lg_counters: TOP_LG_COUNTERS };
        assert_eq!(features[4].kind, top);
        let hour = Window::Sliding { length_us: 3_600_000_000, hop_us: 60_000_000 };
        let day = Window::Tumbling { length_us: 86_400_000_000 };
        let named: Vec<_> = windows.iter().map(|one| (one.name.as_str(), one.window)).collect();
        assert_eq!(named, [("1h", hour), ("day", day), ("all", Window::Lifetime)]);
        assert_eq!((spending.spec.partitions, spending.spec.lateness_us), (Some(8), 300_000_000));
        let fill = Some(Value::Int64(0));
        let column = |name: &str, field: &str, fill| (name.to_owned(), field.to_owned(), fill);
        assert_eq!(
            lookups[0].columns,
            [column("country", "country", None), column("people", "population", fill)]
        );
        assert!(lookups[0].is_required && spending.spec.filter.is_some());
        let emission = EmissionSpec {
            store: "user_features".to_owned(),
            cadence_us: 1_000_000,
            grace_us: VIEW_GRACE_US,
        };
        assert_eq!(spending.spec.emission, Some(emission));
        let totals = Declaration::read(TOTALS).unwrap();
        assert_eq!(totals.spec.emission, None);
        assert_eq!(totals.spec.windows[0].window, Window::Lifetime);
        assert_eq!((totals.spec.lateness_us, totals.spec.partitions), (VIEW_LATENESS_US, None));
    }

    #[test]
    fn what_is_wrong_has_a_line_and_a_column() {
        let changed = |from: &str, to: &str| {
            assert!(VIEW.contains(from));
            error(&VIEW.replacen(from, to, 1))
        };
        for (from, to, place) in [
            ("partitions: 8", "partitons: 8", "line 4, column 1"),
            ("partitions: 8", "partitions: many", "line 4, column 13"),
            ("price > 10", "price >", "line 5, column 9"),
            ("price > 10", "price + 1 > 10", "line 5, column 9"),
            ("device <> 'tv'", "device <> 'tv' tv", "line 5, column 9"),
            ("field: population, ", "", "line 12, column 15"),
            ("lateness: 5m", "lateness: soon", "line 15, column 11"),
            ("hop: 1m", "jump: 1m", "line 17, column"),
            ("hop: 1m", "hop: 7m", "line 17, column 7"),
            ("{tumbling: 1d}", "{tumbling: 1d, hop: 1m}", "line 18, column 8"),
            ("lifetime", "forever", "line 19, column 8"),
            ("orders: count", "orders: sum", "line 21, column 11"),
            ("{sum: price}", "{sum: price, max: price}", "line 22, column 10"),
            ("{sum: price}", "{ranks: [0.5]}", "line 22, column 10"),
            ("{sum: price}", "{sum: price, n: 3}", "line 22, column 10"),
            ("{sum: price}", "{summ: price}", "line 22, column"),
            ("  price:", "  spent:", "line 23, column 3"),
            ("top: {", "top: [", "line 25, column"),
            ("store: user_features\n  ", "", "line 27, column 3"),
            ("cadence: 1s", "cadenza: 1s", "line 28, column 3"),
            ("cadence: 1s", "cadence: often", "line 28, column 12"),
            ("cadence: 1s", "grace: 1", "line 28, column 10"),
            ("1s", "1s\n---\nview: other\nstream: orders", "line 31, column 1"),
        ] {
            let (code, message) = changed(from, to);
            assert_eq!(code, ErrorCode::InvalidArgument, "{message}");
            assert!(message.starts_with(place), "{to}: {message}");
        }
    }

    #[test]
    fn faults_are_located_where_their_part_stands() {
        let view = Declaration::read(VIEW).unwrap();
        let located = |part| {
            let error = Error::not_found("it is not there").with_field("x");
            let error = view.locate(ViewFault { part, error });
            assert_eq!(error.code(), ErrorCode::NotFound);
            assert_eq!(error.context().field.as_deref(), Some("x"));
            error.message().to_owned()
        };
        for (part, place) in [
            (ViewPart::View, "line 2, column 7"),
            (ViewPart::Stream, "line 3, column 9"),
            (ViewPart::Filter, "line 5, column 9"),
            (ViewPart::Lookup(0), "line 7, column 5"),
            (ViewPart::GroupBy(1), "line 13, column 21"),
            (ViewPart::Keep(0), "line 14, column 8"),
            (ViewPart::Feature(2), "line 23, column 3"),
            (ViewPart::Emission, "line 27, column 3"),
        ] {
            assert_eq!(located(part), format!("{place}: it is not there"));
        }
    }

    #[test]
    fn a_text_is_of_one_view_and_has_an_end() {
        let (code, message) = error(&format!("{VIEW}---\n{TOTALS}"));
        assert_eq!(code, ErrorCode::InvalidArgument);
        assert!(message.starts_with("line 30, column 7: this is a second view"), "{message}");
        for text in ["", "# Nothing.\n", "---\n", "3", "[a]", "view: [", "\0", "&a [*a]"] {
            let (code, message) = error(text);
            assert_eq!(code, ErrorCode::InvalidArgument);
            assert!(message.starts_with("line "), "{text:?}: {message}");
        }
        let long = "#".repeat(VIEW_DECLARATION_BYTES_MAX + 1);
        assert_eq!(error(&long).0, ErrorCode::LimitExceeded);
    }
}
