//! Sums without rounding. Floats are whole multiples of powers of two, so sums of floats and of
//! their powers are integers times a power of two. As integers, the sums do not depend on the order
//! of the values, or on how the values were split before a merge.

use forebay_core::byte_reader::ByteReader;
use forebay_core::value::Value;
use forebay_core::{Error, Result};
use num_bigint::{BigInt, BigUint, Sign};

/// Highest power of a value that is summed.
pub(crate) const POWER_MAX: usize = 4;
/// Limbs of the fourth power of an integer, shifted by less than a limb.
const SHIFTED_LIMBS: usize = POWER_MAX + 1;
/// Bits of a limb.
const LIMB_BITS: i32 = 64;
/// Bits of a float's mantissa, the implied one included.
const MANTISSA_BITS: i64 = 53;
/// Exponent of the smallest positive float.
const EXPONENT_MIN: i64 = -1_074;

/// A finite number: an integer times a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number {
    is_negative: bool,
    magnitude: u64,
    exponent: i32,
}

impl Number {
    fn of_integer(value: i64) -> Self {
        Self { is_negative: value < 0, magnitude: value.unsigned_abs(), exponent: 0 }
    }

    fn of_float(value: f64) -> Self {
        let bits = value.to_bits();
        let (biased, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
        let (magnitude, exponent) = match biased {
            0 => (fraction, EXPONENT_MIN as i32),
            _ => (fraction | 1 << 52, biased - 1_075),
        };
        Self { is_negative: value.is_sign_negative(), magnitude, exponent }
    }
}

/// A numeric value as an operand of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numeric {
    /// A finite number.
    Finite(Number),
    /// Positive or negative infinity.
    Infinite {
        /// Whether the infinity is negative.
        is_negative: bool,
    },
}

impl Numeric {
    /// Returns the number of a value; `None` for NaN and for values of other types.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        let float = match value {
            Value::Int32(v) => return Some(Self::Finite(Number::of_integer((*v).into()))),
            Value::Int64(v) => return Some(Self::Finite(Number::of_integer(*v))),
            Value::Float32(v) => f64::from(*v),
            Value::Float64(v) => *v,
            _ => return None,
        };
        if float.is_nan() {
            return None;
        }
        if float.is_infinite() {
            return Some(Self::Infinite { is_negative: float < 0.0 });
        }
        Some(Self::Finite(Number::of_float(float)))
    }
}

/// An integer times a power of `2^64`, in two's complement with the fewest limbs, so equal sums
/// have equal limbs. A sum usually has two to six limbs; fourth powers of floats of all sizes need
/// at most 134.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExactSum {
    /// Distance of the lowest limb above the binary point, in limbs; 0 for a sum of zero.
    first: i32,
    /// The limbs. The lowest limb is not zero, and the highest is not a mere sign extension.
    limbs: Vec<u64>,
}

impl ExactSum {
    /// Adds the powers of a number to the sums: the first power to the first sum, and so on.
    pub(crate) fn add_powers(sums: &mut [Self], number: Number) {
        let mut power = [0; POWER_MAX];
        power[0] = 1;
        let (mut exponent, mut is_negative) = (0, false);
        for sum in sums {
            multiply(&mut power, number.magnitude);
            exponent += number.exponent;
            is_negative ^= number.is_negative;
            sum.add(is_negative, &power, exponent);
        }
    }

    fn add(&mut self, is_negative: bool, magnitude: &[u64; POWER_MAX], exponent: i32) {
        let limb_count = magnitude.iter().rposition(|limb| *limb != 0).map_or(0, |at| at + 1);
        if limb_count == 0 {
            return;
        }
        let (at, shift) = (exponent.div_euclid(LIMB_BITS), exponent.rem_euclid(LIMB_BITS));
        let mut shifted = [0; SHIFTED_LIMBS];
        for (place, limb) in magnitude[..limb_count].iter().enumerate() {
            let wide = u128::from(*limb) << shift;
            shifted[place] |= wide as u64;
            shifted[place + 1] |= (wide >> LIMB_BITS) as u64;
        }
        self.add_limbs(at, &shifted[..=limb_count], is_negative);
        self.trim();
    }

