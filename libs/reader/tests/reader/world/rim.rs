//! An in-memory log with a breakable front: a test can turn the log off, let it report no time, or
//! let it return records that it does not hold.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::id::{Offset, PartitionCount, PartitionRef, StoreId};
use forebay_core::{Error, Result};
use forebay_log::{AppendReceipt, Bounds, ChangeLog, MemoryLog, ReadLimit, Records};

use super::TokioClock;

type Twist = Box<dyn FnOnce(&mut Records) + Send>;

pub struct Rim {
    log: MemoryLog,
    /// Whether a store's logs are unreachable; the control log stays reachable.
    pub is_off: AtomicBool,
    /// First offset whose records are unreachable; bounds stay reachable.
    pub reads_below: AtomicU64,
    /// First offset from which reads never end.
    pub silent_from: AtomicU64,
    /// Whether bounds contain no time.
    pub is_timeless: AtomicBool,
    /// Number of calls to the control log.
    pub control_asked: AtomicU64,
    /// Lock of the control log's answers: while a test holds it, calls to the control log do not
    /// return.
    pub control: tokio::sync::Mutex<()>,
    twist: Mutex<Option<Twist>>,
}

impl Rim {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            log: MemoryLog::new(TokioClock::new()),
            is_off: AtomicBool::new(false),
            reads_below: AtomicU64::new(u64::MAX),
            silent_from: AtomicU64::new(u64::MAX),
            is_timeless: AtomicBool::new(false),
            control_asked: AtomicU64::new(0),
            control: tokio::sync::Mutex::new(()),
            twist: Mutex::new(None),
        })
    }

    /// Changes the next result of a read that has records.
    pub fn twist(&self, twist: impl FnOnce(&mut Records) + Send + 'static) {
        *self.twist.lock().unwrap() = Some(Box::new(twist));
    }

    async fn pass(&self, at: PartitionRef) {
        if at == PartitionRef::CONTROL {
            self.control_asked.fetch_add(1, Ordering::SeqCst);
            drop(self.control.lock().await);
        }
    }

    fn check(&self, at: PartitionRef, from: Offset) -> Result<()> {
        let is_off = self.is_off.load(Ordering::SeqCst);
        let is_off = is_off || from.0 >= self.reads_below.load(Ordering::SeqCst);
        if at.store != PartitionRef::CONTROL.store && is_off {
            return Err(Error::unavailable("the rim is off"));
        }
        Ok(())
    }
}

#[async_trait]
impl ChangeLog for Rim {
    async fn create(&self, store: StoreId, partitions: PartitionCount) -> Result<()> {
        self.log.create(store, partitions).await
    }

    async fn delete(&self, store: StoreId) -> Result<()> {
        self.log.delete(store).await
    }

    /// Appends always succeed: writers do not go through the breakable front.
    async fn append(&self, at: PartitionRef, entry: Bytes) -> Result<AppendReceipt> {
        self.log.append(at, entry).await
    }

    async fn read(&self, at: PartitionRef, from: Offset, limit: ReadLimit) -> Result<Records> {
        self.check(at, from)?;
        self.pass(at).await;
        let is_silent = from.0 >= self.silent_from.load(Ordering::SeqCst);
        if at.store != PartitionRef::CONTROL.store && is_silent {
            std::future::pending::<()>().await;
        }
        let mut records = self.log.read(at, from, limit).await?;
        self.check(at, from)?;
        let read_limit = self.reads_below.load(Ordering::SeqCst);
        if at.store != PartitionRef::CONTROL.store {
            records.records.retain(|record| record.offset.0 < read_limit);
        }
        if at.store != PartitionRef::CONTROL.store && !records.records.is_empty() {
            let twist = self.twist.lock().unwrap().take();
            twist.into_iter().for_each(|twist| twist(&mut records));
        }
        Ok(records)
    }

    async fn bounds(&self, at: PartitionRef) -> Result<Bounds> {
        self.check(at, Offset(0))?;
        self.pass(at).await;
        let bounds = self.log.bounds(at).await?;
        let server_time = bounds.server_time.filter(|_| !self.is_timeless.load(Ordering::SeqCst));
        Ok(Bounds { server_time, ..bounds })
    }

    async fn trim(&self, at: PartitionRef, before: Offset) -> Result<()> {
        self.log.trim(at, before).await
    }
}
