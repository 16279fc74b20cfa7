//! Windows of event time and their tiles. All functions are arithmetic on half-open spans `[start,
//! end)` in microseconds, also before 1970.
//!
//! A window moves by slides. At each moment it consists of whole tiles as long as its slide: the
//! tile that contains the moment, and the tiles before it. Windows with the same slide share tiles,
//! so an event goes into one tile for each distinct slide. A window is therefore exact at the grain
//! of its slide.

use std::ops::{Range, RangeInclusive};

use forebay_core::clock::Timestamp;
use forebay_core::limits::{EVENT_FUTURE_SKEW_US_MAX, WINDOW_US_MAX, WINDOWS_MAX};
use forebay_core::view::Window;
use forebay_core::{Error, Result};

/// The tiles of a window.
pub trait TiledWindow {
    /// Returns the span of event time that the window covers at a moment, cut at the ends of time;
    /// `None` for all time.
    ///
    /// ```
    /// use forebay_core::clock::Timestamp;
    /// use forebay_core::view::Window;
    /// use forebay_sketch::TiledWindow;
    ///
    /// let window = Window::Sliding { length_us: 60, slide_us: 20 };
    /// let span = window.span(Timestamp::from_micros(-5)).unwrap();
    /// assert_eq!(span, Timestamp::from_micros(-60)..Timestamp::from_micros(0));
    /// ```
    fn span(self, at: Timestamp) -> Option<Range<Timestamp>>;

    /// Returns the range of tiles that the window consists of at a moment; empty tiles do not
    /// exist.
    fn tiles(self, at: Timestamp) -> RangeInclusive<TileId>;

    /// Returns the moment from which the window no longer covers a tile's span; `None` if the
    /// window does not consist of such tiles, or always covers it.
    fn leaves(self, tile: TileId) -> Option<Timestamp>;
}

impl TiledWindow for Window {
    fn span(self, at: Timestamp) -> Option<Range<Timestamp>> {
        let (slide_us, length_us) = self.lengths()?;
        let end = start_of(at, slide_us) + i128::from(slide_us);
        Some(clamp(end - i128::from(length_us))..clamp(end))
    }

    fn tiles(self, at: Timestamp) -> RangeInclusive<TileId> {
        let Some((slide_us, length_us)) = self.lengths() else {
            return TileId::Unbounded..=TileId::Unbounded;
        };
        let last = start_of(at, slide_us);
        let first = last + i128::from(slide_us) - i128::from(length_us);
        TileId::Slide { slide_us, start: clamp(first) }..=TileId::Slide {
            slide_us,
            start: clamp(last),
        }
    }

    fn leaves(self, tile: TileId) -> Option<Timestamp> {
        let (slide_us, length_us) = self.lengths()?;
        match tile {
            TileId::Slide { slide_us: tile_slide_us, start } if tile_slide_us == slide_us => {
                Some(clamp(i128::from(start.as_micros()) + i128::from(length_us)))
            }
            _ => None,
        }
    }
}

/// Id of a tile in a group. Ids are ordered by slide, then by start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TileId {
    /// The tile of all time.
    Unbounded,
    /// A tile as long as a slide.
    Slide {
        /// Length of the tile, in microseconds.
        slide_us: i64,
        /// First moment of the tile, a multiple of its length.
        start: Timestamp,
    },
}

/// Whether an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventAdmission {
    /// The event counts.
    Admitted,
    /// The event is too late and counts nowhere.
    Late {
        /// Microseconds beyond the allowed lateness.
        by_us: i64,
    },
    /// The event is so far in the future that a clock must be wrong; it counts nowhere.
    Future {
        /// Microseconds beyond the allowed skew.
        by_us: i64,
    },
}

/// The windows of a view, and its allowed lateness.
///
/// ```
/// use forebay_core::clock::Timestamp;
/// use forebay_core::view::Window;
/// use forebay_sketch::{EventAdmission, Windows};
///
/// let (minute, hour) = (60_000_000, 3_600_000_000);
/// let last_hour = Window::Sliding { length_us: hour, slide_us: minute };
/// let windows = Windows::new(vec![last_hour, Window::Unbounded], 10 * minute)?;
/// let now = Timestamp::from_micros(1_750_000_000_000_000);
/// let event = now.plus_micros(-3 * minute);
/// assert_eq!(windows.admit(event, now), EventAdmission::Admitted);
/// assert_eq!(windows.tiles_of(event).count(), 2);
/// let late = now.plus_micros(-10 * minute - 1);
/// assert_eq!(windows.admit(late, now), EventAdmission::Late { by_us: 1 });
/// # Ok::<(), forebay_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Windows {
    windows: Vec<Window>,
    allowed_lateness_us: i64,
    /// Each slide once, with the longest window of that slide.
    slides: Vec<(i64, i64)>,
}

