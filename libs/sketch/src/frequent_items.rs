//! Approximately most frequent values: the frequent-items sketch of Apache DataSketches (Misra and
//! Gries), in its byte form. The table is our own. The library's merge visits the table in slot
//! order, and a decoded state has other slots than the encoded one.

use std::collections::BTreeMap;

use forebay_core::byte_reader::ByteReader;
use forebay_core::value::{ScalarType, Value};
use forebay_core::{Error, Result};

use crate::min_max::order;

const PREAMBLE_LONGS_EMPTY: u8 = 1;
const PREAMBLE_LONGS: u8 = 4;
const SERIAL_VERSION: u8 = 1;
const FAMILY: u8 = 10;
const FLAGS_EMPTY: u8 = 5;
const LG_COUNTERS_MIN: u8 = 3;

/// Counters of values. A count is too low by at most `offset`, and `offset` is at most 2.7 times
/// `weight` over the table's size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FrequentItems {
    lg_counters: u8,
    /// Number of values that were added.
    weight: u64,
    /// Total that was subtracted from every counter.
    offset: u64,
    /// Counters by the items' bytes, none of them 0.
    counters: BTreeMap<Box<[u8]>, u64>,
}

impl FrequentItems {
    /// Creates an empty sketch with three quarters of `2^lg_counters` counters.
    pub(crate) fn new(lg_counters: u8) -> Self {
        Self { lg_counters, weight: 0, offset: 0, counters: BTreeMap::new() }
    }

    /// Returns whether no value was added. A sketch that is not empty may have no counters, if all
    /// values were equally rare.
    pub(crate) fn is_empty(&self) -> bool {
        self.weight == 0
    }

    /// Adds a value.
    pub(crate) fn insert(&mut self, value: &Value) {
        let integer = match value {
            Value::Bool(v) => i64::from(*v),
            Value::Int32(v) => i64::from(*v),
            Value::Int64(v) | Value::Timestamp(v) => *v,
            Value::String(v) => return self.count(v.as_bytes(), 1),
            _ => return,
        };
        self.count(&integer.to_le_bytes(), 1);
    }

    fn count(&mut self, item: &[u8], weight: u64) {
        self.weight = self.weight.saturating_add(weight);
        self.raise(item, weight);
        self.purge();
    }

    fn raise(&mut self, item: &[u8], weight: u64) {
        match self.counters.get_mut(item) {
            Some(counter) => *counter = counter.saturating_add(weight),
            None => {
                self.counters.insert(item.into(), weight);
            }
        }
    }

    /// Subtracts the median counter from every counter while there are too many counters; each
    /// round removes half of them.
    fn purge(&mut self) {
        while self.counters.len() > capacity(self.lg_counters) {
            let mut counts: Vec<u64> = self.counters.values().copied().collect();
            let middle = counts.len() / 2;
            let median = *counts.select_nth_unstable(middle).1;
            self.offset = self.offset.saturating_add(median);
            self.counters.retain(|_, counter| {
                *counter = counter.saturating_sub(median);
                *counter > 0
            });
        }
    }

