//! Rate limit of copies.

use std::num::NonZeroU32;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

/// Largest burst, in KiB.
const BURST_KIB: u32 = 4 << 10;

/// Limiter of bytes per second; `None` admits everything.
pub(super) struct Throttle(Option<DefaultDirectRateLimiter>);

impl Throttle {
    /// Creates a limiter with this bound; 0: no limit. The limiter counts in KiB.
    pub fn new(bytes_per_second: u64) -> Self {
        let kib = u32::try_from(bytes_per_second.div_ceil(1_024)).unwrap_or(u32::MAX);
        let burst = NonZeroU32::MIN.saturating_add(BURST_KIB - 1);
        let quota = NonZeroU32::new(kib).map(|kib| Quota::per_second(kib).allow_burst(burst));
        Self(quota.map(RateLimiter::direct))
    }

    /// Waits until this many bytes may be sent.
    pub async fn admit(&self, bytes: usize) {
        let Some(limiter) = &self.0 else { return };
        let mut left = u32::try_from(bytes.div_ceil(1_024)).unwrap_or(u32::MAX);
        while let Some(some) = NonZeroU32::new(left.min(BURST_KIB)) {
            // The request never exceeds the burst, so the limiter never refuses it.
            let _ = limiter.until_n_ready(some).await;
            left -= some.get();
        }
    }
}
