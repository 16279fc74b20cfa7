//! `make bench-push`: the cost, for a reader, of a push of a version that is mostly equal. With the
//! reader's first argument, this program is that reader's process.

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use forebay_bench_micro::push::{self, DocumentShape, PushPlan, reads};
use forebay_bench_report::{Bench, Report, end};

/// Documents and bytes of their texts, in the short form and in the long form.
const SHAPES: [[(u64, usize); 2]; 2] =
    [[(1_000_000, 350), (4_000_000, 50)], [(10_000_000, 350), (30_000_000, 50)]];
/// Number of partitions.
const PARTITIONS: u32 = 8;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.split_first() {
        Some((first, rest)) if first == reads::READ => match reads::run(rest) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                eprintln!("bench-push: read: {failure}");
                ExitCode::FAILURE
            }
        },
        _ => end("push", run()),
    }
}

fn run() -> Result<Report, String> {
    let shape = |(documents, text_bytes)| DocumentShape { documents, text_bytes };
    let plan = PushPlan {
        rounds: Bench::rounds(5, 3),
        shapes: SHAPES[usize::from(!Bench::is_quick())].map(shape).to_vec(),
        partitions: PARTITIONS,
        steady: Duration::from_secs(3),
        reader: env::current_exe().map_err(|error| format!("find this program: {error}"))?,
    };
    let [(long, _), (short, _)] = SHAPES[usize::from(!Bench::is_quick())];
    let description = format!(
        "{long} documents with a text of 350 bytes, then {short} with one of 50, under int64 keys, \
         as files of comma-separated values; each push changes one in 20 and drops one in 100; \
         {PARTITIONS} partitions; a reader of another process with a directory; 64 other documents \
         are written every 20 ms"
    );
    let mut bench = Bench::start("push", &description)?;
    push::run(&plan)?.into_iter().for_each(|row| bench.add(row));
    bench.finish()
}
