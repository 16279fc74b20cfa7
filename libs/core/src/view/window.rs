//! The windows of event time that a feature is over.

use crate::error::{Error, Result};
use crate::limits::{WINDOW_TILES_MAX, WINDOW_US_MAX};

/// A window and the name that it has in those of values, such as `1h`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedWindow {
    /// The name; empty for the only window of a view, or for all time.
    pub name: String,
    /// The window.
    pub window: Window,
}

/// A span of event time that an aggregate's value is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Window {
    /// Spans that lie one behind the other from 1970 on, of which the one that holds the moment
    /// counts, as far as it has come: this day so far.
    Tumbling {
        /// How long each is, in microseconds.
        length_us: i64,
    },
    /// A span that ends with the hop that holds the moment: the last hour, by minutes.
    Sliding {
        /// How long it is, in microseconds: a multiple of the hop.
        length_us: i64,
        /// By how much it moves on, in microseconds.
        hop_us: i64,
    },
    /// All time.
    Lifetime,
}

impl Window {
    /// Length of its tiles and of the whole, in microseconds; `None` for all time.
    pub fn lengths(self) -> Option<(i64, i64)> {
        match self {
            Self::Tumbling { length_us } => Some((length_us, length_us)),
            Self::Sliding { length_us, hop_us } => Some((hop_us, length_us)),
            Self::Lifetime => None,
        }
    }

    /// Refuses a window that cannot be.
    ///
    /// # Errors
    /// `InvalidArgument` for lengths that are not positive or no multiples of their hops;
    /// `LimitExceeded` for too long a one, and for one of too many tiles.
    pub fn check(self) -> Result<()> {
        let Some((hop_us, length_us)) = self.lengths() else { return Ok(()) };
        if hop_us < 1 || length_us < 1 {
            return Err(Error::invalid_argument("give a window a length and a hop above zero"));
        }
        if length_us % hop_us != 0 {
            let message = format!("make the window's {length_us} us a multiple of its {hop_us}");
            return Err(Error::invalid_argument(message));
        }
        if length_us > WINDOW_US_MAX {
            let (limit, actual) = (WINDOW_US_MAX as u64, length_us as u64);
            return Err(Error::limit_exceeded("shorten the window", limit, actual));
        }
        let (limit, actual) = (WINDOW_TILES_MAX as u64, (length_us / hop_us) as u64);
        if actual > limit {
            return Err(Error::limit_exceeded("lengthen the window's hop", limit, actual));
        }
        Ok(())
    }
}
