//! Randomness as an argument: the source of the numbers that must not repeat.

use std::sync::Mutex;

use crate::error::{Error, Result};
use crate::id::{ClientId, LogId, StoreId};

/// Source of random numbers for a component. Production uses [`SystemEntropy`], the simulator a
/// seed.
pub trait Entropy: Send + Sync {
    /// Returns the next 64 random bits.
    ///
    /// # Errors
    /// Returns `Internal` if the host cannot provide randomness.
    fn next_u64(&self) -> Result<u64>;

    /// Returns a new log id, never 0.
    fn log_id(&self) -> Result<LogId> {
        Ok(LogId(self.next_u64()? | 1))
    }

    /// Returns a new store id. Ids without the highest bit are reserved; 0 is the control log.
    fn store_id(&self) -> Result<StoreId> {
        Ok(StoreId(self.next_u64()? | 1 << 63))
    }

    /// Returns a new client id.
    fn client_id(&self) -> Result<ClientId> {
        Ok(ClientId(u128::from(self.next_u64()?) << 64 | u128::from(self.next_u64()?)))
    }
}

/// The operating system's randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn next_u64(&self) -> Result<u64> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(|error| {
            Error::internal(format!("the host returned no random bytes: {error}"))
        })?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// A repeatable sequence from a seed (SplitMix64), for tests and the simulator.
#[derive(Debug)]
pub struct SeededEntropy(Mutex<u64>);

impl SeededEntropy {
    /// Creates the sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }
}

impl Entropy for SeededEntropy {
    fn next_u64(&self) -> Result<u64> {
        let mut state = self.0.lock().map_err(|_| Error::internal("a seeded draw panicked"))?;
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Ok(z ^ (z >> 31))
    }
}
