//! Model of selects: the expected answers, computed over all events by brute force.

use std::cmp::Ordering;

use forebay::schema::Value;
use forebay_core::entropy::{Entropy, SeededEntropy};
use forebay_core::value::compare;
use forebay_wire::v1;
use forebay_wire::v1::select_events_request::{Between, By, Equal};

pub const USERS: u64 = 20;
pub const CITIES: u64 = 7;
pub const SPAN_US: i64 = 3_600_000_000;

/// An order as inserted.
#[derive(Clone, Debug)]
pub struct Order {
    pub n: i64,
    pub user: String,
    /// The event time, if the order has one.
    pub at: Option<i64>,
    /// The effective event time, once known.
    pub time: i64,
    pub city: Option<String>,
    pub price: Option<i32>,
    pub weight: Option<f64>,
    pub note: String,
}

pub fn below(entropy: &dyn Entropy, bound: u64) -> u64 {
    entropy.next_u64().unwrap() % bound
}

/// Returns orders around this time; some columns of some orders have no value.
pub fn some_orders(seed: u64, first: i64, count: i64, about: i64) -> Vec<Order> {
    let entropy = SeededEntropy::new(seed);
    let is_there = || below(&entropy, 10) > 0;
    let order = |n| Order {
        n,
        user: format!("user-{}", below(&entropy, USERS)),
        at: is_there().then(|| about - below(&entropy, SPAN_US as u64) as i64),
        time: 0,
        city: is_there().then(|| format!("city-{}", below(&entropy, CITIES))),
        price: is_there().then(|| below(&entropy, 100) as i32 - 50),
        weight: is_there().then(|| (below(&entropy, 200) as f64 - 100.0) / 8.0),
        note: format!("note-{}", below(&entropy, 5)),
    };
    (first..first + count).map(order).collect()
}

/// A select, and its model.
pub struct Case {
    pub ask: v1::SelectEventsRequest,
    by: ModelLookup,
    order_by: Option<&'static str>,
}

/// Lookup of the select's events.
#[derive(Clone, Debug)]
enum ModelLookup {
    All,
    User(String),
    Is(&'static str, Value),
    Lies(&'static str, Option<Value>, Option<Value>),
}

impl Case {
    /// Returns a random select; with a lookup by note only if notes have an index.
    pub fn random(entropy: &dyn Entropy, about: i64, notes_are_found: bool) -> Self {
        let kinds = if notes_are_found { 6 } else { 5 };
        let by = match below(entropy, kinds) {
            0 => ModelLookup::All,
            1 => ModelLookup::User(format!("user-{}", below(entropy, USERS + 1))),
            2 => ModelLookup::Is("city", format!("city-{}", below(entropy, CITIES + 1)).into()),
            3 => price(entropy),
            4 => ModelLookup::Lies("weight", weight(entropy), weight(entropy)),
            _ => ModelLookup::Is("note", format!("note-{}", below(entropy, 6)).into()),
        };
        let time = || {
            let is_bound = below(entropy, 3) > 0;
            is_bound.then(|| about - below(entropy, SPAN_US as u64) as i64)
        };
        let columns = ["price", "weight", "city", "n"];
        let order_by = columns.get(below(entropy, 8) as usize).copied();
        let ask = v1::SelectEventsRequest {
            stream: "orders".to_owned(),
            by: by.message(),
            start_us: time(),
            end_us: time(),
            columns: if below(entropy, 2) == 0 { vec!["n".to_owned()] } else { Vec::new() },
            order_by: order_by.map(str::to_owned),
            is_descending: below(entropy, 2) == 0,
            limit: [1, 3, 100, 10_000][below(entropy, 4) as usize],
            ..Default::default()
        };
        Self { ask, by, order_by }
    }

    /// Returns the expected orders, in order. Orders with equal values and times are sorted by
    /// position in the log, which the model does not know.
    pub fn expected<'o>(&self, orders: &'o [Order]) -> Vec<&'o Order> {
        let mut found = self.all(orders);
        found.sort_by(|a, b| self.order(a, b));
        found.truncate(self.ask.limit as usize);
        found
    }

