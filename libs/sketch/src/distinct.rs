//! Approximate number of different values: a HyperLogLog sketch of Apache DataSketches with one
//! byte for each register. The estimate uses the registers alone, not the order in which they rose,
//! so every split and order of the values gives the same estimate.

use datasketches::common::NumStdDev;
use datasketches::hash::value::{canonical_float, raw_bytes};
use datasketches::hll::{HllSketch, HllType, HllUnion};
use forebay_core::value::Value;
use forebay_core::{Error, Result};

/// Positions of the number of registers and of the mode in a sketch's bytes.
const LG_K_AT: usize = 3;
const MODE_AT: usize = 7;
/// Mode of a register array with one byte for each register; the bits above have no meaning.
const MODE_REGISTERS: u8 = 0b1010;
const MODE_BITS: u8 = 0b1111;
const REGISTERS_AT: usize = 40;
/// Greatest value of a register for 64-bit hashes.
const REGISTER_MAX: u8 = 63;

/// State of a distinct count.
#[derive(Clone, Debug)]
pub(crate) struct Distinct {
    sketch: HllSketch,
}

/// An estimate with its error bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) count: f64,
    pub(crate) lower: f64,
    pub(crate) upper: f64,
}

impl Distinct {
    /// Creates an empty sketch with `2^lg_k` registers.
    pub(crate) fn new(lg_k: u8) -> Result<Self> {
        let creation_error = |error| {
            Error::internal(format!(
                "a HyperLogLog sketch of lg_k {lg_k} could not be created: {error}"
            ))
        };
        let sketch = HllSketch::new(lg_k, HllType::Hll8).map_err(creation_error)?;
        Ok(Self { sketch })
    }

    /// Adds a value, hashed as DataSketches hashes it in every language: integers, times and bools
    /// as 64 bits, floats as doubles, strings and bytes unchanged.
    pub(crate) fn insert(&mut self, value: &Value) {
        match value {
            Value::Bool(v) => self.sketch.update(i64::from(*v)),
            Value::Int32(v) => self.sketch.update(i64::from(*v)),
            Value::Int64(v) | Value::Timestamp(v) => self.sketch.update(*v),
            Value::Float32(v) => self.sketch.update(canonical_float::from_f64(f64::from(*v))),
            Value::Float64(v) => self.sketch.update(canonical_float::from_f64(*v)),
            Value::String(v) => self.sketch.update(raw_bytes::from_str(v)),
            Value::Bytes(v) => self.sketch.update(raw_bytes::from_slice(v)),
            _ => {}
        }
    }

    /// Merges a sketch with the same number of registers.
    pub(crate) fn merge(&mut self, other: &Self) -> Result<()> {
        self.sketch = union(&self.sketch, &other.sketch)?;
        Ok(())
    }

    /// Returns the estimate, with its bounds at this many standard deviations.
    pub(crate) fn estimate(&self, confidence_stddevs: Option<u8>) -> Result<Estimate> {
        let count = self.sketch.composite_estimate();
        let deviations = match confidence_stddevs {
            None => return Ok(Estimate { count, lower: count, upper: count }),
            Some(1) => NumStdDev::One,
            Some(2) => NumStdDev::Two,
            Some(_) => NumStdDev::Three,
        };
        let sketch = self.without_history()?;
        let (lower, upper) = (sketch.lower_bound(deviations), sketch.upper_bound(deviations));
        Ok(Estimate { count, lower, upper })
    }

    /// Returns the sketch without its record of the order of its values: the union of the sketch
    /// with itself.
    fn without_history(&self) -> Result<HllSketch> {
        union(&self.sketch, &self.sketch)
    }

    /// Appends the sketch in the byte form of DataSketches.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.extend_from_slice(&self.without_history()?.serialize());
        Ok(())
    }

    /// Decodes a sketch with this number of registers, written by DataSketches in any language.
    pub(crate) fn decode(bytes: &[u8], lg_k: u8) -> Result<Self> {
        if bytes.get(LG_K_AT) != Some(&lg_k) {
            return Err(Error::corrupt(
                "the sketch has another number of registers than its aggregate",
            ));
        }
        let mode = bytes.get(MODE_AT).map(|mode| mode & MODE_BITS);
        let has_registers = mode == Some(MODE_REGISTERS);
        let mut registers = bytes.iter().skip(REGISTERS_AT);
        if has_registers && registers.any(|register| *register > REGISTER_MAX) {
            return Err(Error::corrupt("a register is above the largest value of a hash"));
        }
        let decode_error =
            |error| Error::corrupt(format!("the bytes are not a HyperLogLog sketch: {error}"));
        let sketch = HllSketch::deserialize(bytes).map_err(decode_error)?;
        if sketch.target_type() != HllType::Hll8 || sketch.serialize().len() != bytes.len() {
            return Err(Error::corrupt("the sketch does not have one byte for each register"));
        }
        let read = Self { sketch };
        Ok(Self { sketch: read.without_history()? })
    }
}

