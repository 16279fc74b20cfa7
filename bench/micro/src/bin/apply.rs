//! `make bench-apply`: speed of a reader that applies its log.

use std::process::ExitCode;

use forebay_bench_micro::{apply, data};
use forebay_bench_report::{Bench, Report, end};

/// Changes in the log: each key is written three times.
const CHANGES: u64 = 3 * data::KEYS;

fn main() -> ExitCode {
    end("apply", run())
}

fn run() -> Result<Report, String> {
    let description = format!("{}; {CHANGES} changes, of one stream", data::DATA);
    let mut bench = Bench::start("apply", &description)?;
    let rounds = Bench::rounds(11, 3);
    let plan = apply::ApplyPlan { rounds, changes: CHANGES, shapes: vec![1, 100, 1_000] };
    apply::run(&plan)?.into_iter().for_each(|row| bench.add(row));
    bench.finish()
}
