//! The tiles of one group of a feature view, and what its windows make of them: the fold that runs
//! at insert, and again over retained events for training sets.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use forebay_core::clock::Timestamp;
use forebay_core::value::Value;
use forebay_core::view::{AggregateKind, Window};
use forebay_core::{Error, Result};

use crate::tile::{Aggregates, Event, Tile};
use crate::window::{Admission, TileId, TiledWindow as _, Windows};

/// What a view folds: its aggregates, each over each of its windows.
#[derive(Clone, Debug)]
pub struct FoldPlan {
    aggregates: Aggregates,
    windows: Windows,
}

impl FoldPlan {
    /// Aggregates over windows.
    ///
    /// # Errors
    /// `InvalidArgument` for an accumulating count over anything but all time: no window cuts it.
    pub fn new(aggregates: Aggregates, windows: Windows) -> Result<Self> {
        let accumulates =
            aggregates.specs().iter().any(|of| *of.kind() == AggregateKind::AccumulatingCount);
        if accumulates && windows.windows() != [Window::Lifetime] {
            let advice = "give an accumulating count a view of its own, over all time alone";
            return Err(Error::invalid_argument(advice));
        }
        Ok(Self { aggregates, windows })
    }

    /// The aggregates.
    pub fn aggregates(&self) -> &Aggregates {
        &self.aggregates
    }

    /// The windows.
    pub fn windows(&self) -> &Windows {
        &self.windows
    }
}

/// The tiles of one group. Those without events are not there.
///
/// ```
/// use forebay_core::clock::Timestamp;
/// use forebay_core::id::Position;
/// use forebay_core::value::Value;
/// use forebay_core::view::{AggregateKind, AggregateSpec, Window};
/// use forebay_sketch::{Admission, Aggregates, Event, EventAt, FoldPlan, GroupTiles, Windows};
///
/// let count = AggregateSpec::new(AggregateKind::Count, None)?;
/// let window = Window::Sliding { length_us: 60, hop_us: 20 };
/// let windows = Windows::new(vec![window], 100)?;
/// let plan = FoldPlan::new(Aggregates::new(vec![count])?, windows)?;
/// let mut group = GroupTiles::default();
/// for time in [5, 25] {
///     let time = Timestamp::from_micros(time);
///     let event = Event { at: EventAt { time, position: Position::default() }, inputs: &[None] };
///     assert_eq!(group.insert(&plan, &event, time)?, Admission::Admitted);
/// }
/// let counted = |at| group.values(&plan, window, Timestamp::from_micros(at));
/// assert_eq!(counted(59)?, [Some(Value::Int64(2))]);
/// assert_eq!(counted(60)?, [Some(Value::Int64(1))]);
/// let next = group.next_change(window, Timestamp::from_micros(59));
/// assert_eq!(next, Some(Timestamp::from_micros(60)));
/// # Ok::<(), forebay_core::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct GroupTiles {
    tiles: BTreeMap<TileId, Tile>,
}

impl GroupTiles {
    /// The tiles, by hop and start.
    pub fn tiles(&self) -> impl Iterator<Item = (TileId, &Tile)> {
        self.tiles.iter().map(|(id, tile)| (*id, tile))
    }

    /// Puts a tile that was read from where it is kept.
    pub fn put(&mut self, id: TileId, tile: Tile) {
        self.tiles.insert(id, tile);
    }

    /// Takes an event into each tile that it goes into, or into none: then it says why.
    ///
    /// `partition_time` is that of the event's own entry. Costs one fold for each hop.
    ///
    /// # Errors
    /// Those of [`Aggregates::check`]; nothing has changed then.
    pub fn insert(
        &mut self,
        plan: &FoldPlan,
        event: &Event<'_>,
        partition_time: Timestamp,
    ) -> Result<Admission> {
        plan.aggregates.check(event)?;
        let admission = plan.windows.admit(event.at.time, partition_time);
        if admission == Admission::Admitted {
            for id in plan.windows.tiles_of(event.at.time) {
                self.tile(plan, id)?.fold(event)?;
            }
        }
        Ok(admission)
    }

    fn tile(&mut self, plan: &FoldPlan, id: TileId) -> Result<&mut Tile> {
        Ok(match self.tiles.entry(id) {
            Entry::Occupied(held) => held.into_mut(),
            Entry::Vacant(place) => place.insert(Tile::new(&plan.aggregates)?),
        })
    }

    /// Takes in the tiles of the same group from another partition. No event may be in both.
    ///
    /// # Errors
    /// Those of [`Tile::merge`].
    pub fn merge(&mut self, plan: &FoldPlan, other: &Self) -> Result<()> {
        other.tiles.iter().try_for_each(|(id, tile)| self.tile(plan, *id)?.merge(tile))
    }

    /// Drops the tiles that no window is made of any more, and says which.
    pub fn advance(&mut self, plan: &FoldPlan, partition_time: Timestamp) -> Vec<TileId> {
        let is_over = |id: &TileId| !plan.windows.keeps(*id, partition_time);
        let over: Vec<_> = self.tiles.keys().copied().filter(is_over).collect();
        over.iter().for_each(|id| {
            self.tiles.remove(id);
        });
        over
    }

    /// The values of all aggregates over a window at a moment, those of no events where there are
    /// none. Tiles are merged by their starts, which is the rule where the order is seen.
    ///
    /// Costs one merge for each tile of the window that has events.
    ///
    /// # Errors
    /// Those of [`Tile::merge`] and [`Tile::values`].
    pub fn values(
        &self,
        plan: &FoldPlan,
        window: Window,
        at: Timestamp,
    ) -> Result<Vec<Option<Value>>> {
        let mut merged = Tile::new(&plan.aggregates)?;
        for (_, tile) in self.tiles.range(window.tiles(at)) {
            merged.merge(tile)?;
        }
        merged.values()
    }

    /// The first moment behind this one at which a window's values change though no event comes: a
    /// tile leaves, or one begins whose events lay ahead. `None` if there is none.
    pub fn next_change(&self, window: Window, at: Timestamp) -> Option<Timestamp> {
        let (_, last) = window.tiles(at).into_inner();
        let first_held = self.tiles.range(window.tiles(at)).next();
        let leaves = first_held.and_then(|(id, _)| window.leaves(*id));
        let ahead = self.tiles.range((Bound::Excluded(last), Bound::Unbounded));
        let begins = ahead.map(|(id, _)| *id).next().and_then(|id| match (id, last) {
            (TileId::Hop { hop_us, start }, TileId::Hop { hop_us: of, .. }) if hop_us == of => {
                Some(start)
            }
            _ => None,
        });
        leaves.into_iter().chain(begins).min()
    }
}
