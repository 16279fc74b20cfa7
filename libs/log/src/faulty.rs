//! A log that fails on purpose, for tests and the simulator. The log refuses and delays calls, and
//! leaves callers in doubt about appends, at configured rates; the entropy source decides each
//! fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::entropy::Entropy;
use forebay_core::id::{Offset, PartitionCount, PartitionRef, StoreId};
use forebay_core::{Error, Result};

use crate::change_log::{AppendReceipt, Bounds, ChangeLog, ReadLimit, Records};

/// Rates of the faults, out of 10,000 calls; all zero by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultRates {
    /// Appends that fail with `Unavailable`; nothing is appended.
    pub append_refused: u32,
    /// Appends that fail with `UnknownOutcome` although the entry was appended.
    pub append_in_doubt_appended: u32,
    /// Appends that fail with `UnknownOutcome` and append nothing.
    pub append_in_doubt_lost: u32,
    /// Appends that fail with `UnknownOutcome` at once, and append some time later.
    pub append_in_doubt_late: u32,
    /// Appends that are delayed before they start.
    pub append_delayed: u32,
    /// Appends whose answer is delayed after the entry was appended.
    pub answer_delayed: u32,
    /// Reads that fail with `Unavailable`.
    pub read_refused: u32,
    /// Reads that are delayed before they start.
    pub read_delayed: u32,
    /// Calls of `bounds` that fail with `Unavailable`.
    pub bounds_refused: u32,
    /// Longest delay, and longest time after which a late append happens.
    pub delay_max: Duration,
}

/// Count of each fault; a run that leaves a count at zero has not tested that fault.
#[derive(Debug, Default)]
pub struct FaultCounts {
    append_refused: AtomicU64,
    append_in_doubt_appended: AtomicU64,
    append_in_doubt_lost: AtomicU64,
    append_in_doubt_late: AtomicU64,
    append_delayed: AtomicU64,
    answer_delayed: AtomicU64,
    read_refused: AtomicU64,
    read_delayed: AtomicU64,
    bounds_refused: AtomicU64,
}

impl FaultCounts {
    /// Returns the count of each fault under the name of its rate.
    pub fn by_name(&self) -> [(&'static str, u64); 9] {
        [
            ("append_refused", &self.append_refused),
            ("append_in_doubt_appended", &self.append_in_doubt_appended),
            ("append_in_doubt_lost", &self.append_in_doubt_lost),
            ("append_in_doubt_late", &self.append_in_doubt_late),
            ("append_delayed", &self.append_delayed),
            ("answer_delayed", &self.answer_delayed),
            ("read_refused", &self.read_refused),
            ("read_delayed", &self.read_delayed),
            ("bounds_refused", &self.bounds_refused),
        ]
        .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }
}

/// A wrapper that injects faults into any log. The wrapper's successful answers are correct:
/// records are never duplicated, reordered or invented.
pub struct FaultyLog<L> {
    inner: Arc<L>,
    entropy: Arc<dyn Entropy>,
    rates: parking_lot::RwLock<FaultRates>,
    counts: FaultCounts,
}

impl<L: ChangeLog> FaultyLog<L> {
    /// Wraps a log that fails at these rates; `entropy` decides which calls fail.
    pub fn new(inner: L, entropy: Arc<dyn Entropy>, rates: FaultRates) -> Self {
        let (inner, rates) = (Arc::new(inner), parking_lot::RwLock::new(rates));
        Self { inner, entropy, rates, counts: FaultCounts::default() }
    }

    /// Returns the log without faults.
    pub fn inner(&self) -> &L {
        &self.inner
    }

    /// Returns the count of each fault.
    pub fn counts(&self) -> &FaultCounts {
        &self.counts
    }

    /// Changes the rates from the next call on; the default rates end all faults.
    pub fn set_rates(&self, rates: FaultRates) {
        *self.rates.write() = rates;
    }

    fn draw(&self, end: u64) -> Result<u64> {
        Ok(self.entropy.next_u64()? % end.max(1))
    }

    /// Returns whether a fault of this rate happens now, and counts it.
    fn happens(&self, rate: u32, count: &AtomicU64) -> Result<bool> {
        let happens = rate > 0 && self.draw(10_000)? < u64::from(rate);
        if happens {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(happens)
    }

    fn delay(&self, rates: &FaultRates) -> Result<Duration> {
        let longest_us = u64::try_from(rates.delay_max.as_micros()).unwrap_or(u64::MAX);
        Ok(Duration::from_micros(self.draw(longest_us.saturating_add(1))?))
    }

    async fn maybe_delay(&self, rates: &FaultRates, rate: u32, count: &AtomicU64) -> Result<()> {
        if self.happens(rate, count)? {
            tokio::time::sleep(self.delay(rates)?).await;
        }
        Ok(())
    }

    fn append_late(&self, at: PartitionRef, entry: Bytes, delay: Duration) {
        let inner = self.inner.clone();
        tokio::spawn(async move {
            tokio::time::sleep(delay).await;
            // The caller has received an unknown outcome, and a failure is one of its two cases.
            let _ = inner.append(at, entry).await;
        });
    }
}

fn refusal() -> Error {
    Error::unavailable("injected fault: the operation did nothing; try again")
}

fn in_doubt() -> Error {
    Error::unknown_outcome("injected fault: the write may be in the log; send the same write again")
}

#[async_trait]
impl<L: ChangeLog> ChangeLog for FaultyLog<L> {
    async fn create(&self, store: StoreId, partitions: PartitionCount) -> Result<()> {
        self.inner.create(store, partitions).await
    }

    async fn delete(&self, store: StoreId) -> Result<()> {
        self.inner.delete(store).await
    }

    async fn append(&self, at: PartitionRef, entry: Bytes) -> Result<AppendReceipt> {
        let (rates, counts) = (*self.rates.read(), &self.counts);
        self.maybe_delay(&rates, rates.append_delayed, &counts.append_delayed).await?;
        if self.happens(rates.append_refused, &counts.append_refused)? {
            return Err(refusal());
        }
        if self.happens(rates.append_in_doubt_lost, &counts.append_in_doubt_lost)? {
            return Err(in_doubt());
        }
        if self.happens(rates.append_in_doubt_late, &counts.append_in_doubt_late)? {
            self.append_late(at, entry, self.delay(&rates)?);
            return Err(in_doubt());
        }
        let receipt = self.inner.append(at, entry).await?;
        self.maybe_delay(&rates, rates.answer_delayed, &counts.answer_delayed).await?;
        if self.happens(rates.append_in_doubt_appended, &counts.append_in_doubt_appended)? {
            return Err(in_doubt());
        }
        Ok(receipt)
    }

    async fn read(&self, at: PartitionRef, from: Offset, limit: ReadLimit) -> Result<Records> {
        let (rates, counts) = (*self.rates.read(), &self.counts);
        self.maybe_delay(&rates, rates.read_delayed, &counts.read_delayed).await?;
        if self.happens(rates.read_refused, &counts.read_refused)? {
            return Err(refusal());
        }
        self.inner.read(at, from, limit).await
    }

    async fn bounds(&self, at: PartitionRef) -> Result<Bounds> {
        if self.happens(self.rates.read().bounds_refused, &self.counts.bounds_refused)? {
            return Err(refusal());
        }
        self.inner.bounds(at).await
    }

    async fn trim(&self, at: PartitionRef, before: Offset) -> Result<()> {
        self.inner.trim(at, before).await
    }
}
