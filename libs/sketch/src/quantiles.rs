//! Approximate quantiles: a t-digest of Apache DataSketches. The result depends on when values
//! enter the digest, so this module fixes the moment: values wait until there are enough of them,
//! and encoding a state does not change it.

use datasketches::tdigest::TDigestMut;
use forebay_core::byte_reader::ByteReader;
use forebay_core::value::Value;
use forebay_core::{Error, Result};

/// Values that wait next to a digest before they enter it together.
pub(crate) const WAITING_MAX: usize = 256;
/// Greatest weight of a digest: more than any stream has, and sums of a few such weights fit 64
/// bits.
const WEIGHT_MAX: u64 = 1 << 62;
/// Position of the number of buffered values in a digest's bytes; digests of this module have none.
const BUFFERED_AT: usize = 12;
/// Position of the number of centroids.
const CENTROIDS_COUNT_AT: usize = 8;
/// First bytes of a digest in the oldest form; this module never writes it.
const OLDEST_FORM: [u8; 3] = [0; 3];
/// Size of a digest of at most one value, whose bytes do not contain these numbers.
const SMALL_BYTES_MAX: usize = 16;
/// Bytes before the centroids of a larger digest, and bytes of each centroid.
const CENTROIDS_AT: usize = 32;
const CENTROID_BYTES: usize = 16;

/// State of quantiles.
#[derive(Clone, Debug)]
pub(crate) struct Quantiles {
    digest: TDigestMut,
    pending_floats: Vec<f64>,
}

impl Quantiles {
    /// Creates the state of no values, with this compression.
    pub(crate) fn new(k: u16) -> Result<Self> {
        Ok(Self { digest: digest(k)?, pending_floats: Vec::new() })
    }

    /// Adds a number as a float64; infinities are left out.
    pub(crate) fn insert(&mut self, value: &Value) -> Result<()> {
        let float = match value {
            Value::Int32(v) => f64::from(*v),
            Value::Int64(v) => *v as f64,
            Value::Float32(v) => f64::from(*v),
            Value::Float64(v) => *v,
            _ => return Ok(()),
        };
        if !float.is_finite() {
            return Ok(());
        }
        // Both zeros become one, because the order of two zeros depends on the processor.
        self.pending_floats.push(float + 0.0);
        if self.pending_floats.len() == WAITING_MAX {
            self.digest = self.complete_digest()?;
            self.pending_floats.clear();
        }
        Ok(())
    }

    /// Returns the digest with all values in it.
    fn complete_digest(&self) -> Result<TDigestMut> {
        let mut complete = self.digest.clone();
        if !self.pending_floats.is_empty() {
            let mut batch = digest(self.digest.k())?;
            self.pending_floats.iter().for_each(|float| batch.update(*float));
            complete.merge(&batch);
        }
        Ok(complete)
    }

    fn count(&self) -> u64 {
        self.digest.total_weight() + self.pending_floats.len() as u64
    }

    /// Merges another state. The order of merges affects the last digits.
    pub(crate) fn merge(&mut self, other: &Self) -> Result<()> {
        if other.count() == 0 {
            return Ok(());
        }
        let count = self.count().saturating_add(other.count());
        if count > WEIGHT_MAX {
            let advice = "the states count more values than a stream can have; rebuild the states \
                from the log";
            return Err(Error::limit_exceeded(advice, WEIGHT_MAX, count));
        }
        if self.count() == 0 {
            *self = other.clone();
            return Ok(());
        }
        self.digest = self.complete_digest()?;
        self.pending_floats.clear();
        self.digest.merge(&other.complete_digest()?);
        Ok(())
    }

    /// Returns the quantiles at these ranks; `None` if there are no values.
    pub(crate) fn at(&self, ranks: &[f64]) -> Result<Option<Vec<f64>>> {
        let compute_error = |error| {
            Error::internal(format!("the quantiles of a t-digest could not be computed: {error}"))
        };
        self.complete_digest()?.quantiles(ranks).map_err(compute_error)
    }

