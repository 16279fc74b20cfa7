//! A tile: the states of all aggregates of a feature view over the events of one group in one span
//! of time.

use std::sync::Arc;

use forebay_core::limits::AGGREGATES_MAX;
use forebay_core::value::Value;
use forebay_core::view::AggregateSpec;
use forebay_core::{Error, Result};

use crate::first_last::EventOrder;
use crate::state::{AggregateState, byte_reader};

/// Version of the byte form of a tile.
const VERSION: u8 = 1;

/// The aggregates of a feature view, in their order.
#[derive(Clone, Debug)]
pub struct Aggregates(Arc<[Arc<AggregateSpec>]>);

impl Aggregates {
    /// Creates a list of aggregates.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for an empty list, `LimitExceeded` for too many aggregates.
    pub fn new(specs: Vec<AggregateSpec>) -> Result<Self> {
        if specs.is_empty() {
            return Err(Error::invalid_argument("a tile needs an aggregate; declare one"));
        }
        if specs.len() > AGGREGATES_MAX {
            let (limit, actual) = (AGGREGATES_MAX as u64, specs.len() as u64);
            return Err(Error::limit_exceeded(
                "the view has too many aggregates; spread the aggregates over several views",
                limit,
                actual,
            ));
        }
        Ok(Self(specs.into_iter().map(Arc::new).collect()))
    }

    /// Returns the aggregates.
    pub fn specs(&self) -> &[Arc<AggregateSpec>] {
        &self.0
    }

    /// Refuses an event that one of the aggregates cannot accept.
    ///
    /// # Errors
    /// Returns the errors of [`AggregateSpec::check`]; `InvalidArgument` if the number of inputs
    /// differs from the number of aggregates.
    pub fn check(&self, event: &Event<'_>) -> Result<()> {
        if event.inputs.len() != self.0.len() {
            let (expected, found) = (self.0.len(), event.inputs.len());
            let message = format!(
                "there are {found} inputs for {expected} aggregates; give one input for each"
            );
            return Err(Error::invalid_argument(message));
        }
        self.0.iter().zip(event.inputs).try_for_each(|(spec, input)| spec.check(input.as_ref()))
    }
}

/// An event as input of a view's aggregates.
#[derive(Clone, Copy, Debug)]
pub struct Event<'e> {
    /// Event time and position in the log.
    pub at: EventOrder,
    /// Input of each aggregate, in the order of the aggregates.
    pub inputs: &'e [Option<Value>],
}

/// The states of all aggregates of a view.
///
/// ```
/// use forebay_core::clock::Timestamp;
/// use forebay_core::id::Position;
/// use forebay_core::value::{ScalarType, Value};
/// use forebay_core::view::{AggregateKind, AggregateSpec};
/// use forebay_sketch::{Aggregates, Event, EventOrder, Tile};
///
/// let count = AggregateSpec::new(AggregateKind::Count, None)?;
/// let greatest = AggregateSpec::new(AggregateKind::Max, Some(ScalarType::Float64))?;
/// let aggregates = Aggregates::new(vec![count, greatest])?;
/// let mut tile = Tile::new(&aggregates)?;
/// let at = EventOrder { time: Timestamp::from_micros(-1), position: Position::default() };
/// tile.insert(&Event { at, inputs: &[None, Some(Value::Float64(2.5))] })?;
///
/// let mut bytes = Vec::new();
/// tile.encode(&mut bytes)?;
/// let read = Tile::decode(&aggregates, &bytes)?;
/// assert_eq!(read.values()?, [Some(Value::Int64(1)), Some(Value::Float64(2.5))]);
/// # Ok::<(), forebay_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tile {
    aggregates: Aggregates,
    states: Vec<AggregateState>,
}

impl Tile {
    /// Creates a tile of no events.
    ///
    /// # Errors
    /// Returns the errors of [`AggregateState::new`].
    pub fn new(aggregates: &Aggregates) -> Result<Self> {
        let states = aggregates.specs().iter().map(AggregateState::new).collect::<Result<_>>()?;
        Ok(Self { aggregates: aggregates.clone(), states })
    }

    /// Returns the state of each aggregate.
    pub fn states(&self) -> &[AggregateState] {
        &self.states
    }

    /// Adds an event to all states or to none.
    ///
    /// # Errors
    /// Returns the errors of [`Aggregates::check`].
    pub fn insert(&mut self, event: &Event<'_>) -> Result<()> {
        self.aggregates.check(event)?;
        self.fold(event)
    }

    /// Does [`Tile::insert`] for an event that was already checked.
    pub(crate) fn fold(&mut self, event: &Event<'_>) -> Result<()> {
        let mut states = self.states.iter_mut().zip(event.inputs);
        states.try_for_each(|(state, input)| state.fold(input.as_ref(), event.at))
    }

