//! Options and injected parts of a client.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::clock::{Clock, SystemClock};
use forebay_core::entropy::{Entropy, SystemEntropy};
use forebay_core::limits::{
    CLIENT_ATTEMPT_MS, CLIENT_DEADLINE_MS, CLIENT_STREAM_BYTES_MAX, CLIENT_STREAM_CHANGES_MAX,
};

/// Options of a [`Client`](crate::Client).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// Deadline of a call, retries included; then the call reports the outcome so far. 10 s unless
    /// set.
    pub deadline: Duration,
    /// Time limit of one attempt, after which the client retries. 4 s unless set. The writer waits
    /// for the outcome of a conditional write for four fifths of this time.
    pub attempt: Duration,
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
pub struct ClientParts {
    /// Clock that decides when a write has become too old to be retried.
    pub clock: Arc<dyn Clock>,
    /// Source of the client's id, and of the jitter in its waits.
    pub entropy: Arc<dyn Entropy>,
}

impl Default for ClientParts {
    /// Returns the host's clock and randomness.
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), entropy: Arc::new(SystemEntropy) }
    }
}

/// Limits of the unsettled changes of a [`WriteStream`](crate::WriteStream).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Most unsettled changes; a further change waits. 16,384 unless set.
    pub changes_max: usize,
    /// Most bytes of unsettled changes; a larger single change is still sent, alone. 64 MiB unless
    /// set.
    pub bytes_max: usize,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self { changes_max: CLIENT_STREAM_CHANGES_MAX, bytes_max: CLIENT_STREAM_BYTES_MAX }
    }
}
