//! A log in the memory of one process, for tests and for readers in memory.
//!
//! The log keeps every rule of [`ChangeLog`] except durability: its records end with it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::Result;
use forebay_core::clock::{Clock, Timestamp};
use forebay_core::id::{Offset, PartitionCount, PartitionRef, StoreId};
use parking_lot::Mutex;

use crate::append_notifier::AppendNotifier;
use crate::change_log::{
    AppendReceipt, Bounds, ChangeLog, LogRecord, ReadLimit, Records, check_entry,
    check_not_control, check_same_count, no_such_log, trim_above_end,
};

/// A log in memory.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::sync::Arc;
/// use bytes::Bytes;
/// use forebay_core::clock::SystemClock;
/// use forebay_core::id::{Offset, PartitionRef};
/// use forebay_log::{ChangeLog, MemoryLog};
///
/// let log = MemoryLog::new(Arc::new(SystemClock));
/// let appended = log.append(PartitionRef::CONTROL, Bytes::from_static(b"entry")).await?;
/// assert_eq!(appended.offset, Offset(0));
/// # Ok::<(), forebay_core::Error>(())
/// # }).unwrap();
/// ```
pub struct MemoryLog {
    clock: Arc<dyn Clock>,
    stores: Mutex<BTreeMap<StoreId, Vec<Arc<MemoryPartition>>>>,
}

struct MemoryPartition {
    end: AppendNotifier,
    state: Mutex<MemoryState>,
}

struct MemoryState {
    start: Offset,
    records: VecDeque<LogRecord>,
    last_append_time: Timestamp,
    is_deleted: bool,
}

impl MemoryLog {
    /// Creates an empty log that takes append times from this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let control = vec![Arc::new(MemoryPartition::new())];
        let stores = BTreeMap::from([(PartitionRef::CONTROL.store, control)]);
        Self { clock, stores: Mutex::new(stores) }
    }

    fn partition(&self, at: PartitionRef) -> Result<Arc<MemoryPartition>> {
        let stores = self.stores.lock();
        let partitions = stores.get(&at.store).ok_or_else(|| no_such_log(at))?;
        partitions.get(at.partition.0 as usize).cloned().ok_or_else(|| no_such_log(at))
    }
}

impl MemoryPartition {
    fn new() -> Self {
        let state = MemoryState {
            start: Offset(0),
            records: VecDeque::new(),
            last_append_time: Timestamp::MIN,
            is_deleted: false,
        };
        Self { end: AppendNotifier::new(Offset(0)), state: Mutex::new(state) }
    }

    fn read(&self, at: PartitionRef, from: Offset, bytes_max: usize) -> Result<Records> {
        let state = self.state.lock();
        if state.is_deleted {
            return Err(no_such_log(at));
        }
        let bounds = state.bounds();
        bounds.check(at, from)?;
        let mut records = Vec::new();
        let mut bytes = 0;
        for record in state.records.range((from.0 - state.start.0) as usize..) {
            bytes += record.entry.len();
            if bytes > bytes_max && !records.is_empty() {
                break;
            }
            records.push(record.clone());
        }
        Ok(Records { records, end: bounds.end })
    }
}

impl MemoryState {
    fn bounds(&self) -> Bounds {
        let end = Offset(self.start.0 + self.records.len() as u64);
        Bounds { start: self.start, end, server_time: Some(self.last_append_time) }
    }
}

#[async_trait]
impl ChangeLog for MemoryLog {
    async fn create(&self, store: StoreId, partitions: PartitionCount) -> Result<()> {
        check_not_control(store)?;
        let mut stores = self.stores.lock();
        if let Some(logs) = stores.get(&store) {
            return check_same_count(store, PartitionCount(logs.len() as u32), partitions);
        }
        let logs = partitions.partitions().map(|_| Arc::new(MemoryPartition::new())).collect();
        stores.insert(store, logs);
        Ok(())
    }

    async fn delete(&self, store: StoreId) -> Result<()> {
        check_not_control(store)?;
        for partition in self.stores.lock().remove(&store).into_iter().flatten() {
            let mut state = partition.state.lock();
            state.is_deleted = true;
            state.records.clear();
            partition.end.note_deleted();
        }
        Ok(())
    }

    async fn append(&self, at: PartitionRef, entry: Bytes) -> Result<AppendReceipt> {
        check_entry(at, &entry)?;
        let partition = self.partition(at)?;
        let mut state = partition.state.lock();
        if state.is_deleted {
            return Err(no_such_log(at));
        }
        let offset = state.bounds().end;
        let append_time = self.clock.now().max(state.last_append_time);
        state.last_append_time = append_time;
        state.records.push_back(LogRecord { offset, append_time, entry });
        partition.end.advance(offset.next());
        Ok(AppendReceipt { offset, append_time })
    }

    async fn read(&self, at: PartitionRef, from: Offset, limit: ReadLimit) -> Result<Records> {
        let partition = self.partition(at)?;
        let found = partition.read(at, from, limit.bytes_max)?;
        if !found.records.is_empty() || limit.wait_max.is_zero() {
            return Ok(found);
        }
        partition.end.wait_past(from, limit.wait_max).await;
        partition.read(at, from, limit.bytes_max)
    }

    async fn bounds(&self, at: PartitionRef) -> Result<Bounds> {
        let bounds = self.partition(at)?.state.lock().bounds();
        Ok(Bounds { server_time: bounds.server_time.max(Some(self.clock.now())), ..bounds })
    }

    async fn trim(&self, at: PartitionRef, before: Offset) -> Result<()> {
        let partition = self.partition(at)?;
        let mut state = partition.state.lock();
        let bounds = state.bounds();
        if before > bounds.end {
            return Err(trim_above_end(at, before, bounds.end));
        }
        if before > bounds.start {
            state.records.drain(..(before.0 - bounds.start.0) as usize);
            state.start = before;
        }
        Ok(())
    }
}
