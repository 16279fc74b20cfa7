//! How fast rows go, at most.

use std::num::NonZeroU32;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

/// What goes at once, at most, in KiB.
const BURST_KIB: u32 = 4 << 10;

/// Lets so many bytes through in a second; all of them where there is no bound.
pub(super) struct Throttle(Option<DefaultDirectRateLimiter>);

impl Throttle {
    /// With this bound; 0: none. It is kept in KiB.
    pub fn new(bytes_per_second: u64) -> Self {
        let kib = u32::try_from(bytes_per_second.div_ceil(1_024)).unwrap_or(u32::MAX);
        let burst = NonZeroU32::MIN.saturating_add(BURST_KIB - 1);
        let quota = NonZeroU32::new(kib).map(|kib| Quota::per_second(kib).allow_burst(burst));
        Self(quota.map(RateLimiter::direct))
    }

    /// Waits until so many bytes may go.
    pub async fn admit(&self, bytes: usize) {
        let Some(limiter) = &self.0 else { return };
        let mut left = u32::try_from(bytes.div_ceil(1_024)).unwrap_or(u32::MAX);
        while let Some(some) = NonZeroU32::new(left.min(BURST_KIB)) {
            // Never more than the burst, so it is never refused.
            let _ = limiter.until_n_ready(some).await;
            left -= some.get();
        }
    }
}
