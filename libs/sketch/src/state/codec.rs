//! Byte form of a state: `proto/spec/aggregates.md`.

use std::sync::Arc;

use forebay_core::byte_reader::ByteReader;
use forebay_core::row::encode_value;
use forebay_core::view::AggregateSpec;
use forebay_core::{Error, Result};

use super::{AggregateState, StateLayout, StateSummary};
use crate::distinct::Distinct;
use crate::first_last::{FirstLast, take_value};
use crate::frequent_items::FrequentItems;
use crate::min_max::MinMax;
use crate::moments::PowerSums;
use crate::quantiles::Quantiles;

/// Version of the byte form of a state.
const VERSION: u8 = 1;

/// Returns a reader of the bytes of a state or tile.
pub(crate) fn byte_reader(bytes: &[u8]) -> ByteReader<'_> {
    ByteReader::new(bytes, || Error::corrupt("the state ends too early"))
}

fn tag(layout: StateLayout) -> u8 {
    match layout {
        StateLayout::Count => 1,
        StateLayout::PowerSums { .. } => 2,
        StateLayout::MinMax { is_greatest: false } => 3,
        StateLayout::MinMax { is_greatest: true } => 4,
        StateLayout::FirstLast { .. } => 5,
        StateLayout::Distinct { .. } => 6,
        StateLayout::Quantiles { .. } => 7,
        StateLayout::FrequentItems { .. } => 8,
    }
}

impl AggregateState {
    /// Appends the state's bytes (`proto/spec/aggregates.md`). Encoding does not change the state:
    /// later results are equal bit by bit, whether it was encoded in between or not.
    ///
    /// # Errors
    /// Returns `Internal` if a sketch cannot be encoded.
    pub fn encode(&self, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.extend_from_slice(&[VERSION, tag(StateLayout::of(&self.spec))]);
        match &self.summary {
            StateSummary::Count(count) => bytes.extend_from_slice(&count.to_le_bytes()),
            StateSummary::PowerSums(sums) => sums.encode(bytes),
            StateSummary::MinMax(min_max) => {
                bytes.push(u8::from(min_max.best().is_some()));
                if let Some(best) = min_max.best() {
                    bytes.extend_from_slice(&(best.encoded_bytes() as u16).to_le_bytes());
                    encode_value(best, bytes);
                }
            }
            StateSummary::FirstLast(first_last) => first_last.encode(bytes),
            StateSummary::Distinct(distinct) => distinct.encode(bytes)?,
            StateSummary::Quantiles(quantiles) => quantiles.encode(bytes),
            StateSummary::FrequentItems(items) => items.encode(bytes, self.input()),
        }
        Ok(())
    }

    /// Decodes a state of this aggregate. Allocates no more than a few times the bytes.
    ///
    /// # Errors
    /// Returns `UpgradeNeeded` for a version that this build does not know; `Corrupt` for bytes
    /// that no state of this aggregate has: rebuild the state from its events.
    pub fn decode(spec: &Arc<AggregateSpec>, state: &[u8]) -> Result<Self> {
        let mut reader = byte_reader(state);
        let [version, found] = reader.take()?;
        if version > VERSION {
            let message = format!(
                "the state has version {version}, and this build knows {VERSION}; upgrade this \
                 build"
            );
            return Err(Error::upgrade_needed(message));
        }
        let layout = StateLayout::of(spec);
        if version != VERSION || found != tag(layout) {
            return Err(Error::corrupt("the state is of another aggregate"));
        }
        let input = spec.input().unwrap_or(forebay_core::value::ScalarType::Int64);
        let summary = match layout {
            StateLayout::Count => StateSummary::Count(reader.u64()?),
            StateLayout::PowerSums { powers } => {
                StateSummary::PowerSums(PowerSums::decode(&mut reader, powers)?)
            }
            StateLayout::MinMax { is_greatest } => {
                let best = match reader.take()? {
                    [0] => None,
                    [1] => Some(take_value(&mut reader, input)?),
                    _ => {
                        return Err(Error::corrupt(
                            "the presence byte of a value is neither 0 nor 1",
                        ));
                    }
                };
                StateSummary::MinMax(MinMax::new(is_greatest).with_best(best))
            }
            StateLayout::FirstLast { is_latest, count } => StateSummary::FirstLast(
                FirstLast::new(is_latest, count).decode(&mut reader, input)?,
            ),
            StateLayout::Distinct { lg_k } => {
                let sketch = reader.bytes(reader.rest().len())?;
                StateSummary::Distinct(Distinct::decode(sketch, lg_k)?)
            }
            StateLayout::Quantiles { k } => {
                StateSummary::Quantiles(Quantiles::decode(&mut reader, k)?)
            }
            StateLayout::FrequentItems { lg_counters } => {
                StateSummary::FrequentItems(FrequentItems::decode(&mut reader, lg_counters, input)?)
            }
        };
        if !reader.rest().is_empty() {
            return Err(Error::corrupt("bytes follow the end of the state"));
        }
        Ok(Self { spec: spec.clone(), summary })
    }
}
