//! Sum, average, variance, standard deviation, skewness and kurtosis from exact sums of the values'
//! powers. Central moments are computed in integers of any size, so nothing cancels and the order
//! of the values is irrelevant; a result is rounded only when it is read.

use forebay_core::byte_reader::ByteReader;
use forebay_core::value::Value;
use forebay_core::{Error, Result};

use crate::exact::{Exact, ExactSum, Numeric, scale};

const FLAG_POSITIVE: u8 = 1;
const FLAG_NEGATIVE: u8 = 1 << 1;
const FLAGS_KNOWN: u8 = FLAG_POSITIVE | FLAG_NEGATIVE;

/// Number of values, and the sums of their powers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PowerSums {
    count: u64,
    /// Flags of the infinities among the values.
    infinities: u8,
    sums: Vec<ExactSum>,
}

impl PowerSums {
    /// Creates the state of no values.
    pub(crate) fn new(powers: u8) -> Self {
        let sums = vec![ExactSum::default(); usize::from(powers)];
        Self { count: 0, infinities: 0, sums }
    }

    /// Adds a value; NaN and values that are not numbers are left out.
    pub(crate) fn insert(&mut self, value: &Value) {
        match Numeric::of(value) {
            None => return,
            Some(Numeric::Finite(number)) => ExactSum::add_powers(&mut self.sums, number),
            Some(Numeric::Infinite { is_negative: true }) => self.infinities |= FLAG_NEGATIVE,
            Some(Numeric::Infinite { is_negative: false }) => self.infinities |= FLAG_POSITIVE,
        }
        self.count = self.count.saturating_add(1);
    }

