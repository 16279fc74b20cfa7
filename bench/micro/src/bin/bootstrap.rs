//! `make bench-bootstrap`: time of a reader until it serves the contents of a snapshot.

use std::process::ExitCode;

use forebay_bench_micro::bootstrap;
use forebay_bench_report::{Bench, Report, end};

/// Bytes of each value.
const VALUE_BYTES: usize = 350;
/// Documents, in the short form and in the long form, whose images have 10 GB.
const DOCUMENTS: (u64, u64) = (2_500_000, 25_000_000);
/// Memory of the reader: the documents, their index, and space to build the index.
const MEMORY_BYTES: u64 = 18 << 30;

fn main() -> ExitCode {
    end("bootstrap", run())
}

fn run() -> Result<Report, String> {
    let documents = if Bench::is_quick() { DOCUMENTS.0 } else { DOCUMENTS.1 };
    let description = format!(
        "{documents} documents under int64 keys, with values of {VALUE_BYTES} bytes that no \
         compression makes smaller; 8 partitions"
    );
    let mut bench = Bench::start("bootstrap", &description)?;
    let plan = bootstrap::BootstrapPlan {
        rounds: Bench::rounds(5, 3),
        documents,
        value_bytes: VALUE_BYTES,
        partitions: 8,
        memory_limit: MEMORY_BYTES,
    };
    bootstrap::run(&plan)?.into_iter().for_each(|row| bench.add(row));
    bench.finish()
}