    /// Returns all matching orders.
    pub fn all<'o>(&self, orders: &'o [Order]) -> Vec<&'o Order> {
        let is_in = |order: &&Order| {
            self.ask.start_us.is_none_or(|start| start <= order.time)
                && self.ask.end_us.is_none_or(|end| order.time < end)
                && self.by.has(order)
        };
        orders.iter().filter(is_in).collect()
    }

    /// Returns the statement that selects the numbers of all matching orders.
    pub fn sql(&self, table: &str) -> String {
        let time = |micros: i64| format!("arrow_cast({micros}, 'Timestamp(µs, \"UTC\")')");
        let mut is_in = self.by.sql();
        is_in.extend(self.ask.start_us.map(|start| format!("_time >= {}", time(start))));
        is_in.extend(self.ask.end_us.map(|end| format!("_time < {}", time(end))));
        let is_in = if is_in.is_empty() { "true".to_owned() } else { is_in.join(" AND ") };
        format!("SELECT n FROM {table} WHERE {is_in}")
    }

    /// Compares two orders in the select's order.
    pub fn order(&self, a: &Order, b: &Order) -> Ordering {
        let turned = |order: Ordering| if self.ask.is_descending { order.reverse() } else { order };
        let by_value = match self.order_by {
            None => Ordering::Equal,
            Some(column) => match (a.value(column), b.value(column)) {
                (Some(a), Some(b)) => turned(compare(&a, &b).unwrap()),
                (a, b) => b.is_some().cmp(&a.is_some()),
            },
        };
        by_value.then_with(|| turned(a.time.cmp(&b.time)))
    }
}

fn price(entropy: &dyn Entropy) -> ModelLookup {
    let price = || Value::Int64(below(entropy, 110) as i64 - 55);
    match below(entropy, 3) {
        0 => ModelLookup::Is("price", price()),
        1 => ModelLookup::Lies("price", None, Some(price())),
        _ => ModelLookup::Lies("price", Some(price()), Some(price())),
    }
}

fn weight(entropy: &dyn Entropy) -> Option<Value> {
    let is_bound = below(entropy, 4) > 0;
    is_bound.then(|| Value::Float64(below(entropy, 220) as f64 / 8.0 - 13.0))
}

impl ModelLookup {
    fn message(&self) -> Option<By> {
        let column = |name: &str| name.to_owned();
        Some(match self {
            Self::All => return None,
            Self::User(user) => By::Key(user.clone().into()),
            Self::Is(name, value) => {
                By::Equal(Equal { column: column(name), value: Some(value.into()) })
            }
            Self::Lies(name, start, end) => By::Between(Between {
                column: column(name),
                start: start.as_ref().map(Into::into),
                end: end.as_ref().map(Into::into),
            }),
        })
    }

    fn sql(&self) -> Vec<String> {
        let literal = |value: &Value| match value {
            Value::String(text) => format!("'{text}'"),
            Value::Int64(number) => number.to_string(),
            Value::Float64(number) => format!("{number:?}"),
            other => panic!("{other:?}"),
        };
        match self {
            Self::All => Vec::new(),
            Self::User(user) => vec![format!("_key = '{user}'")],
            Self::Is(column, value) => vec![format!("{column} = {}", literal(value))],
            Self::Lies(column, from, to) => {
                let from = from.as_ref().map(|from| format!("{column} >= {}", literal(from)));
                let to = to.as_ref().map(|to| format!("{column} < {}", literal(to)));
                // A range lookup without bounds finds the events that have a value.
                let there = Some(format!("{column} IS NOT NULL"));
                [from, to, there].into_iter().flatten().collect()
            }
        }
    }

    fn has(&self, order: &Order) -> bool {
        match self {
            Self::All => true,
            Self::User(user) => order.user == *user,
            Self::Is(column, value) => {
                order.value(column).is_some_and(|own| compare(&own, value).unwrap().is_eq())
            }
            Self::Lies(column, from, to) => order.value(column).is_some_and(|own| {
                from.as_ref().is_none_or(|from| compare(from, &own).unwrap().is_le())
                    && to.as_ref().is_none_or(|to| compare(&own, to).unwrap().is_lt())
            }),
        }
    }
}

impl Order {
    fn value(&self, column: &str) -> Option<Value> {
        match column {
            "n" => Some(self.n.into()),
            "city" => self.city.clone().map(Into::into),
            "price" => self.price.map(|price| Value::Int64(price.into())),
            "weight" => self.weight.map(Value::Float64),
            _ => Some(self.note.clone().into()),
        }
    }
}
