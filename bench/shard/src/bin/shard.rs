//! `make bench-shard`: the ordered server by Simple-KV's four orders, compared with Redis.

use std::process::ExitCode;

use forebay_bench_report::{Bench, Report, end};
use forebay_bench_shard::orders;

fn main() -> ExitCode {
    end("shard", run())
}

fn run() -> Result<Report, String> {
    let (operations, connecting) =
        if Bench::is_quick() { (50_000, 5_000) } else { (500_000, 500_000) };
    let description = format!(
        "{operations} documents, keys of 25 bytes, values of letters and digits; as many \
         operations of each order, {connecting} where each has a connection of its own; 16 clients"
    );
    let mut bench = Bench::start("shard", &description)?;
    let plan = orders::OrdersPlan {
        rounds: Bench::rounds(3, 3),
        operations,
        connecting,
        values: vec![100, 1_000],
        clients: 16,
    };
    orders::run(&plan)?.into_iter().for_each(|row| bench.add(row));
    bench.finish()
}
