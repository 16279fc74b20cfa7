//! `make bench-copy`: copies of shards compared with the naive copy and the ceilings of both.
//! With `naive-source` or `naive-target`, this program is an end of that loop.

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use forebay_bench_report::Bench;
use forebay_bench_shard::copies;

/// Bytes of keys and values of each shard, in the short form and in the long one.
const BYTES: (u64, u64) = (1_000_000_000, 10_000_000_000);
const ROUNDS: usize = 3;
/// Duration of the loopback transfer, at any speed.
const LOOPBACK: Duration = Duration::from_secs(6);
/// Bytes of a value, one shard for each; `VALUES='128 1024'` selects some of them.
const VALUES: [usize; 4] = [128, 256, 512, 1024];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        [] => run(),
        end => copies::naive_end(end).map_err(|failure| failure.to_string()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("bench-copy: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the sizes that `VALUES` selects; all if it is not set.
fn values() -> Result<Vec<usize>, String> {
    let sizes_text = env::var("VALUES").unwrap_or_default();
    let values: Vec<_> = sizes_text.split_whitespace().map(str::parse).collect();
    match values.iter().all(|value| value.as_ref().is_ok_and(|value| VALUES.contains(value))) {
        true if values.is_empty() => Ok(VALUES.to_vec()),
        true => Ok(values.into_iter().flatten().collect()),
        false => Err(format!("VALUES='{sizes_text}' names other values than {VALUES:?}")),
    }
}

fn run() -> Result<(), String> {
    let bytes = if Bench::is_quick() { BYTES.0 } else { BYTES.1 };
    let values = values()?;
    let description = format!(
        "shards of {bytes} bytes of keys and values, one at a time: keys of 16 random bytes, \
         values of {values:?} bytes that no compression makes smaller; in the page cache, unless a \
         name says otherwise"
    );
    let mut bench = Bench::start("copy", &description)?;
    let (loopback, program) = (LOOPBACK, copies::this_program()?);
    let plan = copies::CopiesPlan { rounds: ROUNDS, bytes, values, loopback, program };
    copies::run(&plan)?.into_iter().for_each(|row| bench.add(row));
    println!("{}", bench.finish()?.summary());
    Ok(())
}