    /// Merges a sketch with the same number of counters.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.weight = self.weight.saturating_add(other.weight);
        self.offset = self.offset.saturating_add(other.offset);
        other.counters.iter().for_each(|(item, counter)| self.raise(item, *counter));
        self.purge();
    }

    /// Returns the most frequent values with their upper-bound counts, most frequent first; of two
    /// values with equal counts the lesser comes first.
    pub(crate) fn top(&self, count: u16, input: ScalarType) -> Result<Vec<(Value, u64)>> {
        let mut rows = Vec::with_capacity(self.counters.len());
        for (item, counter) in &self.counters {
            rows.push((value_of(item, input)?, counter.saturating_add(self.offset)));
        }
        rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| order(&a.0, &b.0)));
        rows.truncate(usize::from(count));
        Ok(rows)
    }

    /// Appends the sketch in the byte form of DataSketches: a sketch of longs for numbers, of
    /// strings for text.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>, input: ScalarType) {
        let is_empty = self.is_empty();
        let preamble = if is_empty { PREAMBLE_LONGS_EMPTY } else { PREAMBLE_LONGS };
        let flags = if is_empty { FLAGS_EMPTY } else { 0 };
        let lg_now = (LG_COUNTERS_MIN..self.lg_counters)
            .find(|lg| self.counters.len() <= capacity(*lg))
            .unwrap_or(self.lg_counters);
        bytes.extend_from_slice(&[
            preamble,
            SERIAL_VERSION,
            FAMILY,
            self.lg_counters,
            lg_now,
            flags,
        ]);
        bytes.extend_from_slice(&[0; 2]);
        if is_empty {
            return;
        }
        bytes.extend_from_slice(&(self.counters.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&self.weight.to_le_bytes());
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        self.counters.values().for_each(|counter| bytes.extend_from_slice(&counter.to_le_bytes()));
        for item in self.counters.keys() {
            if input == ScalarType::String {
                bytes.extend_from_slice(&(item.len() as u32).to_le_bytes());
            }
            bytes.extend_from_slice(item);
        }
    }

    /// Decodes a sketch with this number of counters, written by DataSketches in any language.
    pub(crate) fn decode(
        reader: &mut ByteReader<'_>,
        lg_counters: u8,
        input: ScalarType,
    ) -> Result<Self> {
        let [preamble, version, family, lg_max, lg_now, flags, _, _] = reader.take()?;
        if (version, family) != (SERIAL_VERSION, FAMILY) {
            return Err(Error::corrupt("the bytes are not a sketch of frequent items"));
        }
        if lg_max != lg_counters || !(LG_COUNTERS_MIN..=lg_max).contains(&lg_now) {
            return Err(Error::corrupt(
                "the sketch has another number of counters than its aggregate",
            ));
        }
        let mut read = Self::new(lg_counters);
        match (preamble & 0x3f, flags & FLAGS_EMPTY) {
            (PREAMBLE_LONGS_EMPTY, 1..) => return Ok(read),
            (PREAMBLE_LONGS, 0) => {}
            _ => {
                return Err(Error::corrupt(
                    "the sketch contradicts itself: it is marked as empty and has counters",
                ));
            }
        }
        let count = reader.u32()? as usize;
        reader.u32()?;
        (read.weight, read.offset) = (reader.u64()?, reader.u64()?);
        if count > capacity(lg_now) || read.weight == 0 {
            return Err(Error::corrupt(
                "the sketch has too many counters, or counters without values",
            ));
        }
        let counts: Vec<u64> = (0..count).map(|_| reader.u64()).collect::<Result<_>>()?;
        let counts_sum = counts.iter().try_fold(0_u64, |sum, counter| sum.checked_add(*counter));
        if counts.contains(&0) || counts_sum.is_none_or(|counts_sum| counts_sum > read.weight) {
            return Err(Error::corrupt(
                "the counters of the sketch do not match its number of values",
            ));
        }
        for counter in counts {
            let item = take_item(reader, input)?;
            value_of(item, input)?;
            if read.counters.insert(item.into(), counter).is_some() {
                return Err(Error::corrupt("the sketch counts a value twice"));
            }
        }
        Ok(read)
    }
}

/// Returns the number of counters of a table with `2^lg` slots.
fn capacity(lg: u8) -> usize {
    (1_usize << lg) * 3 / 4
}

fn take_item<'b>(reader: &mut ByteReader<'b>, input: ScalarType) -> Result<&'b [u8]> {
    if input != ScalarType::String {
        return reader.bytes(8);
    }
    let count = reader.u32()? as usize;
    if count > forebay_core::limits::AGGREGATE_ITEM_BYTES_MAX {
        return Err(Error::corrupt("a value of the sketch is too long"));
    }
    reader.bytes(count)
}

/// Returns the value of an item's bytes.
fn value_of(item: &[u8], input: ScalarType) -> Result<Value> {
    let item_error = || Error::corrupt("an item of the sketch is not a value of its column");
    if input == ScalarType::String {
        return Ok(Value::String(std::str::from_utf8(item).map_err(|_| item_error())?.to_owned()));
    }
    let integer = i64::from_le_bytes(item.try_into().map_err(|_| item_error())?);
    match (input, integer) {
        (ScalarType::Bool, 0 | 1) => Ok(Value::Bool(integer == 1)),
        (ScalarType::Int32, _) => {
            i32::try_from(integer).map(Value::Int32).map_err(|_| item_error())
        }
        (ScalarType::Int64, _) => Ok(Value::Int64(integer)),
        (ScalarType::Timestamp, _) => Ok(Value::Timestamp(integer)),
        _ => Err(item_error()),
    }
}

#[cfg(test)]
mod tests {
    use datasketches::frequencies::FrequentItemsSketch;

    use super::*;
    use crate::state::byte_reader;

