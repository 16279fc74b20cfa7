//! Declarations of feature views in YAML, one document for each view. Every error has a line and a
//! column. The module `documents` splits files of several documents.

use forebay_core::limits::{
    VIEW_ALLOWED_LATENESS_US, VIEW_DECLARATION_BYTES_MAX, VIEW_EXPIRY_GRACE_US,
    VIEW_MATERIALIZATION_INTERVAL_US,
};
use forebay_core::value::Value;
use forebay_core::view::{
    JoinSpec, MaterializationSpec, NamedWindow, ViewSpec, ViewSpecError, ViewSpecPath, Window,
};
use forebay_core::{Error, Result};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::{Location, Spanned};

use super::condition;
use super::feature::{FeatureYaml, feature};
use super::yaml::{LocatedError, OrderedMap, WordOr, error_at, located_error, no_yaml};

/// Version of the words that declarations consist of.
const API_VERSION: &str = "forebay/v1";
/// Kind of the documents that declare feature views.
const KIND: &str = "FeatureView";

/// A declared view, and the locations of its parts in the text.
#[derive(Debug)]
pub(crate) struct Declaration {
    /// The view.
    pub(crate) spec: ViewSpec,
    locations: PartLocations,
    /// Number of the text's first line in its file.
    first_line: u32,
}

#[derive(Debug)]
struct PartLocations {
    name: Location,
    source: Location,
    filter: Option<Location>,
    joins: Vec<Location>,
    entity: Vec<Location>,
    extra_columns: Vec<Location>,
    features: Vec<Location>,
    materialize: Option<Location>,
}

impl Declaration {
    /// Parses the view that a text declares. The first line of the text has this number in its
    /// file; 0 counts as 1.
    ///
    /// # Errors
    /// `InvalidArgument` with line and column of the invalid part, or for a text without a view;
    /// `LimitExceeded` for a text or a condition that is too long.
    pub(crate) fn read(text: &str, first_line: u32) -> Result<Self> {
        Self::read_if_any(text, first_line)?.ok_or_else(|| no_view(first_line))
    }

    /// Parses the view that a text declares; returns `None` for an empty document.
    ///
    /// # Errors
    /// As [`Declaration::read`].
    pub(super) fn read_if_any(text: &str, first_line: u32) -> Result<Option<Self>> {
        if text.len() > VIEW_DECLARATION_BYTES_MAX {
            let (limit, actual) = (VIEW_DECLARATION_BYTES_MAX as u64, text.len() as u64);
            return Err(Error::limit_exceeded(
                "the declaration is too long; shorten the declaration",
                limit,
                actual,
            ));
        }
        let locate = |error: LocatedError| error.in_file(first_line);
        let headers = serde_saphyr::from_multiple::<Spanned<HeaderYaml>>(text);
        let mut headers = headers.map_err(|error| no_yaml(&error, first_line))?.into_iter();
        let Some(header) = headers.next() else { return Ok(None) };
        if let Some(other) = headers.next() {
            let message = "this is a second document; declare each view in a text of its own";
            return Err(locate(error_at(other.referenced, message)));
        }
        header.value.check(header.referenced).map_err(locate)?;
        let views = serde_saphyr::from_multiple::<ViewYaml>(text);
        let mut views = views.map_err(|error| no_yaml(&error, first_line))?.into_iter();
        let view = views.next().map(|view| view.declaration(first_line));
        view.transpose().map_err(locate)
    }

    /// Adds the line and the column of the faulty part to an error.
    pub(crate) fn locate(&self, error: ViewSpecError) -> Error {
        let ViewSpecError { path, error } = error;
        let location_of = |locations: &[Location], number: usize| locations.get(number).copied();
        let location = match path {
            ViewSpecPath::View => None,
            ViewSpecPath::Source => Some(self.locations.source),
            ViewSpecPath::Filter => self.locations.filter,
            ViewSpecPath::Join(number) => location_of(&self.locations.joins, number),
            ViewSpecPath::Entity(number) => location_of(&self.locations.entity, number),
            ViewSpecPath::ExtraColumn(number) => location_of(&self.locations.extra_columns, number),
            ViewSpecPath::Feature(number) => location_of(&self.locations.features, number),
            ViewSpecPath::Materialization => self.locations.materialize,
        };
        let location = location.unwrap_or(self.locations.name);
        located_error(location, error).in_file(self.first_line)
    }
}