    /// Appends `waiting u16 | f64 *`, and the digest in the byte form of DataSketches.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&(self.pending_floats.len() as u16).to_le_bytes());
        self.pending_floats.iter().for_each(|float| bytes.extend_from_slice(&float.to_le_bytes()));
        bytes.extend_from_slice(&self.digest.clone().serialize());
    }

    /// Decodes a state with this compression; DataSketches in any language may have written the
    /// digest.
    pub(crate) fn decode(reader: &mut ByteReader<'_>, k: u16) -> Result<Self> {
        let count = usize::from(reader.u16()?);
        if count >= WAITING_MAX {
            return Err(Error::corrupt("too many values are buffered"));
        }
        let float = |_| Ok(f64::from_bits(reader.u64()?));
        let pending_floats: Vec<f64> = (0..count).map(float).collect::<Result<_>>()?;
        if pending_floats
            .iter()
            .any(|float| !float.is_finite() || (float + 0.0).to_bits() != float.to_bits())
        {
            return Err(Error::corrupt("a buffered value is not a normalised finite number"));
        }
        let digest_bytes = reader.rest();
        check_room(digest_bytes)?;
        let decode_error = |error| Error::corrupt(format!("the bytes are not a t-digest: {error}"));
        let mut digest = TDigestMut::deserialize(digest_bytes).map_err(decode_error)?;
        let buffered = if digest_bytes.len() > SMALL_BYTES_MAX {
            digest_bytes.get(BUFFERED_AT..BUFFERED_AT + 4)
        } else {
            None
        };
        if digest.k() != k || buffered.is_some_and(|count| count != [0; 4]) {
            return Err(Error::corrupt("the t-digest has another form than its aggregate"));
        }
        let bytes_max = CENTROIDS_AT + CENTROID_BYTES * centroids_max(k);
        if digest_bytes.len() > bytes_max || digest.total_weight() > WEIGHT_MAX {
            return Err(Error::corrupt(
                "the t-digest is larger than k allows, or counts too many values",
            ));
        }
        if digest.serialize() != digest_bytes {
            return Err(Error::corrupt("the t-digest is not in its canonical form"));
        }
        reader.bytes(digest_bytes.len())?;
        Ok(Self { digest, pending_floats })
    }
}

/// Refuses a digest whose header announces more centroids than there are bytes, and the oldest
/// form, whose count is at another position: the library allocates memory for all centroids before
/// it reads one.
fn check_room(digest_bytes: &[u8]) -> Result<()> {
    let count = |at: usize| {
        let bytes = digest_bytes.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u64::from(u32::from_le_bytes(*bytes)))
    };
    let bytes_needed = count(CENTROIDS_COUNT_AT) * CENTROID_BYTES as u64 + count(BUFFERED_AT) * 8;
    let is_short = digest_bytes.len() > SMALL_BYTES_MAX
        && (digest_bytes.len().saturating_sub(CENTROIDS_AT) as u64) < bytes_needed;
    match is_short || digest_bytes.starts_with(&OLDEST_FORM) {
        true => Err(Error::corrupt("the t-digest has fewer bytes than it states")),
        false => Ok(()),
    }
}

/// Returns the greatest number of centroids of a compressed digest.
fn centroids_max(k: u16) -> usize {
    2 * usize::from(k) + 30
}

