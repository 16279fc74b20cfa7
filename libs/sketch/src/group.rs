//! The tiles of one group of a feature view, and the values of its windows. This fold runs when
//! events are inserted, and again over retained events for training sets.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use forebay_core::clock::Timestamp;
use forebay_core::value::Value;
use forebay_core::view::{AggregateKind, Window};
use forebay_core::{Error, Result};

use crate::tile::{Aggregates, Event, Tile};
use crate::window::{EventAdmission, TileId, TiledWindow as _, Windows};

/// Fold of a view: its aggregates, each over each of its windows.
#[derive(Clone, Debug)]
pub struct FoldPlan {
    aggregates: Aggregates,
    windows: Windows,
}

impl FoldPlan {
    /// Creates the plan for these aggregates over these windows.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for an accumulating count over a window other than all time: no
    /// window bounds the count.
    pub fn new(aggregates: Aggregates, windows: Windows) -> Result<Self> {
        let accumulates =
            aggregates.specs().iter().any(|spec| *spec.kind() == AggregateKind::AccumulatingCount);
        if accumulates && windows.windows() != [Window::Unbounded] {
            let advice = "an accumulating count shares a view with windows; declare a view of its \
                own, over all time alone";
            return Err(Error::invalid_argument(advice));
        }
        Ok(Self { aggregates, windows })
    }

    /// Returns the aggregates.
    pub fn aggregates(&self) -> &Aggregates {
        &self.aggregates
    }

    /// Returns the windows.
    pub fn windows(&self) -> &Windows {
        &self.windows
    }
}

/// The tiles of one group. Tiles without events do not exist.
///
/// ```
/// use forebay_core::clock::Timestamp;
/// use forebay_core::id::Position;
/// use forebay_core::value::Value;
/// use forebay_core::view::{AggregateKind, AggregateSpec, Window};
/// use forebay_sketch::{
///     Aggregates, Event, EventAdmission, EventOrder, FoldPlan, GroupTiles, Windows,
/// };
///
/// let count = AggregateSpec::new(AggregateKind::Count, None)?;
/// let window = Window::Sliding { length_us: 60, slide_us: 20 };
/// let windows = Windows::new(vec![window], 100)?;
/// let plan = FoldPlan::new(Aggregates::new(vec![count])?, windows)?;
/// let mut group = GroupTiles::default();
/// for time in [5, 25] {
///     let time = Timestamp::from_micros(time);
///     let at = EventOrder { time, position: Position::default() };
///     let event = Event { at, inputs: &[None] };
///     assert_eq!(group.insert(&plan, &event, time)?, EventAdmission::Admitted);
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
    /// Returns the tiles, ordered by slide and start.
    pub fn tiles(&self) -> impl Iterator<Item = (TileId, &Tile)> {
        self.tiles.iter().map(|(id, tile)| (*id, tile))
    }

    /// Inserts a tile that was read from storage.
    pub fn put(&mut self, id: TileId, tile: Tile) {
        self.tiles.insert(id, tile);
    }

    /// Adds an event to each of its tiles, or to none; the result says why.
    ///
    /// `partition_time` is the partition time of the event's own entry. The cost is one fold for
    /// each slide.
    ///
    /// # Errors
    /// Returns the errors of [`Aggregates::check`]; nothing has changed then.
    pub fn insert(
        &mut self,
        plan: &FoldPlan,
        event: &Event<'_>,
        partition_time: Timestamp,
    ) -> Result<EventAdmission> {
        plan.aggregates.check(event)?;
        let admission = plan.windows.admit(event.at.time, partition_time);
        if admission == EventAdmission::Admitted {
            for id in plan.windows.tiles_of(event.at.time) {
                self.tile(plan, id)?.fold(event)?;
            }
        }
        Ok(admission)
    }

    fn tile(&mut self, plan: &FoldPlan, id: TileId) -> Result<&mut Tile> {
        Ok(match self.tiles.entry(id) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(place) => place.insert(Tile::new(&plan.aggregates)?),
        })
    }

    /// Merges the tiles of the same group from another partition. No event may be in both.
    ///
    /// # Errors
    /// Returns the errors of [`Tile::merge`].
    pub fn merge(&mut self, plan: &FoldPlan, other: &Self) -> Result<()> {
        other.tiles.iter().try_for_each(|(id, tile)| self.tile(plan, *id)?.merge(tile))
    }

    /// Drops the tiles that no window covers any more, and returns their ids.
    pub fn advance(&mut self, plan: &FoldPlan, partition_time: Timestamp) -> Vec<TileId> {
        let is_over = |id: &TileId| !plan.windows.keeps(*id, partition_time);
        let dropped_ids: Vec<_> = self.tiles.keys().copied().filter(is_over).collect();
        dropped_ids.iter().for_each(|id| {
            self.tiles.remove(id);
        });
        dropped_ids
    }

    /// Returns the values of all aggregates over a window at a moment; if there are no events, the
    /// values of no events. Tiles are merged in the order of their starts, which fixes the result
    /// of order-dependent aggregates.
    ///
    /// The cost is one merge for each tile of the window that has events.
    ///
    /// # Errors
    /// Returns the errors of [`Tile::merge`] and [`Tile::values`].
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

    /// Returns the first moment after this one at which a window's values change without a new
    /// event: a tile leaves the window, or a tile with events ahead of time enters it. Returns
    /// `None` if there is no such moment.
    pub fn next_change(&self, window: Window, at: Timestamp) -> Option<Timestamp> {
        let (_, last) = window.tiles(at).into_inner();
        let first_held = self.tiles.range(window.tiles(at)).next();
        let leaves = first_held.and_then(|(id, _)| window.leaves(*id));
        let later_tiles = self.tiles.range((Bound::Excluded(last), Bound::Unbounded));
        let begins = later_tiles.map(|(id, _)| *id).next().and_then(|id| match (id, last) {
            (TileId::Slide { slide_us, start }, TileId::Slide { slide_us: last_slide_us, .. })
                if slide_us == last_slide_us =>
            {
                Some(start)
            }
            _ => None,
        });
        leaves.into_iter().chain(begins).min()
    }
}