    /// Merges a state with the same number of powers.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.infinities |= other.infinities;
        self.sums.iter_mut().zip(&other.sums).for_each(|(sum, other)| sum.merge(other));
    }

    /// Returns the sum if there are infinities: an infinity, or NaN.
    fn infinite(&self) -> Option<f64> {
        match self.infinities {
            0 => None,
            FLAG_POSITIVE => Some(f64::INFINITY),
            FLAG_NEGATIVE => Some(f64::NEG_INFINITY),
            _ => Some(NAN),
        }
    }

    fn power(&self, power: usize) -> Exact {
        self.sums.get(power - 1).map_or_else(|| Exact::of_count(0), ExactSum::exact)
    }

    /// Returns the sum of integers, saturated to the range of int64.
    pub(crate) fn sum_of_integers(&self) -> Option<i64> {
        (self.count > 0).then(|| self.sums.first().map_or(0, ExactSum::to_i64))
    }

    /// Returns the sum of floats, rounded once.
    pub(crate) fn sum_of_floats(&self) -> Option<f64> {
        let sum = || self.infinite().unwrap_or_else(|| self.power(1).to_f64());
        (self.count > 0).then(sum)
    }

    /// Returns the sum, rounded to 53 bits, divided by the count.
    pub(crate) fn average(&self) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        let (sum, exponent) = self.power(1).scaled(false);
        Some(self.infinite().unwrap_or_else(|| scale(sum / self.count as f64, exponent)))
    }

    /// Returns `n·s2 − s1²`: the variance times the square of the count.
    fn second(&self) -> Exact {
        let (n, s1, s2) = (Exact::of_count(self.count), self.power(1), self.power(2));
        n.times(&s2).plus(&s1.times(&s1).times_integer(-1))
    }

    /// Returns `n²·s3 − 3n·s1·s2 + 2·s1³`: the third central moment times the cube of the count.
    fn third(&self) -> Exact {
        let n = Exact::of_count(self.count);
        let (s1, s2, s3) = (self.power(1), self.power(2), self.power(3));
        let squared = n.times(&n).times(&s3);
        squared
            .plus(&n.times(&s1).times(&s2).times_integer(-3))
            .plus(&s1.times(&s1).times(&s1).times_integer(2))
    }

    /// Returns `n³·s4 − 4n²·s1·s3 + 6n·s1²·s2 − 3·s1⁴`: the fourth central moment times the fourth
    /// power of the count.
    fn fourth(&self) -> Exact {
        let n = Exact::of_count(self.count);
        let (s1, s2, s3, s4) = (self.power(1), self.power(2), self.power(3), self.power(4));
        let (nn, s11) = (n.times(&n), s1.times(&s1));
        let sum = nn.times(&n).times(&s4).plus(&nn.times(&s1).times(&s3).times_integer(-4));
        sum.plus(&n.times(&s11).times(&s2).times_integer(6))
            .plus(&s11.times(&s11).times_integer(-3))
    }

    /// Returns the variance of the population.
    pub(crate) fn variance(&self) -> Option<f64> {
        self.spread(|second, count| {
            let (second, exponent) = second.scaled(false);
            scale(second / (count * count), exponent)
        })
    }

    /// Returns the square root of the variance, which may be a finite float although the variance
    /// is not.
    pub(crate) fn standard_deviation(&self) -> Option<f64> {
        self.spread(|second, count| {
            let (second, exponent) = second.scaled(true);
            scale(second.sqrt() / count, exponent / 2)
        })
    }

    fn spread(&self, measure: impl Fn(&Exact, f64) -> f64) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        let spread =
            if self.infinities == 0 { measure(&self.second(), self.count as f64) } else { NAN };
        Some(canonical(spread))
    }

    /// Returns the skewness; `None` if all values are equal.
    pub(crate) fn skewness(&self) -> Option<f64> {
        self.standardise(self.third(), |second| second * second.sqrt(), 3)
    }

    /// Returns the kurtosis less 3; `None` if all values are equal.
    pub(crate) fn kurtosis(&self) -> Option<f64> {
        let moment = self.standardise(self.fourth(), |second| second * second, 4)?;
        Some(moment - 3.0)
    }

    /// Returns a moment divided by a power of the second moment; the powers of the count cancel.
    fn standardise(&self, moment: Exact, power: fn(f64) -> f64, halves: i64) -> Option<f64> {
        if self.infinities != 0 {
            return Some(NAN);
        }
        let second = self.second();
        if second.is_zero() {
            return None;
        }
        let ((moment, exponent), (second, second_exponent)) =
            (moment.scaled(false), second.scaled(true));
        Some(canonical(scale(moment / power(second), exponent - second_exponent / 2 * halves)))
    }

    /// Appends `count u64 | infinities u8 | powers u8 | sum *`.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.count.to_le_bytes());
        bytes.extend_from_slice(&[self.infinities, self.sums.len() as u8]);
        self.sums.iter().for_each(|sum| sum.encode(bytes));
    }

    /// Decodes a state with this number of powers.
    pub(crate) fn decode(reader: &mut ByteReader<'_>, powers: u8) -> Result<Self> {
        let count = reader.u64()?;
        let [infinities, found] = reader.take()?;
        if infinities & !FLAGS_KNOWN != 0 {
            return Err(Error::corrupt("the state has more infinities than values"));
        }
        if found != powers {
            return Err(Error::corrupt("the state has other powers than its aggregate"));
        }
        let sum = |power: u8| ExactSum::decode(reader, usize::from(power));
        let sums: Vec<_> = (1..=powers).map(sum).collect::<Result<_>>()?;
        let of_none = Self { count: 0, infinities: 0, sums };
        if count == 0 && (infinities != 0 || of_none != Self::new(powers)) {
            return Err(Error::corrupt("the state has a sum of no values"));
        }
        Ok(Self { count, infinities, ..of_none })
    }
}

/// The canonical NaN, the same on every processor.
pub(crate) const NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0000);