    /// Adds or subtracts limbs at a position; their value is never negative.
    fn add_limbs(&mut self, at: i32, limbs: &[u64], is_negative: bool) {
        self.widen(at, limbs.len());
        let from = (at - self.first) as usize;
        let mut carry = false;
        for (place, limb) in self.limbs[from..].iter_mut().enumerate() {
            let addend = limbs.get(place).copied().unwrap_or(0);
            if place >= limbs.len() && !carry {
                break;
            }
            let (sum, is_first_overflow, is_second_overflow);
            if is_negative {
                (sum, is_first_overflow) = limb.overflowing_sub(addend);
                (*limb, is_second_overflow) = sum.overflowing_sub(u64::from(carry));
            } else {
                (sum, is_first_overflow) = limb.overflowing_add(addend);
                (*limb, is_second_overflow) = sum.overflowing_add(u64::from(carry));
            }
            carry = is_first_overflow || is_second_overflow;
        }
    }

    /// Reserves this many limbs at a position, and one above all for the sign.
    fn widen(&mut self, at: i32, count: usize) {
        if self.limbs.is_empty() {
            self.first = at;
        }
        if at < self.first {
            let missing_count = (self.first - at) as usize;
            self.limbs.splice(0..0, std::iter::repeat_n(0, missing_count));
            self.first = at;
        }
        let limb_count = self.limbs.len().max((at - self.first) as usize + count) + 1;
        let sign = if self.is_negative() { u64::MAX } else { 0 };
        self.limbs.resize(limb_count, sign);
    }

    fn trim(&mut self) {
        while let Some((top, below)) = self.limbs.split_last() {
            let below_is_negative = below.last().is_some_and(|limb| *limb >> 63 == 1);
            let is_sign = match *top {
                0 => !below_is_negative,
                u64::MAX => below_is_negative,
                _ => false,
            };
            if !is_sign {
                break;
            }
            self.limbs.pop();
        }
        let zeros = self.limbs.iter().take_while(|limb| **limb == 0).count();
        self.limbs.drain(..zeros);
        self.first = if self.limbs.is_empty() { 0 } else { self.first + zeros as i32 };
    }

    fn is_negative(&self) -> bool {
        self.limbs.last().is_some_and(|limb| limb >> 63 == 1)
    }

    /// Adds another sum.
    pub(crate) fn merge(&mut self, other: &Self) {
        if other.limbs.is_empty() {
            return;
        }
        let magnitude: Vec<u64> = if other.is_negative() {
            let mut carry = true;
            let flip = |limb: &u64| {
                let (limb, next_carry) = (!limb).overflowing_add(u64::from(carry));
                carry = next_carry;
                limb
            };
            other.limbs.iter().map(flip).collect()
        } else {
            other.limbs.clone()
        };
        self.add_limbs(other.first, &magnitude, other.is_negative());
        self.trim();
    }

    /// Converts to a number for further arithmetic.
    pub(crate) fn exact(&self) -> Exact {
        let bytes: Vec<u8> = self.limbs.iter().flat_map(|limb| limb.to_le_bytes()).collect();
        let digits = BigInt::from_signed_bytes_le(&bytes);
        Exact { digits, exponent: i64::from(self.first) * i64::from(LIMB_BITS) }
    }

    /// Returns the sum of integers, saturated to the range of int64.
    pub(crate) fn to_i64(&self) -> i64 {
        let bound = if self.is_negative() { i64::MIN } else { i64::MAX };
        match (self.first, &self.limbs[..]) {
            (_, []) => 0,
            (0, [limb]) => *limb as i64,
            _ => bound,
        }
    }

    /// Appends `first i16 | limbs u16 | limb u64 *`.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&(self.first as i16).to_le_bytes());
        bytes.extend_from_slice(&(self.limbs.len() as u16).to_le_bytes());
        self.limbs.iter().for_each(|limb| bytes.extend_from_slice(&limb.to_le_bytes()));
    }

    /// Decodes a sum of this power of values.
    pub(crate) fn decode(reader: &mut ByteReader<'_>, power: usize) -> Result<Self> {
        let first = i32::from(reader.u16()? as i16);
        let count = usize::from(reader.u16()?);
        let power = power as i32;
        if first < -17 * power || first + count as i32 > 16 * power + 2 {
            return Err(Error::corrupt("the sum is larger or finer than its values allow"));
        }
        let limbs = (0..count).map(|_| reader.u64()).collect::<Result<_>>()?;
        let read = Self { first, limbs };
        let mut trimmed_sum = read.clone();
        trimmed_sum.trim();
        if trimmed_sum != read {
            return Err(Error::corrupt("the sum has too many limbs"));
        }
        Ok(read)
    }
}