fn digest(k: u16) -> Result<TDigestMut> {
    TDigestMut::new(k).map_err(|error| {
        Error::internal(format!("a t-digest of {k} could not be created: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::byte_reader;

    const RANKS: [f64; 5] = [0.0, 0.01, 0.5, 0.99, 1.0];

    fn of(values: impl IntoIterator<Item = f64>) -> Quantiles {
        let mut quantiles = Quantiles::new(100).unwrap();
        values.into_iter().for_each(|v| quantiles.insert(&Value::Float64(v)).unwrap());
        quantiles
    }

    fn bytes_of(quantiles: &Quantiles) -> Vec<u8> {
        let mut bytes = Vec::new();
        quantiles.encode(&mut bytes);
        bytes
    }

    fn restore(quantiles: &Quantiles) -> Quantiles {
        Quantiles::decode(&mut byte_reader(&bytes_of(quantiles)), 100).unwrap()
    }

    fn scattered_values(count: u64) -> impl Iterator<Item = f64> {
        (0..count).map(|v| ((v * 7_919) % 10_007) as f64)
    }

    /// Proves that encoding does not compress a digest; otherwise the state would differ after each
    /// restart.
    #[test]
    fn encoding_does_not_change_a_state() {
        let expected = of(scattered_values(3_000));
        let mut restored = of([]);
        for (number, value) in scattered_values(3_000).enumerate() {
            restored.insert(&Value::Float64(value)).unwrap();
            if number % 37 == 0 {
                restored = restore(&restored);
            }
            restored.at(&RANKS).unwrap();
        }
        assert_eq!(bytes_of(&restored), bytes_of(&expected));
        let mut merged = restore(&of(scattered_values(700)));
        merged.merge(&restore(&expected)).unwrap();
        let mut other = of(scattered_values(700));
        other.merge(&expected).unwrap();
        assert_eq!(bytes_of(&merged), bytes_of(&other));
    }

    #[test]
    fn quantiles_are_close_to_the_true_ranks() {
        let found = of(scattered_values(10_007)).at(&RANKS).unwrap().unwrap();
        for (found, rank) in found.iter().zip(RANKS) {
            let error = (found / 10_006.0 - rank).abs();
            assert!(error <= 0.02 * (rank * (1.0 - rank)).sqrt() + 1e-12, "{found} at {rank}");
        }
    }

    #[test]
    fn false_centroid_counts_are_refused_without_allocation() {
        let bytes = bytes_of(&of(scattered_values(1_000)));
        let digest = 2 + 8 * usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
        let assert_refused = |at: usize, forged_bytes: &[u8]| {
            let mut bytes = bytes.clone();
            bytes[digest + at..][..forged_bytes.len()].copy_from_slice(forged_bytes);
            let error = Quantiles::decode(&mut byte_reader(&bytes), 100).unwrap_err();
            assert_eq!(error.code(), forebay_core::ErrorCode::Corrupt);
        };
        assert_refused(CENTROIDS_COUNT_AT, &u32::MAX.to_le_bytes());
        assert_refused(BUFFERED_AT, &u32::MAX.to_le_bytes());
        assert_refused(0, &OLDEST_FORM);
    }

    #[test]
    fn quantiles_leave_out_infinities_and_nan() {
        assert_eq!(of([]).at(&RANKS).unwrap(), None);
        let quantiles = of([f64::INFINITY, 1.0, f64::NEG_INFINITY, -0.0]);
        assert_eq!(bytes_of(&quantiles), bytes_of(&of([1.0, 0.0])));
        assert_eq!(quantiles.at(&[0.0, 1.0]).unwrap(), Some(vec![0.0, 1.0]));
    }

    #[test]
    fn largest_floats_stay_finite() {
        let wide = of((0..2_000).map(|v| if v % 2 == 0 { f64::MAX } else { -f64::MAX }));
        let found = wide.at(&RANKS).unwrap().unwrap();
        assert!(found.iter().all(|value| value.is_finite()), "{found:?}");
        assert_eq!((found[0], found[4]), (-f64::MAX, f64::MAX));
    }

    #[test]
    fn merge_into_an_empty_digest_is_a_copy() {
        let expected = of(scattered_values(300));
        let mut empty = of([]);
        empty.merge(&expected).unwrap();
        assert_eq!(bytes_of(&empty), bytes_of(&expected));
        empty.merge(&of([])).unwrap();
        assert_eq!(bytes_of(&empty), bytes_of(&expected));
    }
}
