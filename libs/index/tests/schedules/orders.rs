//! Orders in which tasks take turns, many for each scene: chosen by shuttle, from seeds.
//!
//! All tasks of a schedule run in one thread, one at a time, and switch at *turns*. In a build with
//! `--cfg forebay_shuttle` the index has a turn before each access to words that readers and
//! writers share; in any other build only the scenes have turns, between whole operations.

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

/// Number of consecutive schedules of one seed: a PCT scheduler learns from the previous schedules.
const SCHEDULES_PER_SEED: usize = if cfg!(forebay_shuttle) { 20 } else { 4 };
/// Number of priority changes in a PCT schedule, plus one.
const PCT_DEPTH: usize = 4;
/// Number of steps after which a schedule counts as endless.
const STEPS_MAX: usize = 5_000_000;
const STACK_BYTES: usize = 512 * 1024;

/// Returns a generator of numbers that look random and are the same for each seed.
pub fn numbers(seed: u64) -> impl FnMut(u64) -> u64 + Clone {
    let mut state = seed;
    move |bound| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }
}

/// The role of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Prepares a scene, or checks its result: never yields at a turn.
    Stage,
    Reader,
    /// Writes. No other task stores the words that a writer loads, so a writer has turns only
    /// before stores.
    Writer,
}

/// The events in the schedules of a scene.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunTally {
    pub schedules: u64,
    /// Copies that a reader repeated, because the memory of the copy was reused.
    pub reused: u64,
    /// Owners that were killed.
    pub killed: u64,
    /// Entries after which some documents were on disk.
    pub spilled: u64,
}

thread_local! {
    static ROLE: Cell<Role> = const { Cell::new(Role::Stage) };
    /// Number of stores before the writer is killed.
    static STORES_LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    static TALLY: Cell<RunTally> = const {
        Cell::new(RunTally { schedules: 0, reused: 0, killed: 0, spilled: 0 })
    };
    /// The word that a turn loads: shuttle switches tasks before an access to a word of its own.
    static WORD: AtomicBool = const { AtomicBool::new(false) };
}

pub fn note(update: impl FnOnce(&mut RunTally)) {
    let mut tally = TALLY.get();
    update(&mut tally);
    TALLY.set(tally);
}

/// Marks a turn: another task may continue here.
pub fn turn() {
    let role = ROLE.get();
    if role != Role::Stage && !std::thread::panicking() {
        WORD.with(|word| word.load(Ordering::SeqCst));
        ROLE.set(role);
    }
}

/// As [`turn`], if this task needs the progress of another task.
pub fn wait() {
    let role = ROLE.get();
    shuttle::thread::yield_now();
    ROLE.set(role);
}

/// The panic payload of a killed owner.
struct ProcessKill;

/// Marks a turn before a store, at which the writer may be killed.
pub fn turn_to_store() {
    let stores_left = STORES_LEFT.get();
    if ROLE.get() != Role::Reader && stores_left < u64::MAX && !std::thread::panicking() {
        if stores_left == 0 {
            STORES_LEFT.set(u64::MAX);
            note(|tally| tally.killed += 1);
            resume_unwind(Box::new(ProcessKill));
        }
        STORES_LEFT.set(stores_left - 1);
    }
    turn();
}

/// Runs `work`, unless it is killed after this many stores: then its stores remain, and the rest
/// never happens. Returns whether `work` ended by itself.
pub fn until_killed(stores: u64, work: impl FnOnce()) -> bool {
    STORES_LEFT.set(stores);
    let end = catch_unwind(AssertUnwindSafe(work));
    STORES_LEFT.set(u64::MAX);
    match end {
        Ok(()) => true,
        Err(failure) if failure.is::<ProcessKill>() => false,
        Err(failure) => resume_unwind(failure),
    }
}

#[cfg(forebay_shuttle)]
fn step(step: schedule::Step) {
    match step {
        schedule::Step::Load if ROLE.get() == Role::Writer => {}
        schedule::Step::Load => turn(),
        schedule::Step::Store => turn_to_store(),
        schedule::Step::Wait => wait(),
        schedule::Step::Reused => note(|tally| tally.reused += 1),
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

/// Waits for tasks; from then on the caller has the role [`Role::Stage`].
pub fn join(tasks: impl IntoIterator<Item = shuttle::thread::JoinHandle<()>>) {
    tasks.into_iter().for_each(|task| task.join().unwrap());
    ROLE.set(Role::Stage);
}

/// The choice of the next task.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// Any task, each time.
    Any,
    /// The task of the highest priority, which changes a few times.
    Priority,
    /// The same task for a while: long enough, in some schedules, for a writer to apply many
    /// entries while a reader is in the middle of a copy.
    Runs,
}

const ORDERS: [Order; 3] = [Order::Any, Order::Priority, Order::Runs];

/// A scheduler that runs each task for a random number of steps before it switches.
#[derive(Debug)]
struct Runs {
    seed: u64,
    schedules: usize,
    state: u64,
    /// Average length of a run.
    length: u64,
}

impl Runs {
    fn number(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_add(1);
        numbers(self.state)(bound)
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

/// Reads a number from the environment.
fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The lock that keeps a planted fault of one test away from the tasks of other tests.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Excludes all other tests while the guard exists.
pub fn lock_alone() -> MutexGuard<'static, ()> {
    let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    #[cfg(forebay_shuttle)]
    {
        schedule::call(step);
        schedule::plant(None);
    }
    guard
}

/// Runs a scene under the schedules of this many seeds, in each order. The scene receives a number
/// from which it generates its data. `SEEDS` overrides the number of seeds, `SEED` the first one.
///
/// # Errors
/// The reason of the first failure; the seed is printed.
pub fn explore(
    #[cfg(forebay_shuttle)] fault: Option<schedule::Fault>,
    seeds: u64,
    scene: impl Fn(u64) + Copy + Send + Sync + 'static,
) -> Result<RunTally, String> {
    let _guard = lock_alone();
    let begin = move || {
        #[cfg(forebay_shuttle)]
        schedule::plant(fault);
        note(|tally| tally.schedules += 1);
        ROLE.set(Role::Stage);
        STORES_LEFT.set(u64::MAX);
        scene(shuttle::rand::thread_rng().next_u64());
    };
    TALLY.set(RunTally::default());
    let (first, seeds) = (env_number("SEED").unwrap_or(1), env_number("SEEDS").unwrap_or(seeds));
    for seed in first..first + seeds {
        for order in ORDERS {
            let before = TALLY.get().schedules;
            let ran = catch_unwind(AssertUnwindSafe(|| run(order, seed, begin)));
            if let Err(failure) = ran {
                ROLE.set(Role::Stage);
                let place = TALLY.get().schedules - before;
                let failure = panic_message(&*failure);
                println!("SEED={seed} fails, in its schedule {place} by {order:?}: {failure}");
                return Err(failure);
            }
        }
    }
    Ok(TALLY.get())
}

fn run(order: Order, seed: u64, play: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    // The seed reproduces the schedule in fewer words.
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

fn panic_message(failure: &(dyn Any + Send)) -> String {
    let text = failure.downcast_ref::<String>().cloned();
    text.or_else(|| failure.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default()
}