impl Windows {
    /// Creates the windows of a view, in their order, with its allowed lateness: how far an event's
    /// time may be before its partition's time, in microseconds.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for no windows, for a duplicate window, and for a length that is
    /// not positive or not a multiple of its slide; `LimitExceeded` for too many or too long
    /// windows.
    pub fn new(windows: Vec<Window>, allowed_lateness_us: i64) -> Result<Self> {
        if windows.is_empty() {
            return Err(Error::invalid_argument("the view has no window; declare a window"));
        }
        if windows.len() > WINDOWS_MAX {
            let (limit, actual) = (WINDOWS_MAX as u64, windows.len() as u64);
            return Err(Error::limit_exceeded(
                "the view has too many windows; spread the windows over several views",
                limit,
                actual,
            ));
        }
        if allowed_lateness_us < 0 {
            return Err(Error::invalid_argument(
                "the allowed lateness is negative; give a lateness of zero or more",
            ));
        }
        if allowed_lateness_us > WINDOW_US_MAX {
            let (limit, actual) = (WINDOW_US_MAX as u64, allowed_lateness_us as u64);
            return Err(Error::limit_exceeded(
                "the allowed lateness is too long; shorten the lateness",
                limit,
                actual,
            ));
        }
        windows.iter().try_for_each(|window| window.check())?;
        let is_first = |(place, window)| !windows[..place].contains(window);
        if !windows.iter().enumerate().all(is_first) {
            return Err(Error::invalid_argument(
                "a window is declared twice; declare each window once",
            ));
        }
        let mut slides: Vec<(i64, i64)> =
            windows.iter().filter_map(|window| window.lengths()).collect();
        slides.sort_by_key(|(slide_us, length_us)| (*slide_us, -length_us));
        slides.dedup_by_key(|(slide_us, _)| *slide_us);
        Ok(Self { windows, allowed_lateness_us, slides })
    }

    /// Returns the windows.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// Returns the allowed lateness: how far an event's time may be before its partition's time, in
    /// microseconds.
    pub fn allowed_lateness_us(&self) -> i64 {
        self.allowed_lateness_us
    }

    /// Returns whether an event counts, at the partition time of its own entry. An event that is
    /// late by exactly the allowed lateness counts.
    pub fn admit(&self, event: Timestamp, partition_time: Timestamp) -> EventAdmission {
        let skew_us = event.micros_since(partition_time);
        let late_us = partition_time.micros_since(event);
        if late_us > self.allowed_lateness_us {
            return EventAdmission::Late { by_us: late_us - self.allowed_lateness_us };
        }
        if skew_us > EVENT_FUTURE_SKEW_US_MAX {
            return EventAdmission::Future { by_us: skew_us - EVENT_FUTURE_SKEW_US_MAX };
        }
        EventAdmission::Admitted
    }

    /// Returns the tiles of an event: one for each slide, and the tile of all time.
    pub fn tiles_of(&self, event: Timestamp) -> impl Iterator<Item = TileId> {
        let slide = move |(slide_us, _): &(i64, i64)| TileId::Slide {
            slide_us: *slide_us,
            start: clamp(start_of(event, *slide_us)),
        };
        let unbounded = self.windows.contains(&Window::Unbounded).then_some(TileId::Unbounded);
        unbounded.into_iter().chain(self.slides.iter().map(slide))
    }

    /// Returns whether a tile may still count at a later partition time, for any moment that is not
    /// further back than the allowed lateness. Other tiles are dropped.
    pub fn keeps(&self, tile: TileId, partition_time: Timestamp) -> bool {
        self.drops(tile).is_none_or(|at| at > partition_time)
    }

    /// Returns the partition time from which a tile no longer counts; `None` for a tile that always
    /// counts.
    pub fn drops(&self, tile: TileId) -> Option<Timestamp> {
        let TileId::Slide { slide_us, start } = tile else {
            let is_kept = self.windows.contains(&Window::Unbounded);
            return if is_kept { None } else { Some(Timestamp::MIN) };
        };
        let Some((_, length_us)) =
            self.slides.iter().find(|(window_slide_us, _)| *window_slide_us == slide_us)
        else {
            return Some(Timestamp::MIN);
        };
        let leaves = i128::from(start.as_micros()) + i128::from(*length_us);
        let drops = leaves + i128::from(self.allowed_lateness_us);
        (drops <= i64::MAX.into()).then(|| clamp(drops))
    }
}

/// Returns the first moment of the slide that contains a moment. The result may be before all
/// timestamps.
fn start_of(at: Timestamp, slide_us: i64) -> i128 {
    let (at, slide) = (i128::from(at.as_micros()), i128::from(slide_us));
    at.div_euclid(slide) * slide
}

/// Clamps a moment to the range of timestamps.
fn clamp(micros: i128) -> Timestamp {
    let clamped = micros.clamp(i64::MIN.into(), i64::MAX.into());
    Timestamp::from_micros(clamped as i64)
}

#[cfg(test)]
mod tests {
    use forebay_core::ErrorCode;
    use forebay_core::limits::WINDOW_TILES_MAX;

    use super::*;

