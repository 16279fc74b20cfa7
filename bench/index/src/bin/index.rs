//! `make bench-index`: the embedded index and its peers, in one table. The program has two other
//! forms: `index worker SECTION ROLE ENTRIES` is the process that holds a section's data in Rust,
//! and `index opened ENTRIES VALUE_BYTES HOW` is a reader over files whose opening is measured.

use std::cell::RefCell;
use std::env;
use std::io::{stdin, stdout};
use std::process::ExitCode;

use forebay_bench_index::data::Data;
use forebay_bench_index::driver;
use forebay_bench_index::gets::{self, Map, Store};
use forebay_bench_index::peers::Programs;
use forebay_bench_index::plan::{self, Times};
use forebay_bench_index::reopen::{self, ReopenScenario};
use forebay_bench_index::report::Report;
use forebay_bench_index::serve::{about, serve};
use forebay_bench_index::writes::{self, ConcurrentReads, Copy, Growth};
use forebay_bench_index::{clock, writes::bytes_per_entry};
use forebay_bench_report::{Bench, Contender};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => run(),
        ["worker", section, role, entries] => work(section, role, entries),
        ["opened", entries, value_bytes, way] => opened(entries, value_bytes, way),
        _ => Err("index takes no arguments; run: make bench-index".to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("bench-index: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let times = Times::of(Bench::is_quick());
    let mut report = Report::start(times)?;
    let rows = plan::rows_asked();
    let sections = plan::sections();
    let mut reports = driver::WorkerReports::default();
    let measured = driver::run(&sections, &Programs::find()?, times, rows.as_deref(), &mut reports);
    print!("{}", report.finish(&sections, measured, reports)?);
    Ok(())
}

/// Holds the data of a section and answers orders.
fn work(section: &str, role: &str, entries: &str) -> Result<(), String> {
    let sections = plan::sections();
    let found = sections.iter().find(|candidate| candidate.name == section);
    let data = found.map(|section| section.data).ok_or("there is no such section")?;
    let number = |word: &str| word.parse::<u64>().map_err(|error| format!("{word}: {error}"));
    let entries = number(entries)?;
    let data = Data { entries, ..data };
    if role == "reopen" {
        return reopen(data);
    }
    clock::stay_on(writes::READER_CORE)?;
    match role {
        "reads" => reads(data),
        "files" => {
            let store = RefCell::new(Store::open(data)?);
            answer(data, &mut gets::contenders(&store))
        }
        "rust" => rust(data),
        "apply" => apply(data),
        "concurrent" => concurrent_reads(data),
        "growth" => {
            let growth = Growth::new(data, 1_000_000);
            let grow = || growth.grow();
            answer(data, &mut [Contender::several("grow", grow)])
        }
        "bytes" => answer(data, &mut [Contender::several("bytes", || bytes_per_entry(data))]),
        _ => Err(format!("there is no role {role}")),
    }
}

fn answer(data: Data, contenders: &mut [Contender<'_>]) -> Result<(), String> {
    serve(&about(data.entries)?, contenders, stdin().lock(), stdout().lock())
}

fn reads(data: Data) -> Result<(), String> {
    let (store, map) = (RefCell::new(Store::fill(data)?), RefCell::new(Map::fill(data)));
    let mut contenders = gets::contenders(&store);
    contenders.push(Contender::new("hashmap get", || map.borrow_mut().get()));
    contenders.push(Contender::new("hashmap loop 500", || map.borrow_mut().loops(gets::BATCH)));
    answer(data, &mut contenders)
}

fn rust(data: Data) -> Result<(), String> {
    let store = RefCell::new(Store::fill(data)?);
    answer(data, &mut gets::contenders(&store))
}

fn reopen(data: Data) -> Result<(), String> {
    let reopening = RefCell::new(ReopenScenario::start(data)?);
    let mut contenders = [
        Contender::several("reopen", || reopening.borrow_mut().reopen()),
        Contender::several("torn", || reopening.borrow_mut().torn()),
    ];
    answer(data, &mut contenders)
}

fn opened(entries: &str, value_bytes: &str, way: &str) -> Result<(), String> {
    let number = |word: &str| word.parse::<u64>().map_err(|error| format!("{word}: {error}"));
    reopen::opened(number(entries)?, number(value_bytes)? as usize, way)
}

fn apply(data: Data) -> Result<(), String> {
    let warm = Copy::fill(data).and_then(|mut copy| copy.warm_up().map(|()| copy));
    let copy = RefCell::new(warm.map_err(|error| error.to_string())?);
    answer(data, &mut writes::contenders(&copy))
}

fn concurrent_reads(data: Data) -> Result<(), String> {
    let reads = RefCell::new(ConcurrentReads::fill(data)?);
    let mut contenders = vec![Contender::several("idle", || reads.borrow_mut().idle())];
    for (name, rate) in
        [("10K/s", 10_000), ("100K/s", 100_000), ("500K/s", 500_000), ("1M/s", 1_000_000)]
    {
        let reads = &reads;
        let read = move || reads.borrow_mut().concurrent(name, rate);
        contenders.push(Contender::several(name, read));
    }
    answer(data, &mut contenders)
}
