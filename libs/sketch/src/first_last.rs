//! Values of the first or last events, ordered by event time and then by position in the log.
//! States of parts of a stream give the same values in whatever order they are merged.

use std::cmp::Ordering;

use forebay_core::byte_reader::ByteReader;
use forebay_core::clock::Timestamp;
use forebay_core::id::Position;
use forebay_core::row::{decode_value, encode_value};
use forebay_core::value::{FieldType, ScalarType, Value};
use forebay_core::{Error, Result};

/// Order of an event among all events: by event time, then by position in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventOrder {
    /// Event time.
    pub time: Timestamp,
    /// Position in the log.
    pub position: Position,
}

#[derive(Clone, Debug, PartialEq)]
struct OrderedValue {
    at: EventOrder,
    value: Value,
}

impl OrderedValue {
    /// Compares two values. Events of two logs may have the same position; their values then
    /// decide.
    fn order(&self, other: &Self) -> Ordering {
        let bytes = |value: &Value| {
            let mut bytes = Vec::new();
            encode_value(value, &mut bytes);
            bytes
        };
        self.at.cmp(&other.at).then_with(|| bytes(&self.value).cmp(&bytes(&other.value)))
    }
}

/// A bounded number of values of the first or last events, in the events' order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FirstLast {
    is_latest: bool,
    count: u16,
    values: Vec<OrderedValue>,
}

impl FirstLast {
    /// Creates the state of no events.
    pub(crate) fn new(is_latest: bool, count: u16) -> Self {
        Self { is_latest, count, values: Vec::new() }
    }

    /// Adds a value.
    pub(crate) fn insert(&mut self, value: &Value, at: EventOrder) {
        let is_full = self.values.len() == usize::from(self.count);
        let edge = if self.is_latest { self.values.first() } else { self.values.last() };
        let is_beyond =
            |edge: &OrderedValue| if self.is_latest { at < edge.at } else { at > edge.at };
        if is_full && edge.is_some_and(is_beyond) {
            return;
        }
        self.put(OrderedValue { at, value: value.clone() });
    }

    fn put(&mut self, value: OrderedValue) {
        let place = self.values.partition_point(|before| before.order(&value) != Ordering::Greater);
        self.values.insert(place, value);
        if self.values.len() > usize::from(self.count) {
            let excess_place = if self.is_latest { 0 } else { self.values.len() - 1 };
            self.values.remove(excess_place);
        }
    }

    /// Merges another state.
    pub(crate) fn merge(&mut self, other: &Self) {
        other.values.iter().for_each(|value| self.put(value.clone()));
    }

    /// Returns the values, in the order of their events.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Value> {
        self.values.iter().map(|ordered| &ordered.value)
    }

    /// Appends `is_latest u8 | bound u16 | kept u16`, then each value: `event_time i64 | position |
    /// value_bytes u16 | value`.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self.is_latest));
        bytes.extend_from_slice(&self.count.to_le_bytes());
        bytes.extend_from_slice(&(self.values.len() as u16).to_le_bytes());
        for OrderedValue { at, value } in &self.values {
            bytes.extend_from_slice(&at.time.as_micros().to_le_bytes());
            bytes.extend_from_slice(&at.position.to_bytes());
            bytes.extend_from_slice(&(value.encoded_bytes() as u16).to_le_bytes());
            encode_value(value, bytes);
        }
    }

    /// Decodes a state with the same bound.
    pub(crate) fn decode(mut self, reader: &mut ByteReader<'_>, input: ScalarType) -> Result<Self> {
        let [is_latest] = reader.take()?;
        if is_latest != u8::from(self.is_latest) || reader.u16()? != self.count {
            return Err(Error::corrupt("the state has another bound than its aggregate"));
        }
        let count = reader.u16()?;
        if count > self.count {
            return Err(Error::corrupt("the state has too many values"));
        }
        for _ in 0..count {
            let time = reader.time()?;
            let position = Position::from_bytes(&reader.take()?);
            let value = take_value(reader, input)?;
            let next = OrderedValue { at: EventOrder { time, position }, value };
            if self.values.last().is_some_and(|last| last.order(&next) == Ordering::Greater) {
                return Err(Error::corrupt("the values are not in the order of their events"));
            }
            self.values.push(next);
        }
        Ok(self)
    }
}

/// Takes `value_bytes u16 | value` from the front, for a value that an aggregate may store.
pub(crate) fn take_value(reader: &mut ByteReader<'_>, input: ScalarType) -> Result<Value> {
    let bytes = usize::from(reader.u16()?);
    if bytes > forebay_core::limits::AGGREGATE_ITEM_BYTES_MAX {
        return Err(Error::corrupt("a value is too long"));
    }
    let value = decode_value(reader.bytes(bytes)?, FieldType::Scalar(input))?;
    if value.is_nan() {
        return Err(Error::corrupt("a value is not a number"));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use forebay_core::id::{Epoch, Offset};

    use super::*;

    fn at(time: i64, offset: u64) -> EventOrder {
        let position = Position { epoch: Epoch(0), offset: Offset(offset), index_in_entry: 0 };
        EventOrder { time: Timestamp::from_micros(time), position }
    }

    const EVENTS: [(i64, u64, i64); 6] =
        [(5, 1, 10), (-3, 2, 20), (5, 3, 30), (9, 4, 40), (-3, 5, 50), (5, 1, 60)];

    fn of(is_latest: bool, count: u16, events: &[(i64, u64, i64)]) -> FirstLast {
        let mut ordered = FirstLast::new(is_latest, count);
        for (time, offset, value) in events {
            ordered.insert(&Value::Int64(*value), at(*time, *offset));
        }
        ordered
    }

    fn values(ordered: &FirstLast) -> Vec<i64> {
        let number = |value: &Value| match value {
            Value::Int64(number) => *number,
            other => panic!("no int64: {other:?}"),
        };
        ordered.values().map(number).collect()
    }

    #[test]
    fn first_and_last_order_by_time_then_position_then_value() {
        assert_eq!(values(&of(true, 4, &EVENTS)), [10, 60, 30, 40]);
        assert_eq!(values(&of(false, 2, &EVENTS)), [20, 50]);
        assert_eq!(values(&of(true, 1, &EVENTS)), [40]);
        assert_eq!(values(&of(false, 1, &EVENTS)), [20]);
    }

    #[test]
    fn every_split_and_order_gives_the_same_state() {
        for (is_latest, count) in [(true, 3), (false, 3), (true, 1), (false, 1)] {
            let expected = of(is_latest, count, &EVENTS);
            for split in 0..EVENTS.len() {
                let (left, right) = EVENTS.split_at(split);
                let (left, right) = (of(is_latest, count, left), of(is_latest, count, right));
                for (mut into, from) in [(left.clone(), &right), (right.clone(), &left)] {
                    into.merge(from);
                    assert_eq!(into, expected);
                }
            }
        }
    }
}
