//! The log that fails on purpose. The tests prove that each fault happens, is counted, and returns
//! a correct outcome.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::ErrorCode;
use forebay_core::clock::{ManualClock, Timestamp};
use forebay_core::entropy::SeededEntropy;
use forebay_core::id::{Offset, PartitionRef};
use forebay_log::conformance::Fixture;
use forebay_log::faulty::{FaultRates, FaultyLog};
use forebay_log::{ChangeLog, MemoryLog, ReadLimit, change_log_conformance};

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp::from_micros(1_700_000_000_000_000)))
}

fn faulty(seed: u64, rates: FaultRates) -> FaultyLog<MemoryLog> {
    FaultyLog::new(MemoryLog::new(clock()), Arc::new(SeededEntropy::new(seed)), rates)
}

/// The conformance suite holds under delays alone, because a delay breaks no rule.
struct DelayedFixture {
    clock: Arc<ManualClock>,
    log: Arc<FaultyLog<MemoryLog>>,
}

async fn delayed() -> DelayedFixture {
    let clock = clock();
    let rates = FaultRates {
        append_delayed: 3_000,
        answer_delayed: 3_000,
        read_delayed: 3_000,
        delay_max: Duration::from_millis(50),
        ..FaultRates::default()
    };
    let entropy = Arc::new(SeededEntropy::new(1));
    let log = Arc::new(FaultyLog::new(MemoryLog::new(clock.clone()), entropy, rates));
    DelayedFixture { clock, log }
}

#[async_trait]
impl Fixture for DelayedFixture {
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

change_log_conformance!(delayed_suite, delayed, start_paused = true);

fn all_rates() -> FaultRates {
    FaultRates {
        append_refused: 500,
        append_in_doubt_appended: 500,
        append_in_doubt_lost: 500,
        append_in_doubt_late: 500,
        append_delayed: 500,
        answer_delayed: 500,
        read_refused: 500,
        read_delayed: 500,
        bounds_refused: 500,
        delay_max: Duration::from_millis(100),
    }
}

/// Result of a run: the code of each answer, and the log at the end.
async fn run(seed: u64) -> (Vec<Option<ErrorCode>>, Vec<Bytes>, FaultyLog<MemoryLog>) {
    let log = faulty(seed, all_rates());
    let at = PartitionRef::CONTROL;
    let limit = ReadLimit { bytes_max: usize::MAX, wait_max: Duration::ZERO };
    let mut codes = Vec::new();
    for number in 0..1_000_u64 {
        let entry = Bytes::from(number.to_string());
        codes.push(log.append(at, entry).await.err().map(|error| error.code()));
        codes.push(log.read(at, Offset(0), limit).await.err().map(|error| error.code()));
        codes.push(log.bounds(at).await.err().map(|error| error.code()));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let records = log.inner().read(at, Offset(0), limit).await.unwrap().records;
    (codes, records.into_iter().map(|record| record.entry).collect(), log)
}

#[tokio::test(start_paused = true)]
async fn every_fault_happens_and_reports_are_truthful() {
    let (codes, entries, log) = run(1).await;
    for (name, count) in log.counts().by_name() {
        assert!(count > 10, "{name} happened {count} times");
    }
    let numbers_with = |expected: Option<ErrorCode>| {
        let appends = codes.iter().step_by(3).enumerate();
        appends.filter(move |(_, code)| **code == expected).map(|(number, _)| number.to_string())
    };
    for number in numbers_with(None) {
        let times = entries.iter().filter(|entry| **entry == number.as_bytes()).count();
        assert_eq!(times, 1, "acknowledged {number} is in the log {times} times");
    }
    for number in numbers_with(Some(ErrorCode::Unavailable)) {
        assert!(
            entries.iter().all(|entry| *entry != number.as_bytes()),
            "refused {number} is there"
        );
    }
    let in_doubt: Vec<_> = numbers_with(Some(ErrorCode::UnknownOutcome)).collect();
    let present = entries.iter().filter(|entry| in_doubt.iter().any(|n| **entry == n.as_bytes()));
    let present_count = present.count();
    assert!(
        0 < present_count && present_count < in_doubt.len(),
        "{present_count} of {} in doubt",
        in_doubt.len()
    );
    assert!(!entries.is_sorted_by_key(|entry| String::from_utf8_lossy(entry).parse::<u64>().ok()));
}

#[tokio::test(start_paused = true)]
async fn seed_reproduces_a_run() {
    let (first, second, other) = (run(2).await, run(2).await, run(3).await);
    assert_eq!((&first.0, &first.1), (&second.0, &second.1));
    assert_ne!(first.0, other.0);
}

#[tokio::test(start_paused = true)]
async fn default_rates_end_all_faults() {
    let log = faulty(4, all_rates());
    log.set_rates(FaultRates::default());
    for number in 0..200_u64 {
        let entry = Bytes::from(number.to_string());
        assert_eq!(log.append(PartitionRef::CONTROL, entry).await.unwrap().offset, Offset(number));
    }
    assert!(log.counts().by_name().iter().all(|(_, count)| *count == 0));
}
