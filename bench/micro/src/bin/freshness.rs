//! `make bench-freshness`: time from the acknowledgement of a write until the write is visible in
//! an embedded reader of another process. With the watcher's first argument, this program is that
//! process.

use std::env;
use std::process::ExitCode;

use forebay_bench_micro::{data, freshness, watch};
use forebay_bench_report::Bench;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let result = match arguments.split_first() {
        Some((first, rest)) if first == watch::WATCH => {
            watch::run(rest).map_err(|failure| format!("watch: {failure}"))
        }
        _ => run().map(|summary| println!("{summary}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("bench-freshness: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<String, String> {
    let plan = freshness::FreshnessPlan {
        rounds: Bench::rounds(11, 3),
        writes: 100_000,
        rate: 10_000,
        timed_one_in: 4,
        watched: 256,
        kafka: true,
        watcher: env::current_exe().map_err(|error| format!("find this program: {error}"))?,
    };
    let description = format!(
        "{}; one write in {} goes to one of {} watched documents, which are looked at every {} us",
        data::DATA,
        plan.timed_one_in,
        plan.watched,
        watch::REST.as_micros()
    );
    let mut bench = Bench::start("freshness", &description)?;
    freshness::run(&plan)?.into_iter().for_each(|row| bench.add(row));
    Ok(bench.finish()?.summary())
}
