//! Orders in which tasks take turns, many for each scene: chosen by shuttle, from seeds.
//!
//! All tasks of a schedule run in one thread, one at a time, and change at *turns*. Built with
//! `--cfg forebay_shuttle` the index has one before each access to words that readers and writers
//! share; in any other build turns are only where a scene has them, between whole operations.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(forebay_shuttle)]
use forebay_index::schedule;
use shuttle::rand::RngCore;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Schedule, Scheduler, Task, TaskId};
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// Schedules of one seed, one after another: those of a PCT scheduler learn from those before.
const SCHEDULES_PER_SEED: usize = if cfg!(forebay_shuttle) { 20 } else { 4 };
/// Changes of priority in a PCT schedule, and one more.
const PCT_DEPTH: usize = 4;
/// Steps after which a schedule is taken for one that never ends.
const STEPS_MAX: usize = 5_000_000;
const STACK_BYTES: usize = 512 * 1024;

/// Numbers that look random and are the same for each seed.
pub fn numbers(seed: u64) -> impl FnMut(u64) -> u64 + Clone {
    let mut state = seed;
    move |below| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % below
    }
}

/// What a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It makes things ready, or looks at what has become of them: it never gives its turn away.
    Stage,
    Reader,
    /// Nobody else stores what it loads, so that it has a turn only before it stores.
    Writer,
}

/// What has happened in the schedules of a scene.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub schedules: u64,
    /// Copies that a reader made again, for what it had copied was used again meanwhile.
    pub reused: u64,
    /// Holders that were killed.
    pub killed: u64,
    /// Entries behind which documents lay on disk.
    pub spilled: u64,
}

thread_local! {
    static ROLE: Cell<Role> = const { Cell::new(Role::Stage) };
    /// Stores that the writer does before it is killed.
    static STORES_LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    static SEEN: Cell<Seen> = const {
        Cell::new(Seen { schedules: 0, reused: 0, killed: 0, spilled: 0 })
    };
    /// Shuttle changes tasks before it touches a word of its own.
    static WORD: AtomicBool = const { AtomicBool::new(false) };
}

pub fn note(what: impl FnOnce(&mut Seen)) {
    let mut seen = SEEN.get();
    what(&mut seen);
    SEEN.set(seen);
}

/// A turn: another task may go on here.
pub fn turn() {
    let role = ROLE.get();
    if role != Role::Stage && !std::thread::panicking() {
        WORD.with(|word| word.load(Ordering::SeqCst));
        ROLE.set(role);
    }
}

/// As [`turn`], where only others can bring this task further.
pub fn wait() {
    let role = ROLE.get();
    shuttle::thread::yield_now();
    ROLE.set(role);
}

/// Why a holder ends that is killed.
struct Killed;

/// A turn before a store, at which the writer may be killed.
pub fn turn_to_store() {
    let left = STORES_LEFT.get();
    if ROLE.get() != Role::Reader && left < u64::MAX && !std::thread::panicking() {
        if left == 0 {
            STORES_LEFT.set(u64::MAX);
            note(|seen| seen.killed += 1);
            resume_unwind(Box::new(Killed));
        }
        STORES_LEFT.set(left - 1);
    }
    turn();
}

/// Does something, unless that is killed after this many stores: then it leaves what it has stored,
/// and the rest of it is as if it had never been.
pub fn until_killed(stores: u64, work: impl FnOnce()) -> bool {
    STORES_LEFT.set(stores);
    let ended = catch_unwind(AssertUnwindSafe(work));
    STORES_LEFT.set(u64::MAX);
    match ended {
        Ok(()) => true,
        Err(why) if why.is::<Killed>() => false,
        Err(why) => resume_unwind(why),
    }
}

#[cfg(forebay_shuttle)]
fn step(step: schedule::Step) {
    match step {
        schedule::Step::Load if ROLE.get() == Role::Writer => {}
        schedule::Step::Load => turn(),
        schedule::Step::Store => turn_to_store(),
        schedule::Step::Wait => wait(),
        schedule::Step::Reused => note(|seen| seen.reused += 1),
    }
}

/// Starts a task.
pub fn spawn(role: Role, work: impl FnOnce() + Send + 'static) -> shuttle::thread::JoinHandle<()> {
    shuttle::thread::spawn(move || {
        ROLE.set(role);
        work();
        ROLE.set(Role::Stage);
    })
}