    const HOUR: Window = Window::Sliding { length_us: 60, slide_us: 10 };

    fn time(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    fn tile(slide_us: i64, start: i64) -> TileId {
        TileId::Slide { slide_us, start: time(start) }
    }

    #[test]
    fn windows_begin_and_end_at_hops() {
        for (at, from, to) in
            [(0, -50, 10), (9, -50, 10), (10, -40, 20), (-1, -60, 0), (-10, -60, 0)]
        {
            assert_eq!(HOUR.span(time(at)), Some(time(from)..time(to)), "{at}");
            assert_eq!(HOUR.tiles(time(at)), tile(10, from)..=tile(10, to - 10), "{at}");
        }
        let day = Window::Tumbling { length_us: 24 };
        assert_eq!(day.span(time(-1)), Some(time(-24)..time(0)));
        assert_eq!(day.tiles(time(47)), tile(24, 24)..=tile(24, 24));
        assert_eq!(Window::Unbounded.span(time(5)), None);
        assert_eq!(Window::Unbounded.tiles(time(5)), TileId::Unbounded..=TileId::Unbounded);
    }

    #[test]
    fn ends_of_time_do_not_overflow() {
        for at in [time(i64::MIN), time(i64::MAX)] {
            for window in [HOUR, Window::Tumbling { length_us: WINDOW_US_MAX }] {
                let span = window.span(at).unwrap();
                assert!(span.start < span.end && span.start <= at && at <= span.end);
                let (first, last) = window.tiles(at).into_inner();
                assert!(first <= last && window.leaves(first).is_some());
            }
            let windows = Windows::new(vec![HOUR, Window::Unbounded], 5).unwrap();
            for tile in windows.tiles_of(at) {
                assert!(windows.keeps(tile, at));
                assert!(HOUR.tiles(at).contains(&tile) || tile == TileId::Unbounded);
            }
        }
    }

    #[test]
    fn event_distance_beyond_the_bounds_makes_it_late_or_future() {
        let windows = Windows::new(vec![HOUR], 30).unwrap();
        let now = time(-100);
        assert_eq!(windows.admit(time(-130), now), EventAdmission::Admitted);
        assert_eq!(windows.admit(time(-131), now), EventAdmission::Late { by_us: 1 });
        let future = now.plus_micros(EVENT_FUTURE_SKEW_US_MAX);
        assert_eq!(windows.admit(future, now), EventAdmission::Admitted);
        assert_eq!(windows.admit(future.plus_micros(2), now), EventAdmission::Future { by_us: 2 });
    }

    #[test]
    fn tiles_are_retained_for_the_longest_window_and_the_lateness() {
        let short_window = Window::Sliding { length_us: 20, slide_us: 10 };
        let windows = Windows::new(vec![short_window, HOUR], 7).unwrap();
        assert_eq!(windows.tiles_of(time(-3)).collect::<Vec<_>>(), [tile(10, -10)]);
        assert!(windows.keeps(tile(10, 0), time(66)));
        assert!(!windows.keeps(tile(10, 0), time(67)));
        assert!(!windows.keeps(tile(20, 0), time(0)), "no window has such tiles");
        assert!(!windows.keeps(TileId::Unbounded, time(0)), "nor of all time");
        assert_eq!(HOUR.leaves(tile(10, 0)), Some(time(60)));
        assert_eq!(HOUR.leaves(tile(20, 0)), None);
    }

    #[test]
    fn invalid_windows_are_refused() {
        let code = |windows: Vec<Window>, allowed_lateness_us| {
            Windows::new(windows, allowed_lateness_us).map(|_| ()).map_err(|error| error.code())
        };
        let sliding = |length_us, slide_us| Window::Sliding { length_us, slide_us };
        let tumbling = |length_us| Window::Tumbling { length_us };
        let (invalid, limit) = (Err(ErrorCode::InvalidArgument), Err(ErrorCode::LimitExceeded));
        assert_eq!(code(vec![], 0), invalid);
        assert_eq!(code(vec![tumbling(0)], 0), invalid);
        assert_eq!(code(vec![sliding(10, 0)], 0), invalid);
        assert_eq!(code(vec![sliding(0, 10)], 0), invalid);
        assert_eq!(code(vec![sliding(15, 10)], 0), invalid);
        assert_eq!(code(vec![HOUR, HOUR], 0), invalid);
        assert_eq!(code(vec![HOUR], -1), invalid);
        assert_eq!(code(vec![HOUR], WINDOW_US_MAX + 1), limit);
        assert_eq!(code(vec![tumbling(WINDOW_US_MAX + 1)], 0), limit);
        assert_eq!(code(vec![sliding(WINDOW_TILES_MAX + 1, 1)], 0), limit);
        assert_eq!(code((1..=WINDOWS_MAX as i64 + 1).map(tumbling).collect(), 0), limit);
        assert_eq!(code(vec![sliding(WINDOW_TILES_MAX, 1), tumbling(WINDOW_US_MAX)], 0), Ok(()));
    }
}
