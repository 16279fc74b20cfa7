//! `make bench-features`: bi(OS)' run of inserts and selects, the fold, freshness, and Kafka
//! compared with a raw producer. With the watcher's first argument, this program is the watcher
//! process instead.

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use forebay_bench_features::{data, kafka, run};
use forebay_bench_micro::watch;
use forebay_bench_report::Bench;

/// The sustainable rate: two cores sustain it with ten million groups (tools/decisions/0052).
const LASTING: u64 = 2_500;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let result = match arguments.split_first() {
        Some((first, rest)) if first == watch::WATCH => {
            watch::run(rest).map_err(|failure| format!("watch: {failure}"))
        }
        _ => measure().map(|summary| println!("{summary}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("bench-features: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Rows due in a second, rate by rate; 22,000 is slightly above bi(OS)' own rate.
const RATES: [u64; 6] = [LASTING, 5_000, 10_000, 15_000, 22_000, 30_000];

/// Value of `RATES` that skips the embedded log.
const KAFKA: &str = "kafka";

/// Parses the rates of `RATES='2500 5000'`; returns none for an empty text.
fn rates_asked(rates_text: &str) -> Result<Vec<u64>, String> {
    let rate = |word: &str| word.parse().ok().filter(|rate| *rate > 0);
    let rates: Option<Vec<u64>> = rates_text.split_whitespace().map(rate).collect();
    rates.ok_or_else(|| {
        format!("RATES='{rates_text}' is not a list of rows per second, each 1 or more")
    })
}

fn measure() -> Result<String, String> {
    let is_quick = Bench::is_quick();
    let seconds = |full: u64, quick: u64| Duration::from_secs(if is_quick { quick } else { full });
    let rates_text = env::var("RATES").unwrap_or_default();
    let embedded = rates_text != KAFKA;
    let rates_asked_for = if embedded { rates_asked(&rates_text)? } else { Vec::new() };
    let rates = if rates_asked_for.is_empty() { RATES.to_vec() } else { rates_asked_for.clone() };
    let plan = run::FeaturesPlan {
        rows: if is_quick { 1_000_000 } else { 10_000_000 },
        clients: 64,
        batch_clients: 4,
        batch: 500,
        // Longer than the longest interval at which a node flushes its shards.
        rest: Duration::from_secs(12),
        rates: rates
            .into_iter()
            .map(|rate| (rate, if rate == LASTING { seconds(600, 30) } else { seconds(120, 15) }))
            .collect(),
        window: seconds(60, 10),
        turn: seconds(30, 10),
        pages_bytes: 1 << 30,
        embedded,
        // A run of selected rates skips Kafka.
        kafka: rates_asked_for.is_empty().then(|| kafka::KafkaPlan {
            rounds: Bench::rounds(11, 3),
            turn: seconds(5, 3),
            clients: 16,
            batch_clients: 4,
            batch: 100,
            brokers: vec![1, 3],
        }),
        watcher: env::current_exe().map_err(|error| format!("find this program: {error}"))?,
    };
    let description = format!("{}; {} of them are there before the load", data::DATA, plan.rows);
    let mut bench = Bench::start("features", &description)?;
    run::run(&plan)?.into_iter().for_each(|row| bench.add(row));
    Ok(bench.finish()?.summary())
}