/// Waits for tasks; the caller is on stage from then on.
pub fn join(tasks: impl IntoIterator<Item = shuttle::thread::JoinHandle<()>>) {
    tasks.into_iter().for_each(|task| task.join().unwrap());
    ROLE.set(Role::Stage);
}

/// How turns are given.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// To any task, each time.
    Any,
    /// To the one of the highest priority, which changes a few times.
    Priority,
    /// To the same one for a while: long enough, in some schedules, for a writer to apply many
    /// entries while a reader stands in the middle of a copy.
    Runs,
}

const ORDERS: [Order; 3] = [Order::Any, Order::Priority, Order::Runs];

/// Tasks go on for a while, by chance, before another one has its turn.
#[derive(Debug)]
struct Runs {
    seed: u64,
    schedules: usize,
    state: u64,
    /// How long a run is, on average.
    length: u64,
}

impl Runs {
    fn number(&mut self, below: u64) -> u64 {
        self.state = self.state.wrapping_add(1);
        numbers(self.state)(below)
    }
}

impl Scheduler for Runs {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.schedules = self.schedules.checked_sub(1)?;
        self.state = numbers(self.seed ^ (self.schedules as u64) << 40)(u64::MAX);
        self.length = 4 << self.number(10);
        Some(Schedule::new(self.seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let current = current.filter(|current| runnable.iter().any(|task| task.id() == *current));
        match current.filter(|_| !is_yielding && self.number(self.length) > 0) {
            Some(current) => Some(current),
            None => Some(runnable[self.number(runnable.len() as u64) as usize].id()),
        }
    }

    fn next_u64(&mut self) -> u64 {
        self.number(u64::MAX)
    }
}

/// A number from the environment.
fn asked(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Stands for what one test plants, which another one's tasks must not meet.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// No other test runs meanwhile.
pub fn alone() -> MutexGuard<'static, ()> {
    let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    #[cfg(forebay_shuttle)]
    {
        schedule::call(step);
        schedule::plant(None);
    }
    alone
}

/// Runs a scene under the schedules of this many seeds, in each order. It is given a number that it
/// makes its data of. `SEEDS` says how many, `SEED` the first one.
///
/// # Errors
/// Why it fails in one of them; the seed is printed.
pub fn explore(
    #[cfg(forebay_shuttle)] fault: Option<schedule::Fault>,
    seeds: u64,
    scene: impl Fn(u64) + Copy + Send + Sync + 'static,
) -> Result<Seen, String> {
    let _alone = alone();
    let begin = move || {
        #[cfg(forebay_shuttle)]
        schedule::plant(fault);
        note(|seen| seen.schedules += 1);
        ROLE.set(Role::Stage);
        STORES_LEFT.set(u64::MAX);
        scene(shuttle::rand::thread_rng().next_u64());
    };
    SEEN.set(Seen::default());
    let (first, seeds) = (asked("SEED").unwrap_or(1), asked("SEEDS").unwrap_or(seeds));
    for seed in first..first + seeds {
        for order in ORDERS {
            let before = SEEN.get().schedules;
            let ran = catch_unwind(AssertUnwindSafe(|| run(order, seed, begin)));
            if let Err(why) = ran {
                ROLE.set(Role::Stage);
                let place = SEEN.get().schedules - before;
                let why = said(&*why);
                println!("SEED={seed} fails, in its schedule {place} by {order:?}: {why}");
                return Err(why);
            }
        }
    }
    Ok(SEEN.get())
}

fn run(order: Order, seed: u64, play: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    // The seed says it in fewer words.
    config.failure_persistence = FailurePersistence::None;
    let schedules = SCHEDULES_PER_SEED;
    match order {
        Order::Any => {
            Runner::new(RandomScheduler::new_from_seed(seed, schedules), config).run(play)
        }
        Order::Priority => {
            let scheduler = PctScheduler::new_from_seed(seed, PCT_DEPTH, schedules);
            Runner::new(scheduler, config).run(play)
        }
        Order::Runs => {
            let scheduler = Runs { seed, schedules, state: 0, length: 1 };
            Runner::new(scheduler, config).run(play)
        }
    };
}

fn said(why: &(dyn Any + Send)) -> String {
    let text = why.downcast_ref::<String>().cloned();
    text.or_else(|| why.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
