//! Options and injected parts of a client.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::clock::{Clock, SystemClock};
use forebay_core::entropy::{Entropy, SystemEntropy};
use forebay_core::limits::{
    CLIENT_ATTEMPT_MS, CLIENT_DEADLINE_MS, CLIENT_STREAM_BYTES_MAX, CLIENT_STREAM_CHANGES_MAX,
};

/// Options of a [`Client`](crate::Client): the defaults, changed one by one.
///
/// ```
/// use std::time::Duration;
/// use forebay::ClientOptions;
/// let options = ClientOptions::default().deadline(Duration::from_secs(2));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientOptions {
    /// Deadline of a call, retries included; then the call reports the outcome so far. 10 s unless
    /// set.
    pub deadline: Duration,
    /// Time limit of one attempt, after which the client retries. 4 s unless set. The writer waits
    /// for the outcome of a conditional write for four fifths of this time.
    pub attempt: Duration,
}

impl ClientOptions {
    /// Sets the deadline of a call, retries included.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets the time limit of one attempt.
    #[must_use]
    pub fn attempt(mut self, attempt: Duration) -> Self {
        self.attempt = attempt;
        self
    }
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            deadline: Duration::from_millis(CLIENT_DEADLINE_MS),
            attempt: Duration::from_millis(CLIENT_ATTEMPT_MS),
        }
    }
}

/// A client's sources of time and randomness; the simulator brings its own.
#[derive(Clone)]
#[non_exhaustive]
pub struct ClientParts {
    /// Clock that decides when a write has become too old to be retried.
    pub clock: Arc<dyn Clock>,
    /// Source of the client's id, and of the jitter in its waits.
    pub entropy: Arc<dyn Entropy>,
}

impl ClientParts {
    /// Sets the clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the source of randomness.
    #[must_use]
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.entropy = entropy;
        self
    }
}

impl Default for ClientParts {
    /// Returns the host's clock and randomness.
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), entropy: Arc::new(SystemEntropy) }
    }
}

/// Limits of the unresolved changes of a [`WriteStream`](crate::writes::WriteStream).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamOptions {
    /// Most unresolved changes; a further change waits. 16,384 unless set.
    pub changes_max: usize,
    /// Most bytes of unresolved changes; a larger single change is still sent, alone. 64 MiB unless
    /// set.
    pub bytes_max: usize,
}

impl StreamOptions {
    /// Sets the limit of unresolved changes.
    #[must_use]
    pub fn changes_max(mut self, changes: usize) -> Self {
        self.changes_max = changes;
        self
    }

    /// Sets the limit of bytes of unresolved changes.
    #[must_use]
    pub fn bytes_max(mut self, bytes: usize) -> Self {
        self.bytes_max = bytes;
        self
    }
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self { changes_max: CLIENT_STREAM_CHANGES_MAX, bytes_max: CLIENT_STREAM_BYTES_MAX }
    }
}