    const STRING: ScalarType = ScalarType::String;

    fn text(number: u64) -> Value {
        Value::String(format!("item-{number:04}"))
    }

    /// Returns items such that item n occurs about 2,000 / n times, the frequent ones scattered
    /// among the rest.
    fn skewed() -> Vec<u64> {
        let mut all: Vec<_> = (1..=500_u64).flat_map(|n| vec![n; (2_000 / n) as usize]).collect();
        let length = all.len();
        (0..length).for_each(|at| all.swap(at, (at * 7_919) % length));
        all
    }

    fn of(lg_counters: u8, numbers: &[u64]) -> FrequentItems {
        let mut frequent = FrequentItems::new(lg_counters);
        numbers.iter().for_each(|number| frequent.insert(&text(*number)));
        frequent
    }

    fn bytes_of(frequent: &FrequentItems) -> Vec<u8> {
        let mut bytes = Vec::new();
        frequent.encode(&mut bytes, STRING);
        bytes
    }

    fn truth(number: u64) -> u64 {
        2_000 / number
    }

    fn check(frequent: &FrequentItems, weight: u64, name: &str) {
        assert_eq!(frequent.weight, weight, "{name}");
        let bound = 3.5 * weight as f64 / f64::from(1 << frequent.lg_counters);
        assert!(frequent.offset as f64 <= bound, "{name}: {} beyond {bound}", frequent.offset);
        for number in 1..=500 {
            let counter = match text(number) {
                Value::String(text) => frequent.counters.get(text.as_bytes()).copied().unwrap_or(0),
                _ => 0,
            };
            let upper_bound = counter + frequent.offset;
            assert!((counter..=upper_bound).contains(&truth(number)), "{name}: item {number}");
        }
    }

    #[test]
    fn item_counts_are_within_the_stated_error() {
        let events = skewed();
        let frequent = of(6, &events);
        check(&frequent, events.len() as u64, "one by one");
        assert!(frequent.offset > 0, "nothing was purged");
        let top = frequent.top(3, STRING).unwrap();
        assert_eq!(top.iter().map(|row| row.0.clone()).collect::<Vec<_>>(), [1, 2, 3].map(text));
        let (left, right) = events.split_at(events.len() / 3);
        let (mut merged, right) = (of(6, left), of(6, right));
        let mut other = right.clone();
        other.merge(&merged);
        merged.merge(&right);
        check(&merged, events.len() as u64, "merged");
        assert_eq!(merged, other, "two states merge alike either way");
    }

    #[test]
    fn item_counts_are_exact_while_they_fit() {
        let frequent = of(10, &skewed());
        assert_eq!(frequent.offset, 0);
        let top = frequent.top(500, STRING).unwrap();
        let expected: Vec<_> = (1..=500).map(|number| (text(number), truth(number))).collect();
        assert_eq!(top, expected, "and those of one count stand by their values");
    }

    #[test]
    fn frequent_items_encode_like_the_library() {
        for (lg_counters, events) in [(6, skewed()), (10, skewed()), (3, vec![1]), (3, vec![])] {
            let frequent = of(lg_counters, &events);
            let bytes = bytes_of(&frequent);
            let read = FrequentItemsSketch::<String>::deserialize(&bytes).unwrap();
            assert_eq!(read.total_weight(), events.len() as u64);
            assert_eq!(read.maximum_error(), frequent.offset);
            assert_eq!(read.num_active_items(), frequent.counters.len());
            for (item, counter) in &frequent.counters {
                let item = String::from_utf8(item.to_vec()).unwrap();
                assert_eq!(read.lower_bound(&item), *counter);
            }
            let bytes = read.serialize();
            let decoded = FrequentItems::decode(&mut byte_reader(&bytes), lg_counters, STRING);
            assert_eq!(decoded.unwrap(), frequent);
        }
    }

    #[test]
    fn every_item_type_round_trips() {
        let values = [
            (ScalarType::Bool, Value::Bool(true)),
            (ScalarType::Int32, Value::Int32(-5)),
            (ScalarType::Int64, Value::Int64(i64::MIN)),
            (ScalarType::Timestamp, Value::Timestamp(7)),
            (STRING, Value::String(String::new())),
        ];
        for (input, value) in values {
            let mut frequent = FrequentItems::new(4);
            frequent.insert(&value);
            assert_eq!(frequent.top(1, input).unwrap(), [(value, 1)]);
        }
    }
}