    /// Merges another tile. No event may be in both.
    ///
    /// # Errors
    /// Returns the errors of [`AggregateState::merge`]; `InvalidArgument` for a tile of other
    /// aggregates.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        if self.states.len() != other.states.len() {
            return Err(Error::invalid_argument(
                "the tiles are of different views; merge tiles of one view",
            ));
        }
        self.states.iter_mut().zip(&other.states).try_for_each(|(state, from)| state.merge(from))
    }

    /// Returns the values of all aggregates, in their order.
    ///
    /// # Errors
    /// Returns the errors of [`AggregateState::values`].
    pub fn values(&self) -> Result<Vec<Option<Value>>> {
        let mut values = Vec::with_capacity(self.states.len());
        for state in &self.states {
            values.append(&mut state.values()?);
        }
        Ok(values)
    }

    /// Appends the tile's bytes (`proto/spec/aggregates.md`).
    ///
    /// # Errors
    /// Returns the errors of [`AggregateState::encode`].
    pub fn encode(&self, encoded: &mut Vec<u8>) -> Result<()> {
        encoded.push(VERSION);
        encoded.extend_from_slice(&(self.states.len() as u16).to_le_bytes());
        let mut bytes = Vec::new();
        for state in &self.states {
            bytes.clear();
            state.encode(&mut bytes)?;
            encoded.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            encoded.extend_from_slice(&bytes);
        }
        Ok(())
    }

    /// Decodes a tile of these aggregates.
    ///
    /// # Errors
    /// Returns the errors of [`AggregateState::decode`].
    pub fn decode(aggregates: &Aggregates, tile: &[u8]) -> Result<Self> {
        let mut reader = byte_reader(tile);
        let [version] = reader.take()?;
        if version > VERSION {
            let message = format!(
                "the tile has version {version}, and this build knows {VERSION}; upgrade this build"
            );
            return Err(Error::upgrade_needed(message));
        }
        if version != VERSION || usize::from(reader.u16()?) != aggregates.specs().len() {
            return Err(Error::corrupt("the tile has the aggregates of another view"));
        }
        let mut states = Vec::with_capacity(aggregates.specs().len());
        for spec in aggregates.specs() {
            let count = reader.u32()? as usize;
            states.push(AggregateState::decode(spec, reader.bytes(count)?)?);
        }
        if !reader.rest().is_empty() {
            return Err(Error::corrupt("bytes follow the end of the tile"));
        }
        Ok(Self { aggregates: aggregates.clone(), states })
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::ErrorCode;
    use forebay_core::clock::Timestamp;
    use forebay_core::id::Position;
    use forebay_core::value::ScalarType;

    use super::*;
    use forebay_core::view::AggregateKind;

    const AT: EventOrder = EventOrder { time: Timestamp::MIN, position: FIRST };
    const FIRST: Position = Position {
        epoch: forebay_core::id::Epoch(0),
        offset: forebay_core::id::Offset(0),
        index_in_entry: 0,
    };

    fn aggregates(kinds: &[AggregateKind]) -> Aggregates {
        let spec = |kind: &AggregateKind| AggregateSpec::new(kind.clone(), Some(ScalarType::Int64));
        Aggregates::new(kinds.iter().map(spec).collect::<Result<_>>().unwrap()).unwrap()
    }

    #[test]
    fn event_enters_all_states_or_none() {
        let aggregates = aggregates(&[AggregateKind::Count, AggregateKind::Sum]);
        let mut tile = Tile::new(&aggregates).unwrap();
        let mut tiles_after_refusal = |inputs: &[Option<Value>]| {
            let code = tile.insert(&Event { at: AT, inputs }).unwrap_err().code();
            assert_eq!(code, ErrorCode::InvalidArgument);
            tile.values().unwrap()
        };
        let empty = [Some(Value::Int64(0)), None];
        assert_eq!(tiles_after_refusal(&[Some(Value::Int64(1)), Some(Value::Bool(true))]), empty);
        assert_eq!(tiles_after_refusal(&[Some(Value::Int64(1))]), empty);
    }

    #[test]
    fn tiles_of_other_views_neither_merge_nor_decode() {
        let one_aggregate = aggregates(&[AggregateKind::Count]);
        let two_aggregates = aggregates(&[AggregateKind::Count, AggregateKind::Count]);
        let (mut tile, other) =
            (Tile::new(&one_aggregate).unwrap(), Tile::new(&two_aggregates).unwrap());
        assert_eq!(tile.merge(&other).unwrap_err().code(), ErrorCode::InvalidArgument);
        let mut bytes = Vec::new();
        other.encode(&mut bytes).unwrap();
        assert_eq!(Tile::decode(&one_aggregate, &bytes).unwrap_err().code(), ErrorCode::Corrupt);
        let longer_bytes = [&bytes[..], &[0]].concat();
        assert_eq!(
            Tile::decode(&two_aggregates, &longer_bytes).unwrap_err().code(),
            ErrorCode::Corrupt
        );
        bytes[0] = 2;
        assert_eq!(
            Tile::decode(&two_aggregates, &bytes).unwrap_err().code(),
            ErrorCode::UpgradeNeeded
        );
    }

    #[test]
    fn view_needs_aggregates_up_to_a_limit() {
        let spec = AggregateSpec::new(AggregateKind::Count, None).unwrap();
        let new = |count| Aggregates::new(vec![spec.clone(); count]).map_err(|error| error.code());
        assert_eq!(new(0).unwrap_err(), ErrorCode::InvalidArgument);
        assert_eq!(new(AGGREGATES_MAX + 1).unwrap_err(), ErrorCode::LimitExceeded);
        assert!(new(AGGREGATES_MAX).is_ok());
    }
}
