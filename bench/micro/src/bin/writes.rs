//! `make bench-writes`: acknowledged writes per second, and the latency of each.

use std::process::ExitCode;
use std::time::Duration;

use forebay_bench_micro::{data, writes};
use forebay_bench_report::{Bench, Report, end};

fn main() -> ExitCode {
    end("writes", run())
}

fn run() -> Result<Report, String> {
    let mut bench = Bench::start("writes", data::DATA)?;
    let plan = writes::WritesPlan {
        rounds: Bench::rounds(11, 3),
        turn: Duration::from_secs(2),
        clients: 64,
        batch_clients: 4,
        batch: 1_000,
        kafka: true,
    };
    writes::run(&plan)?.into_iter().for_each(|row| bench.add(row));
    bench.finish()
}