fn canonical(float: f64) -> f64 {
    if float.is_nan() { NAN } else { float }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> PowerSums {
        let mut sums = PowerSums::new(4);
        values.iter().for_each(|value| sums.insert(&Value::Float64(*value)));
        sums
    }

    fn all(sums: &PowerSums) -> [Option<f64>; 5] {
        let spread = [sums.variance(), sums.standard_deviation()];
        [sums.average(), spread[0], spread[1], sums.skewness(), sums.kurtosis()]
    }

    #[test]
    fn known_samples_have_known_moments() {
        let sums = of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        let [average, variance, deviation, skewness, kurtosis] = all(&sums).map(Option::unwrap);
        assert_eq!([average, variance, deviation], [5.0, 4.0, 2.0]);
        assert_eq!([skewness, kurtosis], [0.656_25, -0.218_75]);
        assert_eq!(sums.sum_of_floats(), Some(40.0));
    }

    /// Proves that the spread of values far from zero is exact; raw sums of floats would lose it
    /// completely.
    #[test]
    fn small_spread_far_from_zero_is_not_lost() {
        let near_values: Vec<f64> = (0..1_000).map(|v| f64::from(v % 10)).collect();
        let far_values: Vec<f64> = near_values.iter().map(|v| v + 1e15).collect();
        assert_eq!(all(&of(&far_values))[1..], all(&of(&near_values))[1..]);
    }

    #[test]
    fn empty_and_constant_samples_have_no_skewness_or_kurtosis() {
        assert_eq!(all(&of(&[])), [None; 5]);
        assert_eq!(of(&[]).sum_of_floats(), None);
        assert_eq!(all(&of(&[0.1; 7])), [Some(0.1), Some(0.0), Some(0.0), None, None]);
    }

    #[test]
    fn moments_survive_intermediate_overflow() {
        let wide = of(&[f64::MAX, f64::MAX, -f64::MAX, -f64::MAX]);
        let infinite = Some(f64::INFINITY);
        let [average, variance, deviation, skewness, kurtosis] = all(&wide);
        assert_eq!((average, variance, deviation), (Some(0.0), infinite, Some(f64::MAX)));
        assert_eq!((skewness, kurtosis), (Some(0.0), Some(-2.0)));
        assert_eq!(of(&[f64::MAX, f64::MAX]).average(), Some(f64::MAX));
        let tiny = of(&[f64::from_bits(1), 0.0, 0.0, 0.0]);
        assert_eq!((tiny.variance(), tiny.skewness().map(f64::round)), (Some(0.0), Some(1.0)));
    }

    #[test]
    fn moments_ignore_nan_and_reflect_infinities() {
        let sums_with = |added_values: &[f64]| of(&[&[1.0, 3.0], added_values].concat());
        assert_eq!(sums_with(&[f64::NAN]), sums_with(&[]));
        let positive = sums_with(&[f64::INFINITY]);
        assert_eq!(positive.sum_of_floats(), Some(f64::INFINITY));
        assert_eq!(positive.average(), Some(f64::INFINITY));
        assert!(all(&positive)[1..].iter().all(|moment| moment.is_some_and(f64::is_nan)));
        let both_infinities = sums_with(&[f64::INFINITY, f64::NEG_INFINITY]);
        assert_eq!(both_infinities.sum_of_floats().map(f64::to_bits), Some(NAN.to_bits()));
    }

    #[test]
    fn integers_are_exact_beyond_floats() {
        let mut sums = PowerSums::new(2);
        let large = i64::MAX - 1;
        [large, large, 1 - large].iter().for_each(|v| sums.insert(&Value::Int64(*v)));
        assert_eq!(sums.sum_of_integers(), Some(i64::MAX));
        let mut apart = PowerSums::new(2);
        [large, large - 2].iter().for_each(|v| apart.insert(&Value::Int64(*v)));
        assert_eq!(apart.variance(), Some(1.0));
        assert_eq!(apart.sum_of_integers(), Some(i64::MAX), "at the end of the range");
    }
}