fn multiply(limbs: &mut [u64; POWER_MAX], factor: u64) {
    let mut carry = 0;
    for limb in limbs {
        let wide = u128::from(*limb) * u128::from(factor) + carry;
        *limb = wide as u64;
        carry = wide >> LIMB_BITS;
    }
}

/// An integer of any size times a power of two.
#[derive(Clone, Debug)]
pub(crate) struct Exact {
    digits: BigInt,
    exponent: i64,
}

impl Exact {
    /// Creates an integer.
    pub(crate) fn of_count(count: u64) -> Self {
        Self { digits: count.into(), exponent: 0 }
    }

    /// Returns whether the number is zero.
    pub(crate) fn is_zero(&self) -> bool {
        self.digits.sign() == Sign::NoSign
    }

    /// Returns the product.
    pub(crate) fn times(&self, other: &Self) -> Self {
        let digits = &self.digits * &other.digits;
        Self { digits, exponent: self.exponent + other.exponent }
    }

    /// Returns the sum.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        let exponent = self.exponent.min(other.exponent);
        let align = |number: &Self| &number.digits << (number.exponent - exponent) as u64;
        Self { digits: align(self) + align(other), exponent }
    }

    /// Returns the product with a small integer.
    pub(crate) fn times_integer(&self, factor: i64) -> Self {
        Self { digits: &self.digits * factor, exponent: self.exponent }
    }

    /// Returns the nearest float, halves to even; infinity beyond the range of floats.
    pub(crate) fn to_f64(&self) -> f64 {
        let (mantissa, exponent) = self.round(EXPONENT_MIN);
        scale(mantissa, exponent)
    }

    /// Returns the nearest number of 53 bits, as a whole float and a power of two. If `is_even`,
    /// the exponent is even, at the cost of one more bit in the mantissa.
    pub(crate) fn scaled(&self, is_even: bool) -> (f64, i64) {
        let (mantissa, exponent) = self.round(i64::MIN);
        if is_even && exponent.rem_euclid(2) == 1 {
            return (mantissa * 2.0, exponent - 1);
        }
        (mantissa, exponent)
    }

    /// Rounds to 53 bits, or to fewer if the last bit would be below `exponent_min`.
    fn round(&self, exponent_min: i64) -> (f64, i64) {
        let magnitude = self.digits.magnitude();
        let bits = magnitude.bits() as i64;
        let exponent = (self.exponent + bits - MANTISSA_BITS).max(exponent_min);
        let bits_cut = exponent - self.exponent;
        let digits = if bits_cut <= 0 {
            magnitude << (-bits_cut) as u64
        } else {
            halve(magnitude, bits_cut as u64)
        };
        let mantissa = digits.to_u64_digits().first().copied().unwrap_or(0) as f64;
        (if self.digits.sign() == Sign::Minus { -mantissa } else { mantissa }, exponent)
    }
}

/// Returns a magnitude without its last bits, rounded to the nearest, halves to even.
fn halve(magnitude: &BigUint, bits: u64) -> BigUint {
    let quotient = magnitude >> bits;
    let is_half = magnitude.bit(bits - 1);
    let is_more = magnitude.trailing_zeros().is_some_and(|zeros| zeros < bits - 1);
    if is_half && (is_more || quotient.bit(0)) { quotient + 1_u32 } else { quotient }
}

/// Multiplies a float by a power of two. The result is rounded only if it is below all normal
/// floats.
pub(crate) fn scale(mut float: f64, mut exponent: i64) -> f64 {
    const STEP: i64 = 1_000;
    let power = |exponent: i64| f64::from_bits(((exponent + 1_023) as u64) << 52);
    // Beyond this range a float of any size becomes infinite or zero.
    exponent = exponent.clamp(-4 * STEP, 4 * STEP);
    while exponent > STEP {
        float *= power(STEP);
        exponent -= STEP;
    }
    while exponent < -STEP {
        float *= power(-STEP);
        exponent += STEP;
    }
    float * power(exponent)
}

#[cfg(test)]
mod tests;