fn union(a: &HllSketch, b: &HllSketch) -> Result<HllSketch> {
    let merge_error =
        |error| Error::internal(format!("the HyperLogLog sketches could not be merged: {error}"));
    let mut union = HllUnion::new(a.lg_config_k()).map_err(merge_error)?;
    union.update(a);
    union.update(b);
    Ok(union.to_sketch(HllType::Hll8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: impl IntoIterator<Item = i64>) -> Distinct {
        let mut distinct = Distinct::new(10).unwrap();
        numbers.into_iter().for_each(|number| distinct.insert(&Value::Int64(number)));
        distinct
    }

    /// Proves from a few coupons up to all registers that the order does not matter and that
    /// repeats change nothing.
    #[test]
    fn estimate_is_equal_for_any_order_and_split() {
        for count in [0, 3, 8, 9, 90, 97, 500, 20_000] {
            let sketch = of(0..count);
            let expected = sketch.estimate(Some(2)).unwrap();
            assert_eq!(of((0..count).rev().chain(0..count)).estimate(Some(2)).unwrap(), expected);
            for split_at in [0, 1, count / 3, count / 2, count] {
                let (left, right) = (of(0..split_at.min(count)), of(split_at.min(count)..count));
                for (mut into, from) in [(left.clone(), &right), (right.clone(), &left)] {
                    into.merge(from).unwrap();
                    assert_eq!(into.estimate(Some(2)).unwrap(), expected, "{count} at {split_at}");
                }
            }
            let mut bytes = Vec::new();
            sketch.encode(&mut bytes).unwrap();
            assert_eq!(Distinct::decode(&bytes, 10).unwrap().estimate(Some(2)).unwrap(), expected);
        }
    }

    /// Proves that a register above the hash length is refused; the library accepts any byte and
    /// shifts by it.
    #[test]
    fn register_above_the_hash_length_is_refused() {
        let mut bytes = Vec::new();
        of(0..20_000).encode(&mut bytes).unwrap();
        for (mode, register) in [(0, 64), (0xf0, 64), (0xf0, 255)] {
            let mut forged_bytes = bytes.clone();
            forged_bytes[MODE_AT] |= mode;
            forged_bytes[REGISTERS_AT + 9] = register;
            let error = Distinct::decode(&forged_bytes, 10).unwrap_err();
            assert_eq!(error.code(), forebay_core::ErrorCode::Corrupt);
        }
    }

    #[test]
    fn few_values_are_counted_exactly() {
        for count in 0..60 {
            assert_eq!(of(0..count).estimate(None).unwrap().count.round() as i64, count);
        }
    }

    #[test]
    fn true_count_is_within_the_bounds() {
        for count in [1_000, 5_000, 100_000] {
            let Estimate { count: found, lower, upper } = of(0..count).estimate(Some(3)).unwrap();
            let truth = count as f64;
            assert!(lower <= truth && truth <= upper, "{lower} {truth} {upper}");
            assert!((found - truth).abs() < truth * 3.0 * 1.04 / 32.0);
        }
    }

    #[test]
    fn values_of_every_type_are_distinguished() {
        let count = |values: &[Value]| {
            let mut distinct = Distinct::new(12).unwrap();
            values.iter().for_each(|value| distinct.insert(value));
            distinct.estimate(None).unwrap().count.round()
        };
        let texts = ["", "a", "b", "a"].map(|text| Value::String(text.to_owned()));
        assert_eq!(count(&texts), 3.0, "no text is one too");
        assert_eq!(count(&[0.0, -0.0, 1.5].map(Value::Float64)), 2.0);
        assert_eq!(count(&[1.5, 2.5, 1.5].map(Value::Float32)), 2.0);
        assert_eq!(count(&[vec![0], vec![0, 0], vec![]].map(Value::Bytes)), 3.0);
        assert_eq!(count(&[true, false, true].map(Value::Bool)), 2.0);
        assert_eq!(count(&[-7, 7, i32::MIN, 7].map(Value::Int32)), 3.0);
        assert_eq!(count(&[-7, 7, i64::MIN, 7].map(Value::Timestamp)), 3.0);
    }
}
