//! The conformance suite on the log in memory.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_core::clock::{ManualClock, Timestamp};
use forebay_log::conformance::Fixture;
use forebay_log::{ChangeLog, MemoryLog, change_log_conformance};

struct MemoryFixture {
    clock: Arc<ManualClock>,
    log: Arc<MemoryLog>,
}

async fn fixture() -> MemoryFixture {
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)));
    MemoryFixture { log: Arc::new(MemoryLog::new(clock.clone())), clock }
}

#[async_trait]
impl Fixture for MemoryFixture {
    fn log(&self) -> Arc<dyn ChangeLog> {
        self.log.clone()
    }

    fn clock(&self) -> Option<Arc<ManualClock>> {
        Some(self.clock.clone())
    }

    async fn reopen(&mut self) -> bool {
        false
    }
}

change_log_conformance!(memory, fixture);
change_log_conformance!(memory_in_one_thread, fixture, start_paused = true);
