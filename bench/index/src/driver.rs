//! Runs the sections: starts a section's workers, lets them take turns round by round, and gathers
//! their results.

use std::process::Command;

use crate::clock::nanos;
use crate::memory::clear_memory;
use crate::peers::{Programs, Scratch};
use crate::plan::{Process, Section, Times, is_asked_for};
use crate::serve::WorkerDescription;
use crate::table;
use crate::verdict::Measurements;
use crate::worker::Worker;

/// Smallest store for which a launch starts with cleared memory; smaller stores are those of tests.
const MEMORY_CLEARED_FROM: u64 = 1_000_000;

/// Information from the workers in addition to their measurements.
#[derive(Clone, Debug, Default)]
pub struct WorkerReports {
    /// Description of each process of each launch, from the time when it was ready.
    pub about: Vec<(String, WorkerDescription)>,
    /// Failures.
    pub problems: Vec<String>,
}

impl WorkerReports {
    fn fails(&mut self, problem: String) {
        eprintln!("bench-index: {problem}");
        self.problems.push(problem);
    }
}

/// The rounds of a section, or the reason for their absence.
pub type Rounds = Result<forebay_bench_report::Rounds, String>;

/// Runs the requested sections; a failure is a result too.
pub fn run(
    sections: &[Section],
    programs: &Programs,
    times: Times,
    rows: Option<&str>,
    reports: &mut WorkerReports,
) -> Measurements {
    let mut measured = Measurements::new();
    for section in sections {
        let rounds = if is_asked_for(section.name, rows) {
            eprintln!("bench-index: {}: {}", section.name, section.about);
            run_section(section, programs, times, reports)
        } else {
            Err("not asked for (ROWS)".to_owned())
        };
        if let Err(problem) = &rounds {
            eprintln!("bench-index: {}: {problem}", section.name);
        }
        // Print the results of each section, in case the run is interrupted.
        let found = Measurements::from([(section.name.to_owned(), rounds)]);
        eprint!("{}", table::values(&found));
        measured.extend(found);
    }
    measured
}

fn run_section(
    section: &Section,
    programs: &Programs,
    times: Times,
    reports: &mut WorkerReports,
) -> Rounds {
    let (mut rounds, mut turn) = (forebay_bench_report::Rounds::default(), 0);
    for launch in 0..times.launches {
        if section.data.entries >= MEMORY_CLEARED_FROM {
            clear_memory();
        }
        let (scratch, began) = (Scratch::new()?, nanos());
        let mut workers = Vec::new();
        for (name, orders, worker) in start(section, programs, times, &scratch) {
            match worker {
                Ok(worker) => {
                    let name = format!("{name}, launch {}", launch + 1);
                    reports.about.push((name, worker.about.clone()));
                    workers.push((worker, orders));
                }
                Err(problem) => reports.fails(problem),
            }
        }
        if workers.is_empty() {
            return Err("no worker could be started".to_owned());
        }
        let (ready, first) = (nanos(), turn);
        while !times.are_over(section, turn - first, nanos() - ready) {
            run_round(&mut workers, turn, &mut rounds, reports);
            turn += 1;
        }
        let seconds = |from: u64, till: u64| (till - from) as f64 / 1e9;
        eprintln!(
            "bench-index: {}: launch {} of {}: ready after {:.0} s, {} rounds took {:.1} s",
            section.name,
            launch + 1,
            times.launches,
            seconds(began, ready),
            turn - first,
            seconds(ready, nanos()),
        );
    }
    Ok(rounds)
}

/// A worker's name, its orders, and the worker or the reason for its absence.
type StartedWorker = (String, Vec<&'static str>, Result<Worker, String>);

/// Starts all workers of a section, and waits until they have loaded their data. They load at the
/// same time, except for readers of one node: the first of these creates the copy that the others
/// open.
fn start(
    section: &Section,
    programs: &Programs,
    times: Times,
    scratch: &Scratch,
) -> Vec<StartedWorker> {
    let processes = section.processes.iter().filter(|candidate| !(times.quick && candidate.slow));
    let start_one = |process: &Process, start: fn(&str, &mut Command) -> Result<Worker, String>| {
        let name = format!("{}, {}", section.name, process.role);
        let command = programs.command(section, process, scratch);
        let worker = command.and_then(|mut command| start(&name, &mut command));
        (name, process.orders.clone(), worker)
    };
    if section.processes.iter().any(Process::needs_node) {
        return processes.map(|process| start_one(process, Worker::start)).collect();
    }
    let spawned: Vec<StartedWorker> =
        processes.map(|process| start_one(process, Worker::spawn)).collect();
    let ready =
        |(name, orders, worker): StartedWorker| (name, orders, worker.and_then(Worker::into_ready));
    spawned.into_iter().map(ready).collect()
}

/// Runs every order of every worker once; the first worker rotates from round to round. An order
/// that fails is not repeated.
fn run_round(
    workers: &mut [(Worker, Vec<&'static str>)],
    round: usize,
    rounds: &mut forebay_bench_report::Rounds,
    reports: &mut WorkerReports,
) {
    let mut orders: Vec<(usize, &'static str)> = Vec::new();
    for (place, (_, worker_orders)) in workers.iter().enumerate() {
        orders.extend(worker_orders.iter().map(|order| (place, *order)));
    }
    let first = round % orders.len().max(1);
    orders.rotate_left(first);
    for (place, order) in orders {
        let (worker, worker_orders) = &mut workers[place];
        match worker.run(order) {
            Ok(values) => values.iter().for_each(|(name, value)| rounds.record(name, *value)),
            Err(problem) => {
                worker_orders.retain(|kept_order| *kept_order != order);
                reports.fails(format!("{order}: {problem}"));
            }
        }
    }
    rounds.close();
}
