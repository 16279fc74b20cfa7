//! Byte form of a state: `proto/spec/aggregates.md`.

use std::sync::Arc;

use forebay_core::row::encode_value;
use forebay_core::view::AggregateSpec;
use forebay_core::{Error, Result};

use super::{AggregateState, Folded};
use crate::bytes;
use crate::distinct::Distinct;
use crate::extreme::Extreme;
use crate::frequent::Frequent;
use crate::moments::PowerSums;
use crate::ordered::{Ordered, take_value};
use crate::quantiles::Quantiles;
use crate::shape::Shape;

/// Version of the byte form of a state.
const VERSION: u8 = 1;

fn tag(shape: Shape) -> u8 {
    match shape {
        Shape::Count => 1,
        Shape::PowerSums { .. } => 2,
        Shape::Extreme { is_greatest: false } => 3,
        Shape::Extreme { is_greatest: true } => 4,
        Shape::Ordered { .. } => 5,
        Shape::Distinct { .. } => 6,
        Shape::Quantiles { .. } => 7,
        Shape::Frequent { .. } => 8,
    }
}

impl AggregateState {
    /// Appends the state's bytes (`proto/spec/aggregates.md`). Encoding does not change the state:
    /// later results are equal bit by bit, whether it was encoded in between or not.
    ///
    /// # Errors
    /// Returns `Internal` if a sketch cannot be encoded.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(&[VERSION, tag(Shape::of(&self.spec))]);
        match &self.folded {
            Folded::Count(count) => out.extend_from_slice(&count.to_le_bytes()),
            Folded::PowerSums(sums) => sums.encode(out),
            Folded::Extreme(extreme) => {
                out.push(u8::from(extreme.best().is_some()));
                if let Some(best) = extreme.best() {
                    out.extend_from_slice(&(best.encoded_bytes() as u16).to_le_bytes());
                    encode_value(best, out);
                }
            }
            Folded::Ordered(ordered) => ordered.encode(out),
            Folded::Distinct(distinct) => distinct.encode(out)?,
            Folded::Quantiles(quantiles) => quantiles.encode(out),
            Folded::Frequent(frequent) => frequent.encode(out, self.input()),
        }
        Ok(())
    }

    /// Decodes a state of this aggregate. Allocates no more than a few times the bytes.
    ///
    /// # Errors
    /// Returns `UpgradeNeeded` for a version that this build does not know; `Corrupt` for bytes
    /// that no state of this aggregate has: rebuild the state from its events.
    pub fn decode(spec: &Arc<AggregateSpec>, state: &[u8]) -> Result<Self> {
        let mut fields = bytes::fields(state);
        let [version, found] = fields.take()?;
        if version > VERSION {
            let message = format!(
                "the state has version {version}, and this build knows {VERSION}; upgrade this \
                 build"
            );
            return Err(Error::upgrade_needed(message));
        }
        let shape = Shape::of(spec);
        if version != VERSION || found != tag(shape) {
            return Err(Error::corrupt("the state is of another aggregate"));
        }
        let input = spec.input().unwrap_or(forebay_core::value::ScalarType::Int64);
        let folded = match shape {
            Shape::Count => Folded::Count(fields.u64()?),
            Shape::PowerSums { powers } => {
                Folded::PowerSums(PowerSums::decode(&mut fields, powers)?)
            }
            Shape::Extreme { is_greatest } => {
                let best = match fields.take()? {
                    [0] => None,
                    [1] => Some(take_value(&mut fields, input)?),
                    _ => {
                        return Err(Error::corrupt(
                            "the presence byte of a value is neither 0 nor 1",
                        ));
                    }
                };
                Folded::Extreme(Extreme::new(is_greatest).with(best))
            }
            Shape::Ordered { is_latest, count } => {
                Folded::Ordered(Ordered::new(is_latest, count).decode(&mut fields, input)?)
            }
            Shape::Distinct { lg_k } => {
                let sketch = fields.bytes(fields.rest().len())?;
                Folded::Distinct(Distinct::decode(sketch, lg_k)?)
            }
            Shape::Quantiles { k } => Folded::Quantiles(Quantiles::decode(&mut fields, k)?),
            Shape::Frequent { lg_counters } => {
                Folded::Frequent(Frequent::decode(&mut fields, lg_counters, input)?)
            }
        };
        if !fields.rest().is_empty() {
            return Err(Error::corrupt("bytes follow the end of the state"));
        }
        Ok(Self { spec: spec.clone(), folded })
    }
}
