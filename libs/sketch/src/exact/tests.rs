//! Compares exact sums with big integers: any floats in any order, rounding, bytes.

use forebay_core::ErrorCode;
use proptest::prelude::*;

use super::*;

fn number(value: f64) -> Number {
    Number::of_float(value)
}

fn sums(values: &[f64], powers: usize) -> Vec<ExactSum> {
    let mut sums = vec![ExactSum::default(); powers];
    values.iter().for_each(|value| ExactSum::add_powers(&mut sums, number(*value)));
    sums
}

fn sum(values: &[f64]) -> f64 {
    sums(values, 1)[0].exact().to_f64()
}

/// Computes the same sum with the library's integers alone, in units of the smallest float's power.
fn oracle(values: &[f64], power: u32) -> BigInt {
    let unit = |value: f64| {
        let number = number(value);
        let shift = (i64::from(number.exponent) - EXPONENT_MIN) as u64;
        let digits = BigInt::from(number.magnitude) << shift;
        if number.is_negative { -digits } else { digits }
    };
    values.iter().map(|value| unit(*value).pow(power)).sum()
}

fn in_units(sum: &ExactSum, power: i64) -> BigInt {
    let exact = sum.exact();
    let shift = exact.exponent - power * EXPONENT_MIN;
    // Limbs begin at multiples of 64 bits, a little below the unit.
    if shift >= 0 { exact.digits << shift as u64 } else { exact.digits >> (-shift) as u64 }
}

/// Returns floats of every exponent, mixed with values that cancel in sums, which random floats
/// hardly ever do.
fn floats() -> impl Strategy<Value = Vec<f64>> {
    let any_bits = any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |v| v.is_finite());
    let close = (-1_000_i32..1_000).prop_map(|v| f64::from(v) / 8.0);
    let signed_one =
        prop_oneof![Just(1.0), Just(-1.0), Just(f64::MAX), Just(-f64::MAX), Just(-0.0)];
    proptest::collection::vec(prop_oneof![any_bits, close, signed_one], 0..40)
}

proptest! {
    #[test]
    fn sums_of_powers_equal_those_of_big_integers(values in floats(), split in 0..40_usize) {
        let (left, right) = values.split_at(split.min(values.len()));
        let (mut merged, right) = (sums(left, 4), sums(right, 4));
        merged.iter_mut().zip(&right).for_each(|(sum, other)| sum.merge(other));
        for (place, sum) in merged.iter().enumerate() {
            let power = place as u32 + 1;
            prop_assert_eq!(in_units(sum, power.into()), oracle(&values, power));
            let mut bytes = Vec::new();
            sum.encode(&mut bytes);
            let mut reader = ByteReader::new(&bytes, || Error::corrupt("short"));
            prop_assert_eq!(&ExactSum::decode(&mut reader, place + 1).unwrap(), sum);
            prop_assert!(reader.rest().is_empty());
        }
        let mut reversed = values.clone();
        reversed.reverse();
        prop_assert_eq!(sums(&reversed, 4), merged, "the order is seen");
    }

    #[test]
    fn single_float_survives_the_sum(bits in any::<u64>()) {
        let value = f64::from_bits(bits);
        prop_assume!(value.is_finite());
        prop_assert_eq!(sum(&[value]), value);
    }

    /// Proves that the sum of two floats, rounded once, equals the processor's result.
    #[test]
    fn sum_of_two_floats_rounds_like_the_processor(a in any::<u64>(), b in any::<u64>()) {
        let (a, b) = (f64::from_bits(a), f64::from_bits(b));
        prop_assume!(a.is_finite() && b.is_finite());
        prop_assert_eq!(sum(&[a, b]), a + b);
    }

    #[test]
    fn integers_sum_and_saturate(values in proptest::collection::vec(any::<i64>(), 0..9)) {
        let mut sums = [ExactSum::default()];
        values.iter().for_each(|v| ExactSum::add_powers(&mut sums, Number::of_integer(*v)));
        let wide: i128 = values.iter().map(|v| i128::from(*v)).sum();
        let clamped = wide.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        prop_assert_eq!(sums[0].to_i64(), clamped);
    }
}

#[test]
fn halves_round_to_even_and_larger_fractions_round_up() {
    let least_float = f64::from_bits(1);
    let half = f64::EPSILON / 2.0;
    assert_eq!(sum(&[1.0, half]), 1.0);
    assert_eq!(sum(&[1.0, half, least_float]), 1.0 + f64::EPSILON);
    assert_eq!(sum(&[1.0 + f64::EPSILON, half]), 1.0 + 2.0 * f64::EPSILON);
    assert_eq!(sum(&[-1.0, -half, -least_float]), -1.0 - f64::EPSILON);
}

#[test]
fn sum_of_distant_numbers_is_exact() {
    let least_float = f64::from_bits(1);
    assert_eq!(sum(&[f64::MAX, least_float, -f64::MAX]), least_float);
    assert_eq!(sum(&[f64::MAX, f64::MAX]), f64::INFINITY);
    assert_eq!(sum(&[f64::MAX, f64::MAX, -f64::MAX]), f64::MAX);
    assert_eq!(sum(&[0.1; 10]), 1.0, "where adding one by one gives a little less");
    assert_eq!(sum(&[-0.0]).to_bits(), 0, "a zero sum has no sign");
}

#[test]
fn zero_sum_leaves_no_limb() {
    assert_eq!(sums(&[f64::MAX, -3.5, 3.5, -f64::MAX], 1), [ExactSum::default()]);
}

#[test]
fn impossible_sum_bytes_are_refused() {
    let decode = |bytes: &[u8], power| {
        let mut reader = ByteReader::new(bytes, || Error::corrupt("short"));
        ExactSum::decode(&mut reader, power).map_err(|error| error.code())
    };
    let bytes_of = |first: i16, limbs: &[u64]| {
        let mut bytes = [first.to_le_bytes(), (limbs.len() as u16).to_le_bytes()].concat();
        limbs.iter().for_each(|limb| bytes.extend_from_slice(&limb.to_le_bytes()));
        bytes
    };
    for (name, bytes) in [
        ("a lowest limb of zero", bytes_of(0, &[0, 1])),
        ("a limb of mere sign", bytes_of(0, &[1, 0])),
        ("a limb of mere negative sign", bytes_of(0, &[1 << 63, u64::MAX])),
        ("a zero that lies somewhere", bytes_of(3, &[])),
        ("finer than any float", bytes_of(-18, &[1])),
        ("larger than any sum", bytes_of(18, &[1])),
        ("too short", bytes_of(0, &[1])[..9].to_vec()),
    ] {
        assert_eq!(decode(&bytes, 1), Err(ErrorCode::Corrupt), "{name}");
    }
    assert!(decode(&bytes_of(-17, &[1]), 1).is_ok() && decode(&bytes_of(17, &[1]), 1).is_ok());
    assert!(decode(&bytes_of(-18, &[1]), 2).is_ok());
}

#[test]
fn scaling_has_no_intermediate_overflow() {
    assert_eq!(scale(1.0, 1_023), 2.0_f64.powi(1_023));
    assert_eq!(scale(1.0, -1_074), f64::from_bits(1));
    assert_eq!(scale(3.0, 5_000), f64::INFINITY);
    assert_eq!(scale(-3.0, -50_000), 0.0);
}
