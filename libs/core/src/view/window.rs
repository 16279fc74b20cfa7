//! Windows of event time over which features are computed.

use crate::error::{Error, Result};
use crate::limits::{WINDOW_TILES_MAX, WINDOW_US_MAX};

/// A window and its name in the names of values, such as `1h`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedWindow {
    /// Name; empty for the only window of a view, or for all time.
    pub name: String,
    /// The window.
    pub window: Window,
}

/// Span of event time that an aggregate's value covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Window {
    /// Consecutive spans from 1970 on. The value covers the span that contains the present moment,
    /// up to that moment: today so far.
    Tumbling {
        /// Length of each span, in microseconds.
        length_us: i64,
    },
    /// A span that ends with the slide that contains the present moment: the last hour, by minutes.
    Sliding {
        /// Length of the span, in microseconds: a multiple of the slide.
        length_us: i64,
        /// Interval by which the span moves, in microseconds.
        slide_us: i64,
    },
    /// All time.
    Unbounded,
}

impl Window {
    /// Returns the length of the window's tiles and of the window, in microseconds; `None` for all
    /// time.
    pub fn lengths(self) -> Option<(i64, i64)> {
        match self {
            Self::Tumbling { length_us } => Some((length_us, length_us)),
            Self::Sliding { length_us, slide_us } => Some((slide_us, length_us)),
            Self::Unbounded => None,
        }
    }

    /// Refuses an invalid window.
    ///
    /// # Errors
    /// Returns `InvalidArgument` if a length is not positive or not a multiple of its slide;
    /// `LimitExceeded` if the window is too long or has too many tiles.
    pub fn check(self) -> Result<()> {
        let Some((slide_us, length_us)) = self.lengths() else { return Ok(()) };
        if slide_us < 1 || length_us < 1 {
            return Err(Error::invalid_argument(
                "a window's length and slide must be above zero; give larger ones",
            ));
        }
        if length_us % slide_us != 0 {
            let message = format!(
                "the window's length of {length_us} us is not a multiple of its slide of \
                 {slide_us} us; change one of the two"
            );
            return Err(Error::invalid_argument(message));
        }
        if length_us > WINDOW_US_MAX {
            let (limit, actual) = (WINDOW_US_MAX as u64, length_us as u64);
            return Err(Error::limit_exceeded(
                "the window is too long; shorten the window",
                limit,
                actual,
            ));
        }
        let (limit, actual) = (WINDOW_TILES_MAX as u64, (length_us / slide_us) as u64);
        if actual > limit {
            return Err(Error::limit_exceeded(
                "the window has too many slides; lengthen the window's slide",
                limit,
                actual,
            ));
        }
        Ok(())
    }
}
