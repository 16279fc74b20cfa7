//! `make bench-copy`: copies of shards beside the straight loop and the ceilings of both. As `copy
//! straight-source` and `copy straight-target` it is an end of that loop.

use std::env;
use std::process::ExitCode;

use forebay_bench_report::Bench;
use forebay_bench_shard::copies;

/// Bytes of keys and values of each shard, in the short form and in the long one.
const BYTES: (u64, u64) = (1_000_000_000, 10_000_000_000);

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = match arguments.as_slice() {
        [] => run(),
        end => copies::straight_end(end).map_err(|failure| failure.to_string()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("bench-copy: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let bytes = if Bench::is_quick() { BYTES.0 } else { BYTES.1 };
    let about = format!(
        "one shard of {bytes} bytes of keys and values at a time: keys of 16 random bytes, values \
         that no compression makes smaller; in the page cache, but where it says otherwise"
    );
    let mut bench = Bench::start("copy", &about)?;
    let rounds = Bench::rounds(5, 3);
    let values = vec![128, 256, 512, 1024];
    let plan = copies::Plan { rounds, bytes, values, program: copies::this_program()? };
    copies::run(&plan)?.into_iter().for_each(|row| bench.add(row));
    println!("{}", bench.finish()?.summary());
    Ok(())
}
