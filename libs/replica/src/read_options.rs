//! The options of a read: what it waits for, how long, and how old its data may be.

use std::time::Duration;

use forebay_core::limits::ORDERED_READ_WAIT_MS_MAX;
use forebay_core::{Error, Result};
use forebay_wire::token::Token;
use forebay_wire::v1;

/// The event that a read waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReadWait {
    /// The read waits for nothing.
    #[default]
    Nothing,
    /// The positions of this token are applied.
    Token(Token),
    /// A barrier that the read appends is applied.
    Latest,
}

/// The options of a read. The default is a local read of the applied data.
///
/// ```
/// use std::time::Duration;
/// use forebay_replica::ReadOptions;
/// let fresh = ReadOptions::latest(Duration::from_secs(1)).max_staleness(Duration::from_secs(5));
/// assert_ne!(fresh, ReadOptions::local());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOptions {
    wait: ReadWait,
    timeout: Duration,
    max_staleness: Option<Duration>,
}

impl ReadOptions {
    /// Reads the data that is applied here.
    pub fn local() -> Self {
        Self::default()
    }

    /// Waits, for at most `timeout`, until the token's positions are applied: read your writes.
    pub fn after(token: Token, timeout: Duration) -> Self {
        Self { wait: ReadWait::Token(token), timeout, max_staleness: None }
    }

    /// Appends a barrier and waits, for at most `timeout`, until it is applied: linearizable per
    /// partition, at the price of one acknowledged append, which concurrent calls share.
    pub fn latest(timeout: Duration) -> Self {
        Self { wait: ReadWait::Latest, timeout, max_staleness: None }
    }

    /// Decodes the read options of a request; absent options mean a local read. Caps the wait at
    /// the longest that a service permits.
    ///
    /// # Errors
    /// Returns `InvalidArgument` for an invalid token.
    pub fn asked(wire: Option<v1::ReadOptions>) -> Result<Self> {
        let mut wire = wire.unwrap_or_default();
        wire.wait_ms = wire.wait_ms.min(ORDERED_READ_WAIT_MS_MAX);
        wire.try_into()
    }

    /// Refuses data older than `bound` with `Stale`. The bound must be at least twice the store's
    /// heartbeat interval.
    #[must_use]
    pub fn max_staleness(mut self, bound: Duration) -> Self {
        self.max_staleness = Some(bound);
        self
    }

    /// Returns the longest wait that the read permits.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the same read with another longest wait.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Returns the event that the read waits for.
    pub fn wait(&self) -> &ReadWait {
        &self.wait
    }

    /// Returns the highest age at which the read answers, if it has one.
    pub fn staleness_bound(&self) -> Option<Duration> {
        self.max_staleness
    }
}

impl From<&ReadOptions> for v1::ReadOptions {
    /// Encodes times above 49 days as 49 days.
    fn from(read: &ReadOptions) -> Self {
        let wait = match &read.wait {
            ReadWait::Nothing => None,
            ReadWait::Token(token) => Some(v1::read_options::Wait::AfterToken(token.encode())),
            ReadWait::Latest => Some(v1::read_options::Wait::Latest(v1::read_options::Latest {})),
        };
        let ms = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        Self { wait, wait_ms: ms(read.timeout), age_ms_max: read.max_staleness.map(ms) }
    }
}

impl TryFrom<v1::ReadOptions> for ReadOptions {
    type Error = Error;

    /// Returns `InvalidArgument` for an invalid token.
    fn try_from(wire: v1::ReadOptions) -> Result<Self> {
        let wait = match wire.wait {
            None => ReadWait::Nothing,
            Some(v1::read_options::Wait::AfterToken(token)) => {
                ReadWait::Token(Token::decode(&token)?)
            }
            Some(v1::read_options::Wait::Latest(_)) => ReadWait::Latest,
        };
        let ms = |time: u32| Duration::from_millis(time.into());
        Ok(Self { wait, timeout: ms(wire.wait_ms), max_staleness: wire.age_ms_max.map(ms) })
    }
}
