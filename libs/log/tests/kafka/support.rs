//! The broker that the tests share, and a log of its own for each of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use forebay_core::clock::ManualClock;
use forebay_log::conformance::Fixture;
use forebay_log::{ChangeLog, KafkaLog, KafkaOptions};
use forebay_testkit::brokers::Brokers;

/// The broker that the tests of this binary share.
pub fn broker() -> &'static Brokers {
    static BROKER: OnceLock<Brokers> = OnceLock::new();
    BROKER.get_or_init(|| Brokers::start(1).unwrap())
}

/// Options with a prefix that no other test has.
pub fn options() -> KafkaOptions {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    KafkaOptions::dev(broker().bootstrap(), format!("test-{number}"))
}

pub struct KafkaFixture {
    pub options: KafkaOptions,
    pub log: Arc<KafkaLog>,
}

pub async fn fixture() -> KafkaFixture {
    let options = options();
    let log = Arc::new(KafkaLog::open(options.clone()).await.unwrap());
    KafkaFixture { options, log }
}

#[async_trait]
impl Fixture for KafkaFixture {
    fn log(&self) -> Arc<dyn ChangeLog> {
        self.log.clone()
    }

    fn clock(&self) -> Option<Arc<ManualClock>> {
        None
    }

    async fn reopen(&mut self) -> bool {
        self.log = Arc::new(KafkaLog::open(self.options.clone()).await.unwrap());
        true
    }
}
