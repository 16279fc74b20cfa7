//! Builders, collectors and expiry as processes in random order from a seed, with different clocks
//! or delayed lists. The tests prove that every snapshot that counts is whole, and so is every
//! snapshot that a reader may have started with.

mod tiny;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_core::ErrorCode;
use forebay_snapshot::{ChunkId, ListedSnapshot, PartitionSnapshots, SnapshotStore};
use forebay_testkit::object_front::{ObjectFront, Pause};
use forebay_testkit::objects::TestObjects;
use forebay_testkit::random::SeededRng;
use object_store::path::Path;

use tiny::{AT, manifest};

const HOUR: Duration = Duration::from_secs(60 * 60);
const GRACE: Duration = Duration::from_secs(24 * 60 * 60);
const SEEDS: u64 = 150;
const BUILDS: usize = 12;
const COLLECTIONS: usize = 40;
const KEPT: usize = 2;
/// Number of distinct pieces in all snapshots: few, so that most pieces are shared.
const PIECES: usize = 12;

/// Events over all seeds; a count of zero means that the test has proved nothing.
#[derive(Default)]
struct EventCounts {
    verified: AtomicU64,
    given_up: AtomicU64,
    collected: AtomicU64,
}

struct World {
    seed: u64,
    objects: Arc<TestObjects>,
    dice: Arc<Mutex<SeededRng>>,
    offsets: AtomicU64,
    counts: Arc<EventCounts>,
}

/// A process, and whether it is about to publish.
struct Process {
    snapshots: PartitionSnapshots,
    publishes: Arc<AtomicBool>,
}

fn open_partition(objects: Arc<dyn object_store::ObjectStore>) -> PartitionSnapshots {
    SnapshotStore::of(objects, Path::from("some/folder")).partition(AT)
}

impl World {
    fn new(seed: u64, counts: &Arc<EventCounts>) -> Self {
        let dice = Arc::new(Mutex::new(SeededRng::new(seed)));
        let (objects, counts) = (Arc::new(TestObjects::default()), Arc::clone(counts));
        Self { seed, objects, dice, offsets: AtomicU64::new(1), counts }
    }

    fn below(&self, end: usize) -> usize {
        self.dice.lock().unwrap().below(end)
    }

    /// Returns a process with a clock that is ahead and lists that are behind.
    fn process(&self, clock_lead: Duration, list_lag: Duration) -> Process {
        let publishes = Arc::new(AtomicBool::new(false));
        let (dice, publishing) = (Arc::clone(&self.dice), Arc::clone(&publishes));
        let pause: Pause = Arc::new(move |path| {
            let mut dice = dice.lock().unwrap();
            // The calls for the manifest come first.
            if !path.as_ref().ends_with(".manifest") {
                publishing.store(false, Ordering::Relaxed);
            }
            (dice.below(4) as u32, Duration::ZERO)
        });
        let front = ObjectFront {
            objects: Arc::clone(&self.objects),
            ahead: clock_lead,
            behind: list_lag,
            pause,
        };
        Process { snapshots: open_partition(Arc::new(front)), publishes }
    }

    /// Builds like the service: gives up after half of the grace period.
    async fn build(&self, process: &Process, others: &[&Process]) -> forebay_core::Result<()> {
        let (began, offset) = (self.objects.now(), self.offsets.fetch_add(1, Ordering::Relaxed));
        let known_chunks = process.snapshots.known_chunks().await?;
        let mut chunks = Vec::new();
        for _ in 0..4 {
            let bytes = format!("{:04}", self.below(PIECES)).into_bytes();
            let chunk = ChunkId::of(&bytes, offset);
            if let Some(known_chunk) = known_chunks.get(&chunk.hash) {
                chunks.push(*known_chunk);
                continue;
            }
            process.snapshots.put_chunk(chunk, bytes.into()).await?;
            chunks.push(chunk);
            // No time passes between another builder's check of its time and its manifest.
            if others.iter().all(|other| !other.publishes.load(Ordering::Relaxed)) {
                self.objects.pass(HOUR * self.below(8) as u32);
            }
        }
        process.publishes.store(true, Ordering::Relaxed);
        if self.objects.now().duration_since(began).unwrap() > GRACE / 2 {
            process.publishes.store(false, Ordering::Relaxed);
            self.counts.given_up.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let published = process.snapshots.publish(&manifest(offset, offset, chunks)).await;
        process.publishes.store(false, Ordering::Relaxed);
        match published {
            // Another process has removed a chunk; the snapshot then does not count.
            Err(error) if error.code() == ErrorCode::NotFound => return Ok(()),
            published => published?,
        }
        self.counts.verified.fetch_add(1, Ordering::Relaxed);
        let mut counting = process.snapshots.list().await?;
        counting.retain(ListedSnapshot::counts);
        ListedSnapshot::sort_oldest_first(&mut counting);
        for listed in &counting[..counting.len().saturating_sub(KEPT)] {
            process.snapshots.expire(listed.name).await?;
        }
        Ok(())
    }

    /// Checks that every snapshot that a reader may use now is whole.
    async fn assert_whole(&self) {
        let (as_it_is, now) = (open_partition(self.objects.clone()), self.objects.now());
        for listed in as_it_is.list().await.unwrap() {
            // With the worst of clocks, a reader that has started with a snapshot has half of the
            // grace period.
            let is_left = |since| now.duration_since(since).is_ok_and(|past| past > GRACE / 2);
            if !listed.is_verified || listed.expired.is_some_and(is_left) {
                continue;
            }
            for chunk in as_it_is.read(listed.name).await.unwrap().chunks() {
                let found = as_it_is.chunk(*chunk).await;
                found.unwrap_or_else(|error| panic!("seed {}: {listed:?}: {error}", self.seed));
            }
        }
    }

    /// Runs two builders, of which the second has this clock, and two collectors.
    async fn run(&self, clock_lead: Duration, list_lag: Duration) {
        let [builder, other] =
            [Duration::ZERO, clock_lead].map(|clock_lead| self.process(clock_lead, list_lag));
        let builds = async |process: &Process| {
            for _ in 0..BUILDS {
                self.build(process, &[&builder, &other]).await.unwrap();
                self.assert_whole().await;
            }
        };
        let collects = async |process: &Process| {
            for _ in 0..COLLECTIONS {
                let collected = process.snapshots.collect(GRACE).await.unwrap();
                self.counts.collected.fetch_add(collected.chunks, Ordering::Relaxed);
                self.assert_whole().await;
            }
        };
        let collectors =
            [Duration::ZERO, clock_lead].map(|clock_lead| self.process(clock_lead, list_lag));
        let [first, second] = &collectors;
        tokio::join!(builds(&builder), builds(&other), collects(first), collects(second));
    }
}

async fn over_all_seeds(clock_lead: Duration, list_lag: Duration) {
    let counts = Arc::new(EventCounts::default());
    for seed in 0..SEEDS {
        World::new(seed, &counts).run(clock_lead, list_lag).await;
    }
    for count in [&counts.verified, &counts.given_up, &counts.collected] {
        assert!(count.load(Ordering::Relaxed) > SEEDS, "too little has happened");
    }
}

#[tokio::test]
async fn clock_skew_of_half_the_grace_costs_no_valid_snapshot() {
    over_all_seeds(GRACE / 2, Duration::ZERO).await;
}

#[tokio::test]
async fn lists_late_by_a_quarter_of_the_grace_cost_no_valid_snapshot() {
    over_all_seeds(Duration::ZERO, GRACE / 4).await;
}
