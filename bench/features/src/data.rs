//! The data: orders of a shop, 37 columns of text, whole numbers, decimals and booleans, about 1 KB
//! together; and two views of them, with eleven features.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay::Store;
use forebay::environment::{Clock, SystemClock};
use forebay::schema::{FieldType, KeyType, ScalarType, StoreSpec, StreamSpec, Timestamp, Value};
use forebay::writes::Write;
use forebay_bench_micro::watch;
use forebay_testkit::random::SeededRng;

/// Name of the stream.
pub const STREAM: &str = "orders";
/// Number of partitions.
pub const PARTITIONS: u32 = 4;
/// Distinct keys, which are users.
const USERS: usize = 1_000_000;
/// Number of towns, a medium number of groups.
const TOWNS: usize = 500;
/// Towns that the watcher watches.
pub const WATCHED: u64 = 64;
const PRODUCTS: usize = 10_000;
const SECTIONS: usize = 50;
/// Store that values of towns are materialized to.
pub const MATERIALIZED: &str = "towns";
/// Field of that store with the highest number of a town's orders.
pub const NEWEST: &str = "newest_1h";
/// The views, each with its name: nine aggregates of numbers and a count by town, and a count by
/// three columns, which makes a separate group of nearly every order.
pub const VIEWS: [(&str, &str); 2] = [("by_town", BY_TOWN), ("by_order", BY_ORDER)];
/// Description of the data, for the result file.
pub const DATA: &str = "made-up orders of 37 columns, about 1 KB, of 1,000,000 users at random, in \
                        4 partitions; two views: nine aggregates of numbers and a count by one of \
                        500 towns, materialized, and a count by user, product and section";

const BY_TOWN: &str = "\
apiVersion: forebay/v1
kind: FeatureView
name: by_town
source: orders
entity: [town]
allowed_lateness: 1h
windows:
  1h: {sliding: 1h, slide: 5m}
features:
  orders: {count: '*'}
  newest: {max: n}
  total: {sum: total}
  quantity: {avg: quantity}
  items: {max: items}
  discount: {min: discount}
  item_price: {avg: item_price}
  shipping: {sum: shipping}
  credit: {variance: credit}
  price: {stddev: price}
materialize:
  store: towns
  interval: 50ms
  expiry_grace: 30s
";

const BY_ORDER: &str = "\
apiVersion: forebay/v1
kind: FeatureView
name: by_order
source: orders
entity: [key, product, section]
allowed_lateness: 1h
windows:
  5m: {tumbling: 5m}
features:
  orders: {count: '*'}
";

const DECIMALS: [&str; 6] = ["total", "discount", "item_price", "shipping", "credit", "price"];
const COUNTS: [&str; 3] = ["quantity", "items", "feed_size"];
const FLAGS: [&str; 4] = ["is_gift", "is_first", "is_mobile", "is_express"];
const TEXTS: [&str; 19] = [
    "product_name",
    "brand",
    "category",
    "seller",
    "campaign",
    "channel",
    "coupon",
    "device",
    "browser",
    "system",
    "street",
    "district",
    "state",
    "country",
    "carrier",
    "warehouse",
    "payment",
    "referrer",
    "session",
];
/// Characters of each text.
const TEXT_CHARS: usize = 44;
/// Characters that texts are cut out of.
const LETTERS_CHARS: usize = 4 << 20;

/// Returns the specification of the stream.
#[must_use]
pub fn spec() -> StoreSpec {
    let column = |spec: StoreSpec, (name, scalar_type): (&str, ScalarType)| {
        spec.field(name, FieldType::Scalar(scalar_type))
    };
    let own_fields = [
        ("n", ScalarType::Int64),
        ("at", ScalarType::Timestamp),
        ("town", ScalarType::String),
        ("product", ScalarType::String),
        ("section", ScalarType::String),
    ];
    let columns = own_fields
        .into_iter()
        .chain(DECIMALS.map(|name| (name, ScalarType::Float64)))
        .chain(COUNTS.map(|name| (name, ScalarType::Int64)))
        .chain(FLAGS.map(|name| (name, ScalarType::Bool)))
        .chain(TEXTS.map(|name| (name, ScalarType::String)));
    let mut spec =
        columns.fold(StoreSpec::stream(STREAM, KeyType::Int64).partitions(PARTITIONS), column);
    spec.stream = Some(StreamSpec { event_time: Some("at".to_owned()) });
    spec
}

/// An order, which its number determines except for its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Number of the order.
    pub number: u64,
    /// Event time.
    pub at: Timestamp,
}

impl Order {
    /// Returns the order of this number, with the current time.
    #[must_use]
    pub fn now(number: u64) -> Self {
        Self { number, at: SystemClock.now() }
    }

    /// Returns `count` orders with new numbers and the current time.
    #[must_use]
    pub fn next(numbers: &AtomicU64, count: u64) -> Vec<Self> {
        let first = numbers.fetch_add(count, Ordering::Relaxed);
        (first..first + count).map(Self::now).collect()
    }

    /// Returns the order's key.
    #[must_use]
    pub fn user(self) -> i64 {
        SeededRng::new(self.number).below(USERS) as i64
    }

    /// Returns the number of the order's town.
    #[must_use]
    pub fn town(self) -> u64 {
        SeededRng::new(!self.number).below(TOWNS) as u64
    }

    /// Returns the insert of the order.
    pub fn insert(self, store: &Store) -> Write {
        let mut dice = SeededRng::new(self.number ^ 0x5eed);
        let mut write = store
            .insert(self.user())
            .set("n", self.number as i64)
            .set("at", Value::Timestamp(self.at.as_micros()))
            .set("town", watch::key(self.town()).as_str())
            .set("product", format!("product {:05}", dice.below(PRODUCTS)).as_str())
            .set("section", format!("section {:02}", dice.below(SECTIONS)).as_str());
        for name in DECIMALS {
            write = write.set(name, dice.below(100_000) as f64 / 100.0);
        }
        for name in COUNTS {
            write = write.set(name, dice.below(100) as i64);
        }
        for name in FLAGS {
            write = write.set(name, dice.below(2) == 1);
        }
        for name in TEXTS {
            write = write.set(name, text(&mut dice));
        }
        write
    }
}

/// Returns random letters, cut out of a text so long that a compressor sees few of them twice:
/// generating each text would take a client longer than the insert.
fn text(dice: &mut SeededRng) -> &'static str {
    static LETTERS: LazyLock<String> = LazyLock::new(|| {
        let noise = SeededRng::new(0x7e47).noise(LETTERS_CHARS);
        noise.into_iter().map(|byte| char::from(b'a' + byte % 26)).collect()
    });
    let first = dice.below(LETTERS_CHARS - TEXT_CHARS);
    &LETTERS[first..first + TEXT_CHARS]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_event_has_37_columns_of_about_a_kilobyte() {
        assert_eq!(spec().fields.len(), 37);
        let fixed = 8 * (2 + DECIMALS.len() + COUNTS.len()) + FLAGS.len();
        let texts = TEXTS.len() * TEXT_CHARS + "watched00001product 00001section 01".len();
        assert!((950..1_050).contains(&(8 + fixed + texts)), "{fixed} + {texts}");
    }

    #[test]
    fn order_number_determines_its_columns() {
        let order = Order { number: 7, at: Timestamp::from_micros(1) };
        assert_eq!(order.user(), Order { at: Timestamp::from_micros(2), ..order }.user());
        assert!(order.town() < TOWNS as u64);
    }
}