/// Returns the error of a text that declares no view and whose first line has this number.
pub(super) fn no_view(first_line: u32) -> Error {
    let error = Error::invalid_argument(
        "the text declares no view; give its apiVersion, kind, name, source, entity and features",
    );
    error.while_doing(&format!("line {}, column 1", first_line.max(1)))
}

/// The words of a document that say how to read its other words.
#[derive(Deserialize)]
struct HeaderYaml {
    #[serde(rename = "apiVersion")]
    api_version: Option<Spanned<String>>,
    kind: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ViewYaml {
    /// Word that [`HeaderYaml`] checks.
    #[serde(rename = "apiVersion")]
    _api_version: IgnoredAny,
    /// Word that [`HeaderYaml`] checks.
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    name: Spanned<String>,
    source: Spanned<String>,
    partitions: Option<u32>,
    #[serde(rename = "where")]
    filter: Option<Spanned<String>>,
    #[serde(default)]
    joins: Vec<Spanned<JoinYaml>>,
    entity: Vec<Spanned<String>>,
    #[serde(default)]
    extra_columns: Vec<Spanned<String>>,
    allowed_lateness: Option<Spanned<String>>,
    windows: Option<OrderedMap<Spanned<WindowYaml>>>,
    features: OrderedMap<Spanned<FeatureYaml>>,
    materialize: Option<Spanned<MaterializationYaml>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MaterializationYaml {
    store: String,
    interval: Option<Spanned<String>>,
    expiry_grace: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JoinYaml {
    store: String,
    key: Option<String>,
    #[serde(default)]
    required: bool,
    columns: OrderedMap<ColumnYaml>,
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

type WindowYaml = WordOr<SpanYaml>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpanYaml {
    tumbling: Option<String>,
    sliding: Option<String>,
    slide: Option<String>,
}

impl HeaderYaml {
    /// Refuses a document of another version or kind.
    fn check(self, start: Location) -> Result<(), LocatedError> {
        for (word, found, expected) in
            [("apiVersion", self.api_version, API_VERSION), ("kind", self.kind, KIND)]
        {
            let Some(found) = found else {
                let message = format!("the document has no {word}; write `{word}: {expected}`");
                return Err(error_at(start, &message));
            };
            if found.value != expected {
                let message =
                    format!("the {word} `{}` is unknown; write `{word}: {expected}`", found.value);
                return Err(error_at(found.referenced, &message));
            }
        }
        Ok(())
    }
}

impl ViewYaml {
    fn declaration(self, first_line: u32) -> Result<Declaration, LocatedError> {
        let locations_of = |all: &[Spanned<String>]| all.iter().map(|one| one.referenced).collect();
        let locations = PartLocations {
            name: self.name.referenced,
            source: self.source.referenced,
            filter: self.filter.as_ref().map(|filter| filter.referenced),
            joins: self.joins.iter().map(|join| join.referenced).collect(),
            entity: locations_of(&self.entity),
            extra_columns: locations_of(&self.extra_columns),
            features: self.features.0.iter().map(|(name, _)| name.referenced).collect(),
            materialize: self.materialize.as_ref().map(|materialize| materialize.referenced),
        };
        let filter = self.filter.map(|filter| {
            condition::parse(&filter.value).map_err(|error| located_error(filter.referenced, error))
        });
        let values = |all: Vec<Spanned<String>>| all.into_iter().map(|one| one.value).collect();
        let spec = ViewSpec {
            name: self.name.value,
            source: self.source.value,
            partitions: self.partitions,
            filter: filter.transpose()?,
            joins: self.joins.into_iter().map(|join| join.value.spec()).collect(),
            entity: values(self.entity),
            extra_columns: values(self.extra_columns),
            features: self.features.0.into_iter().map(feature).collect::<Result<_, _>>()?,
            windows: windows(self.windows)?,
            allowed_lateness_us: micros_or(self.allowed_lateness, VIEW_ALLOWED_LATENESS_US)?,
            materialization: self
                .materialize
                .map(|materialize| materialize.value.spec())
                .transpose()?,
        };
        Ok(Declaration { spec, locations, first_line })
    }
}

impl JoinYaml {
    fn spec(self) -> JoinSpec {
        let column = |(name, column): (Spanned<String>, ColumnYaml)| match column {
            ColumnYaml::Field(field) => (name.value, field, None),
            ColumnYaml::Filled(FilledYaml { field, default }) => {
                (name.value, field, Some(default.value()))
            }
        };
        JoinSpec {
            store: self.store,
            key: self.key,
            columns: self.columns.0.into_iter().map(column).collect(),
            is_required: self.required,
        }
    }
}

impl MaterializationYaml {
    fn spec(self) -> Result<MaterializationSpec, LocatedError> {
        Ok(MaterializationSpec {
            store: self.store,
            interval_us: micros_or(self.interval, VIEW_MATERIALIZATION_INTERVAL_US)?,
            expiry_grace_us: micros_or(self.expiry_grace, VIEW_EXPIRY_GRACE_US)?,
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
fn windows(
    windows: Option<OrderedMap<Spanned<WindowYaml>>>,
) -> Result<Vec<NamedWindow>, LocatedError> {
    let Some(OrderedMap(windows)) = windows else {
        return Ok(vec![NamedWindow { name: String::new(), window: Window::Unbounded }]);
    };
    let window = |(name, yaml): (Spanned<String>, Spanned<WindowYaml>)| {
        let window = yaml.value.window().map_err(|message| error_at(yaml.referenced, &message))?;
        window.check().map_err(|error| located_error(yaml.referenced, error))?;
        Ok(NamedWindow { name: name.value, window })
    };
    windows.into_iter().map(window).collect()
}

impl WindowYaml {
    fn window(self) -> std::result::Result<Window, String> {
        const FORMS: &str = "the window has another form; write `unbounded`, {tumbling: 1d}, or \
            {sliding: 1h, slide: 1m}";
        match self.0 {
            Ok(word) if word == "unbounded" => Ok(Window::Unbounded),
            Err(SpanYaml { tumbling: Some(length), sliding: None, slide: None }) => {
                Ok(Window::Tumbling { length_us: micros(&length)? })
            }
            Err(SpanYaml { tumbling: None, sliding: Some(length), slide: Some(slide) }) => {
                Ok(Window::Sliding { length_us: micros(&length)?, slide_us: micros(&slide)? })
            }
            _ => Err(FORMS.to_owned()),
        }
    }
}

/// Parses a duration; returns `default` if there is none.
fn micros_or(text: Option<Spanned<String>>, default: i64) -> Result<i64, LocatedError> {
    let Some(text) = text else { return Ok(default) };
    micros(&text.value).map_err(|message| error_at(text.referenced, &message))
}

fn micros(text: &str) -> std::result::Result<i64, String> {
    let wrong = |error| {
        format!("`{text}` is not a duration: {error}; write one such as 90s, 5m, 1h or 30d")
    };
    let duration = humantime::parse_duration(text).map_err(wrong)?;
    i64::try_from(duration.as_micros())
        .map_err(|_| format!("`{text}` is too long; shorten the duration"))
}

#[cfg(test)]
mod tests {
    use forebay_core::ErrorCode;
    use forebay_core::view::{AggregateKind, DISTINCT_LG_K, TOP_LG_COUNTERS};

    use super::*;

    const VIEW: &str = "\
# What users spend.
apiVersion: forebay/v1
kind: FeatureView
name: spending
source: orders
partitions: 8
where: price > 10 and device <> 'tv'
joins:
  - store: cities
    key: city
    required: true
    columns:
      country: country
      people: {field: population, default: 0}
entity: [country, key]
extra_columns: [weight]
allowed_lateness: 5m
windows:
  1h: {sliding: 1h, slide: 1m}
  day: {tumbling: 1d}
  all: unbounded
features:
  orders: {count: '*'}
  spent: {sum: price}
  price: {approx_quantile: price, q: [0.5, 0.9], k: 200}
  cities: {approx_count_distinct: city, confidence_stddevs: 2}
  latest: {last: city, n: 5}
  top: {top_k: city, n: 3}
materialize:
  store: user_features
  interval: 1s
";
    const TOTALS: &str = "apiVersion: forebay/v1\nkind: FeatureView\nname: totals\n\
                          source: orders\nentity: [key]\nfeatures: {n: {count: '*'}}\n";

    fn error(text: &str) -> (ErrorCode, String) {
        let error = Declaration::read(text, 1).unwrap_err();
        (error.code(), error.message().to_owned())
    }

    /// Returns the error of the example with one change.
    fn error_of_change(from: &str, to: &str) -> String {
        assert!(VIEW.contains(from), "{from}");
        let (code, message) = error(&VIEW.replacen(from, to, 1));
        assert_eq!(code, ErrorCode::InvalidArgument, "{message}");
        message
    }

    #[test]
    fn features_and_windows_are_read_in_declaration_order() {
        let spending = Declaration::read(VIEW, 1).unwrap();
        let ViewSpec { features, windows, joins, .. } = &spending.spec;
        let names: Vec<_> = features.iter().map(|feature| feature.name.as_str()).collect();
        assert_eq!(names, ["orders", "spent", "price", "cities", "latest", "top"]);
        assert_eq!(
            (&features[0].kind, features[0].input.as_deref()),
            (&AggregateKind::Count, None)
        );
        assert_eq!(features[1].input.as_deref(), Some("price"));
        let quantile = AggregateKind::ApproxQuantile { q: vec![0.5, 0.9], k: 200 };
        assert_eq!(features[2].kind, quantile);
        let (lg_k, confidence_stddevs) = (DISTINCT_LG_K, Some(2));
        let distinct = AggregateKind::ApproxCountDistinct { lg_k, confidence_stddevs };
        assert_eq!(features[3].kind, distinct);
        assert_eq!(features[4].kind, AggregateKind::LastN { count: 5 });
        let top = AggregateKind::TopK { count: 3, lg_counters: TOP_LG_COUNTERS };
        assert_eq!(features[5].kind, top);
        let hour = Window::Sliding { length_us: 3_600_000_000, slide_us: 60_000_000 };
        let day = Window::Tumbling { length_us: 86_400_000_000 };
        let named_windows: Vec<_> =
            windows.iter().map(|one| (one.name.as_str(), one.window)).collect();
        assert_eq!(named_windows, [("1h", hour), ("day", day), ("all", Window::Unbounded)]);
        let lateness_us = spending.spec.allowed_lateness_us;
        assert_eq!((spending.spec.partitions, lateness_us), (Some(8), 300_000_000));
        let fill = Some(Value::Int64(0));
        let column = |name: &str, field: &str, fill| (name.to_owned(), field.to_owned(), fill);
        assert_eq!(
            joins[0].columns,
            [column("country", "country", None), column("people", "population", fill)]
        );
        assert!(joins[0].is_required && spending.spec.filter.is_some());
        assert_eq!(spending.spec.extra_columns, ["weight"]);
        let materialization = MaterializationSpec {
            store: "user_features".to_owned(),
            interval_us: 1_000_000,
            expiry_grace_us: VIEW_EXPIRY_GRACE_US,
        };
        assert_eq!(spending.spec.materialization, Some(materialization));
    }

    #[test]
    fn parts_that_are_left_out_have_defaults() {
        let totals = Declaration::read(TOTALS, 1).unwrap().spec;
        assert_eq!(totals.materialization, None);
        assert_eq!(totals.windows[0].window, Window::Unbounded);
        let lateness_us = totals.allowed_lateness_us;
        assert_eq!((lateness_us, totals.partitions), (VIEW_ALLOWED_LATENESS_US, None));
        let last = TOTALS.replace("count: '*'", "last: city");
        let last = Declaration::read(&last, 1).unwrap().spec;
        assert_eq!(last.features[0].kind, AggregateKind::Last);
    }

    #[test]
    fn invalid_declaration_names_line_and_column() {
        for (from, to, place) in [
            ("partitions: 8", "partitons: 8", "line 6, column 1"),
            ("partitions: 8", "partitions: many", "line 6, column 13"),
            ("price > 10", "price >", "line 7, column 8"),
            ("price > 10", "price + 1 > 10", "line 7, column 8"),
            ("device <> 'tv'", "device <> 'tv' tv", "line 7, column 8"),
            ("field: population, ", "", "line 14, column 15"),
            ("allowed_lateness: 5m", "allowed_lateness: soon", "line 17, column 19"),
            ("slide: 1m", "jump: 1m", "line 19, column"),
            ("slide: 1m", "slide: 7m", "line 19, column 7"),
            ("{tumbling: 1d}", "{tumbling: 1d, slide: 1m}", "line 20, column 8"),
            ("unbounded", "forever", "line 21, column 8"),
            ("{count: '*'}", "count", "line 23, column 11"),
            ("{count: '*'}", "{sum: '*'}", "line 23, column 11"),
            ("{sum: price}", "{sum: price, max: price}", "line 24, column 10"),
            ("{sum: price}", "{q: [0.5]}", "line 24, column 10"),
            ("{sum: price}", "{sum: price, n: 3}", "line 24, column 10"),
            ("{sum: price}", "{summ: price}", "line 24, column"),
            ("  price:", "  spent:", "line 25, column 3"),
            ("top: {", "top: [", "line 28, column"),
            ("store: user_features\n  ", "", "line 30, column 3"),
            ("interval: 1s", "intervall: 1s", "line 31, column 3"),
            ("interval: 1s", "interval: often", "line 31, column 13"),
            ("interval: 1s", "expiry_grace: 1", "line 31, column 17"),
            ("1s", "1s\n---\nname: other\nsource: orders", "line 33, column 1"),
        ] {
            let message = error_of_change(from, to);
            assert!(message.starts_with(place), "{to}: {message}");
        }
    }

    #[test]
    fn other_versions_and_kinds_are_refused() {
        let (version, kind) = ("apiVersion: forebay/v1\n", "kind: FeatureView\n");
        for (from, to, place, advice) in [
            (version, "", "line 2, column 1", "write `apiVersion: forebay/v1`"),
            (version, "apiVersion: forebay/v2\n", "line 2, column 13", "apiVersion: forebay/v1"),
            (kind, "", "line 2, column 1", "write `kind: FeatureView`"),
            (kind, "kind: Store\nfields: []\n", "line 3, column 7", "write `kind: FeatureView`"),
        ] {
            let message = error_of_change(from, to);
            assert!(message.starts_with(&format!("{place}: ")), "{to}: {message}");
            assert!(message.contains(advice), "{to}: {message}");
        }
    }

    #[test]
    fn unknown_word_is_refused_with_the_known_words() {
        for (from, to, place) in [
            ("\nname:", "\nview:", "line 4, column 1"),
            ("\nentity:", "\ngroup_by:", "line 15, column 1"),
            ("\nallowed_lateness:", "\nlateness:", "line 17, column 1"),
            ("slide: 1m", "hop: 1m", "line 19, column"),
            ("approx_quantile:", "quantiles:", "line 25, column"),
            ("  interval:", "  cadence:", "line 31, column 3"),
        ] {
            let message = error_of_change(from, to);
            let word = |text: &str| text.trim().split(':').next().unwrap().to_owned();
            assert!(message.starts_with(place), "{to}: {message}");
            let (_, advice) = message.split_once("unknown field `").unwrap();
            let (found, known_words) = advice.split_once("`, expected one of ").unwrap();
            assert_eq!(found, word(to));
            assert!(
                known_words.split(", ").any(|known_word| known_word == word(from)),
                "{message}"
            );
        }
    }

    #[test]
    fn lines_of_errors_count_from_the_first_line() {
        for (from, to, first_line, place) in [
            ("partitions: 8", "partitons: 8", 0, "line 6, column 1"),
            ("partitions: 8", "partitons: 8", 1, "line 6, column 1"),
            ("partitions: 8", "partitons: 8", 101, "line 106, column 1"),
            ("kind: FeatureView", "kind: Store", 101, "line 103, column 7"),
            ("allowed_lateness: 5m", "allowed_lateness: soon", 101, "line 117, column 19"),
            ("unbounded", "forever", 101, "line 121, column 8"),
            ("{count: '*'}", "count", 101, "line 123, column 11"),
            ("1s", "1s\n---\nname: other", 101, "line 133, column 1"),
            ("{count: '*'}", "count", u32::MAX, "line 4294967317, column 11"),
        ] {
            let error = Declaration::read(&VIEW.replacen(from, to, 1), first_line).unwrap_err();
            assert!(error.message().starts_with(&format!("{place}: ")), "{to}: {error}");
        }
        let empty = Declaration::read("", 101).unwrap_err();
        assert!(empty.message().starts_with("line 101, column 1: "), "{empty}");
        let error = Error::not_found("it is not there");
        let view = Declaration::read(VIEW, 101).unwrap();
        let located = view.locate(ViewSpecError { path: ViewSpecPath::Source, error });
        assert_eq!(located.message(), "line 105, column 9: it is not there");
    }

    #[test]
    fn errors_are_located_at_their_part() {
        let view = Declaration::read(VIEW, 1).unwrap();
        let located = |path| {
            let error = Error::not_found("it is not there").with_field("x");
            let error = view.locate(ViewSpecError { path, error });
            assert_eq!(error.code(), ErrorCode::NotFound);
            assert_eq!(error.context().field.as_deref(), Some("x"));
            error.message().to_owned()
        };
        for (path, place) in [
            (ViewSpecPath::View, "line 4, column 7"),
            (ViewSpecPath::Source, "line 5, column 9"),
            (ViewSpecPath::Filter, "line 7, column 8"),
            (ViewSpecPath::Join(0), "line 9, column 5"),
            (ViewSpecPath::Entity(1), "line 15, column 19"),
            (ViewSpecPath::ExtraColumn(0), "line 16, column 17"),
            (ViewSpecPath::Feature(2), "line 25, column 3"),
            (ViewSpecPath::Materialization, "line 30, column 3"),
        ] {
            assert_eq!(located(path), format!("{place}: it is not there"));
        }
    }

    #[test]
    fn declaration_contains_one_view_and_has_a_size_limit() {
        let (code, message) = error(&format!("{VIEW}---\n{TOTALS}"));
        assert_eq!(code, ErrorCode::InvalidArgument);
        assert!(message.starts_with("line 33, column 1: this is a second document"), "{message}");
        for text in ["", "# Nothing.\n", "---\n", "3", "[a]", "view: [", "\0", "&a [*a]"] {
            let (code, message) = error(text);
            assert_eq!(code, ErrorCode::InvalidArgument);
            assert!(message.starts_with("line "), "{text:?}: {message}");
        }
        let long = "#".repeat(VIEW_DECLARATION_BYTES_MAX + 1);
        assert_eq!(error(&long).0, ErrorCode::LimitExceeded);
        let breaks = "\n".repeat(VIEW_DECLARATION_BYTES_MAX) + TOTALS;
        assert_eq!(error(&breaks).0, ErrorCode::LimitExceeded);
    }
}
