//! Model of a view of orders: the expected values, computed over all events by brute force.

use std::collections::BTreeMap;

use forebay::schema::Value;

pub const HOUR_US: i64 = 3_600_000_000;
pub const MINUTE_US: i64 = 60_000_000;

/// An order as inserted.
#[derive(Clone, Debug)]
pub struct Order {
    pub user: String,
    pub at: i64,
    pub city: String,
    pub price: i64,
}

/// Returns count, sum, maximum and average of the prices of some orders, over all time and over the
/// last hour in slides of a minute.
pub fn expected<'o>(
    orders: impl Iterator<Item = &'o Order> + Clone,
    now: i64,
) -> BTreeMap<String, Option<Value>> {
    let end = (now.div_euclid(MINUTE_US) + 1) * MINUTE_US;
    let is_recent = move |order: &&Order| (end - HOUR_US..end).contains(&order.at);
    let mut all = of_window("all", &orders.clone().collect::<Vec<_>>());
    all.extend(of_window("1h", &orders.filter(is_recent).collect::<Vec<_>>()));
    all
}

fn of_window(window: &str, orders: &[&Order]) -> BTreeMap<String, Option<Value>> {
    let prices: Vec<_> = orders.iter().map(|order| order.price).collect();
    let sum: i64 = prices.iter().sum();
    let is_some = !prices.is_empty();
    let values = [
        ("orders", Some(Value::Int64(prices.len() as i64))),
        ("spent", is_some.then_some(Value::Int64(sum))),
        ("dearest", prices.iter().max().map(|price| Value::Int64(*price))),
        ("average", is_some.then(|| Value::Float64(sum as f64 / prices.len() as f64))),
    ];
    values.into_iter().map(|(name, value)| (format!("{name}_{window}"), value)).collect()
}
