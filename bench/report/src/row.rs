//! The measured rows of a benchmark, and their units.

use serde::{Deserialize, Serialize};

use crate::rounds::{Rounds, Spread};

/// The unit of a row's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// ns
    #[serde(rename = "ns")]
    Nanoseconds,
    /// µs
    #[serde(rename = "us")]
    Microseconds,
    /// ms
    #[serde(rename = "ms")]
    Milliseconds,
    /// s
    #[serde(rename = "s")]
    Seconds,
    /// 1/s
    #[serde(rename = "1/s")]
    PerSecond,
    /// bytes
    #[serde(rename = "bytes")]
    Bytes,
    /// MB/s, of 1,000,000 bytes
    #[serde(rename = "MB/s")]
    MegabytesPerSecond,
    /// A plain number.
    #[serde(rename = "1")]
    Count,
}

impl Unit {
    /// Returns the unit as reports write it.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::Microseconds => "us",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
            Self::PerSecond => "1/s",
            Self::Bytes => "bytes",
            Self::MegabytesPerSecond => "MB/s",
            Self::Count => "",
        }
    }
}

/// A measured row.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Measure of the row; goals refer to it.
    pub measure: String,
    /// The unit of the value.
    pub unit: Unit,
    /// Median and quartiles over the rounds.
    pub value: Spread,
    /// Name of the peer, and its spread.
    pub peer: Option<(String, Spread)>,
    /// Value / peer, formed inside each round.
    pub ratio: Option<Spread>,
}

impl Row {
    /// Creates a row without a peer.
    ///
    /// # Errors
    /// Fails if a round lacks the name.
    pub fn alone(measure: &str, unit: Unit, rounds: &Rounds, name: &str) -> Result<Self, String> {
        let value = rounds.spread(name)?;
        Ok(Self { measure: measure.to_owned(), unit, value, peer: None, ratio: None })
    }

    /// Creates a row with its peer of the same rounds.
    ///
    /// # Errors
    /// Fails if a round lacks one of the names, or the peer measured zero.
    pub fn against(
        measure: &str,
        unit: Unit,
        rounds: &Rounds,
        name: &str,
        peer: &str,
    ) -> Result<Self, String> {
        let row = Self::alone(measure, unit, rounds, name)?;
        let ratio = Some(rounds.ratio(name, peer)?);
        Ok(Self { peer: Some((peer.to_owned(), rounds.spread(peer)?)), ratio, ..row })
    }
}
