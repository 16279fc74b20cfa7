//! What a client is asked to be, and what it is made of.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::clock::{Clock, SystemClock};
use forebay_core::entropy::{Entropy, SystemEntropy};
use forebay_core::limits::{
    CLIENT_ATTEMPT_MS, CLIENT_DEADLINE_MS, CLIENT_STREAM_BYTES_MAX, CLIENT_STREAM_CHANGES_MAX,
};

/// What a [`Client`](crate::Client) is asked to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// Time that a call has, its retries included, before it reports what it knows. 10 s unless
    /// set.
    pub deadline: Duration,
    /// Time that one attempt of a call has before it is made again. 4 s unless set. The writer
    /// waits for the outcome of a conditional write for four fifths of it.
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

/// Where a client reads the time and draws its randomness; the simulator brings its own.
#[derive(Clone)]
pub struct ClientParts {
    /// Tells when a write has become too old to be retried.
    pub clock: Arc<dyn Clock>,
    /// Gives the client its id, and jitter to its waits.
    pub entropy: Arc<dyn Entropy>,
}

impl Default for ClientParts {
    /// The host's clock and randomness.
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), entropy: Arc::new(SystemEntropy) }
    }
}

/// How much a [`WriteStream`](crate::WriteStream) holds at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Most changes that are not settled yet; a further one waits. 16,384 unless set.
    pub changes_max: usize,
    /// Most bytes of changes that are not settled yet; one larger change still goes, alone. 64 MiB
    /// unless set.
    pub bytes_max: usize,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self { changes_max: CLIENT_STREAM_CHANGES_MAX, bytes_max: CLIENT_STREAM_BYTES_MAX }
    }
}
