//! Copies of a shard between two processes of `forebayd`, compared with the naive copy between
//! two processes and the ceilings of both, in the same rounds.

use std::env;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use forebay_bench_micro::clock::seconds;
use forebay_bench_micro::rusage::ProcessUsage;
use forebay_bench_micro::server::{Server, scratch};
use forebay_bench_micro::{Failure, disk_baseline, runtime};
use forebay_bench_naive_copy::{receive, send};
use forebay_bench_report::{Contender, Rounds, Row, Spread, Unit, Values, interleave};
use forebay_testkit::tree;

use crate::ceilings;
use crate::process::{OutputLine, Process, ProcessResult};
use crate::source::{KEY_BYTES, STORE, Source};

const ROWS: &str = "copy of rows";
const COLD: &str = "copy of rows, source not in the page cache";
const FILES: &str = "copy of files";
const NAIVE: &str = "naive copy";
const CEILING: &str = "slower ceiling";
const LOOPBACK: &str = "bytes through loopback";

/// Sizes and durations of the run.
#[derive(Clone, Debug)]
pub struct CopiesPlan {
    /// Number of rounds.
    pub rounds: usize,
    /// Bytes of keys and values of each shard.
    pub bytes: u64,
    /// Bytes of a value, one shard for each.
    pub values: Vec<usize>,
    /// Duration of the loopback transfer; without a few whole seconds, seconds are not compared.
    pub loopback: Duration,
    /// Program with the ends of the naive copy: this benchmark's own.
    pub program: PathBuf,
}

/// Measures and forms the rows.
///
/// # Errors
/// Fails if a contender fails; the message has its name and the round.
pub fn run(plan: &CopiesPlan) -> Result<Vec<Row>, String> {
    let runtime = runtime()?;
    let mut rows = Vec::new();
    for value_bytes in &plan.values {
        // The shards follow one after the other: each takes several times its size of disk.
        let source = Source::make(&runtime, plan.bytes, *value_bytes)?;
        let mut contenders = [
            contender(ROWS, &source, || copy(&source, &[])),
            contender(COLD, &source, || source.forget_cached().and_then(|()| copy(&source, &[]))),
            contender(FILES, &source, || copy(&source, &["--files"])),
            contender(NAIVE, &source, || naive(plan, &source)),
            Contender::several(CEILING, || {
                ceilings_of(plan, &source).map_err(|failure| failure.to_string())
            }),
        ];
        let rounds = interleave(plan.rounds, &mut contenders)?;
        rows.extend(rows_of(*value_bytes, &rounds)?);
    }
    Ok(rows)
}

/// The measurements of one copy.
struct CopyTimes {
    seconds: f64,
    source: ProcessUsage,
    target: ProcessUsage,
    /// Measurements that only `forebayd` reports.
    told: Option<CopyReport>,
}

/// Further measurements of a copy by `forebayd`.
struct CopyReport {
    /// Seconds until a document is read from the copy.
    served_after: f64,
    /// Rates of whole seconds, by any unit.
    samples: Vec<f64>,
}

fn contender<'a>(
    name: &'static str,
    source: &'a Source,
    mut run: impl FnMut() -> Result<CopyTimes, String> + 'a,
) -> Contender<'a> {
    Contender::several(name, move || {
        let CopyTimes { seconds, source: from, target, told: copy_report } = run()?;
        let gigabytes = source.user_bytes() / 1e9;
        let measure = |quantity| measure(name, source.value_bytes, quantity);
        let mut values = vec![
            (measure("MB/s"), gigabytes * 1e3 / seconds),
            (measure("rows/s"), source.rows as f64 / seconds),
            (measure("CPU of the source, s/GB"), from.cpu_seconds / gigabytes),
            (measure("CPU of the target, s/GB"), target.cpu_seconds / gigabytes),
            (measure("memory of the source, MB"), from.memory_bytes / 1e6),
            (measure("memory of the target, MB"), target.memory_bytes / 1e6),
            (measure(FROM_DISK), from.disk_bytes / 1e6),
        ];
        if let Some(CopyReport { served_after, samples }) = copy_report {
            values.push((measure(SERVED), served_after));
            values.extend(slowest(&samples)?.map(|slowest| (measure(SLOWEST), slowest)));
        }
        Ok(values)
    })
}

const SLOWEST: &str = "slowest second / median second";
const SERVED: &str = "first served after, s";
const FROM_DISK: &str = "read from the disk by the source, MB";
/// Fewest whole seconds that are compared.
const SAMPLES_MIN: usize = 3;

fn measure(name: &str, value_bytes: usize, quantity: &str) -> String {
    format!("{name}, values of {value_bytes} B, {quantity}")
}

/// Returns the ratio of the slowest second to the median; `None` for too few seconds.
fn slowest(samples: &[f64]) -> Result<Option<f64>, String> {
    if samples.len() < SAMPLES_MIN {
        return Ok(None);
    }
    let slowest = samples.iter().copied().fold(f64::INFINITY, f64::min);
    Ok(Some(slowest / Spread::of(samples)?.median))
}

/// Makes one copy by `forebayd shard copy` from a running node, and checks that the copy has the
/// documents of the source.
fn copy(source: &Source, arguments: &[&str]) -> Result<CopyTimes, String> {
    let (target, program) = (scratch()?, tree::built("forebayd")?);
    source.serving(|server: &Server| {
        let before = ProcessUsage::by(server.process_id())?;
        let mut command = Command::new(&program);
        command.args(["shard", "copy", "--from", server.address(), "--store", STORE]);
        command.args(["--partition", "0"]);
        command
            .arg("--data-dir")
            .arg(target.path())
            .args(arguments)
            .env("FOREBAY_LOG_FILTER", "warn");
        let ran = Process::start("forebayd shard copy", &mut command)?.end()?;
        let after = ProcessUsage::by(server.process_id())?;
        let (opening, first_read) = seconds(|| source.read_copy(target.path()));
        first_read.and_then(|()| source.check_copy(target.path()))?;
        let cpu_seconds = after.cpu_seconds - before.cpu_seconds;
        let disk_bytes = after.disk_bytes - before.disk_bytes;
        let (served_after, samples) = (ran.seconds + opening, samples(&ran.output));
        Ok(CopyTimes {
            seconds: ran.seconds,
            source: ProcessUsage { cpu_seconds, disk_bytes, ..after },
            target: ran.usage,
            told: Some(CopyReport { served_after, samples }),
        })
    })
}

/// Makes one copy by the naive copy; the time ends when its last row is put.
fn naive(plan: &CopiesPlan, source: &Source) -> Result<CopyTimes, String> {
    let target = scratch()?;
    let mut command = Command::new(&plan.program);
    command.arg("naive-source").arg(source.shard());
    let mut from = Process::start("the naive copy's source", &mut command)?;
    let address = from.hear("at ")?;
    let mut command = Command::new(&plan.program);
    command.arg("naive-target").arg(target.path()).arg(address);
    let mut to = Process::start("the naive copy's target", &mut command)?;
    let rows = to.hear("done ")?;
    let from = from.end()?;
    let ProcessResult { output, usage, .. } = to.end()?;
    // Some rows are of the state.
    if !rows.parse::<u64>().is_ok_and(|rows| rows >= source.rows) {
        return Err(format!("{rows} rows came of {}", source.rows));
    }
    let last_line = output.iter().find(|output_line| output_line.line.starts_with("done "));
    let seconds = last_line.map_or(0.0, |output_line| output_line.after);
    Ok(CopyTimes { seconds, source: from.usage, target: usage, told: None })
}

/// Returns the rates between the progress lines of a copy, except the first and the last ones,
/// which cover less than a second.
fn samples(output: &[OutputLine]) -> Vec<f64> {
    // `1234 of about 5678 rows, 91011 bytes, ...`
    let bytes = |line: &str| line.split(", ").nth(1)?.split(' ').next()?.parse::<u64>().ok();
    let progress: Vec<_> = output
        .iter()
        .filter_map(|output_line| Some((output_line.after, bytes(&output_line.line)?)))
        .collect();
    let rate = |pair: &[(f64, u64)]| match pair {
        [(before, from), (after, to)] if after - before > 0.9 => {
            Some(to.saturating_sub(*from) as f64 / (after - before))
        }
        _ => None,
    };
    let rates: Vec<_> = progress.windows(2).filter_map(rate).collect();
    let last = rates.len().saturating_sub(1);
    rates.get(1..last).unwrap_or_default().to_vec()
}

/// Runs an end of the loop, as `copy naive-source SHARD` or `copy naive-target FOLDER
/// ADDRESS`.
///
/// # Errors
/// Fails if the end fails.
pub fn naive_end(arguments: &[&str]) -> Result<(), Failure> {
    match arguments {
        ["naive-source", shard] => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            println!("at {}", listener.local_addr()?);
            send(Path::new(shard), &listener)?;
        }
        ["naive-target", folder, address] => {
            let (copied, db) = receive(Path::new(folder), TcpStream::connect(address)?)?;
            println!("done {}", copied.rows);
            drop(db);
        }
        _ => return Err("run it without arguments: make bench-copy".into()),
    }
    Ok(())
}

fn ceilings_of(plan: &CopiesPlan, source: &Source) -> Result<Values, Failure> {
    let (folder, value_bytes) = (scratch()?, source.value_bytes);
    let row = (KEY_BYTES + value_bytes) as f64 / 1e6;
    let read = ceilings::iterate(source.shard())? * row;
    let sizes = (KEY_BYTES, value_bytes);
    let write_rate = ceilings::write_files(folder.path(), source.rows, sizes)? * row;
    let (loopback_rate, samples) = ceilings::loopback(plan.loopback)?;
    let (loopback_mb_per_s, disk) =
        (loopback_rate / 1e6, disk_baseline::sequential(folder.path(), plan.bytes)? / 1e6);
    let slower =
        [read, write_rate, loopback_mb_per_s, disk].into_iter().fold(f64::INFINITY, f64::min);
    let measure = |name, quantity| measure(name, value_bytes, quantity);
    let mut values = vec![
        (measure("iterator alone", "MB/s"), read),
        (measure("file writer alone", "MB/s"), write_rate),
        (measure(LOOPBACK, "MB/s"), loopback_mb_per_s),
        (measure("single file on the disk", "MB/s"), disk),
        (measure(CEILING, "MB/s"), slower),
    ];
    values.extend(slowest(&samples)?.map(|slowest| (measure(LOOPBACK, SLOWEST), slowest)));
    Ok(values)
}

fn rows_of(value_bytes: usize, rounds: &Rounds) -> Result<Vec<Row>, String> {
    let measure = |name, quantity| measure(name, value_bytes, quantity);
    let unit = |quantity: &str| match quantity.rsplit(' ').next() {
        Some("MB/s") => Unit::MegabytesPerSecond,
        Some("rows/s") => Unit::PerSecond,
        Some("s") => Unit::Seconds,
        _ => Unit::Count,
    };
    let row_against = |name, quantity, peer, peer_what| {
        let (own_measure, peer) = (measure(name, quantity), measure(peer, peer_what));
        Row::against(&own_measure, unit(quantity), rounds, &own_measure, &peer)
    };
    let mut rows = Vec::new();
    for quantity in [
        "MB/s",
        "rows/s",
        "CPU of the source, s/GB",
        "CPU of the target, s/GB",
        "memory of the source, MB",
        "memory of the target, MB",
    ] {
        rows.push(row_against(ROWS, quantity, NAIVE, quantity)?);
    }
    for (name, quantity) in [(ROWS, SERVED), (ROWS, FROM_DISK), (COLD, FROM_DISK)] {
        rows.push(Row::alone(
            &measure(name, quantity),
            unit(quantity),
            rounds,
            &measure(name, quantity),
        )?);
    }
    for (name, quantity) in [
        (ROWS, "copy of rows, against the slower ceiling"),
        (FILES, "copy of files, against the slower ceiling"),
    ] {
        let row = measure(quantity, "MB/s");
        let (own_measure, ceiling) = (measure(name, "MB/s"), measure(CEILING, "MB/s"));
        rows.push(Row::against(&row, Unit::MegabytesPerSecond, rounds, &own_measure, &ceiling)?);
    }
    // A short copy has no seconds to compare.
    if [ROWS, LOOPBACK].iter().all(|name| rounds.values(&measure(name, SLOWEST)).is_ok()) {
        rows.push(row_against(ROWS, SLOWEST, LOOPBACK, SLOWEST)?);
    }
    for quantity in ["MB/s", "CPU of the source, s/GB", "CPU of the target, s/GB"] {
        rows.push(row_against(COLD, quantity, NAIVE, quantity)?);
        rows.push(row_against(FILES, quantity, NAIVE, quantity)?);
    }
    for name in ["iterator alone", "file writer alone", LOOPBACK, "single file on the disk"] {
        let ceiling = measure(name, "MB/s");
        rows.push(Row::alone(&ceiling, Unit::MegabytesPerSecond, rounds, &ceiling)?);
    }
    Ok(rows)
}

/// Returns this program, whose other forms are the ends of the naive copy.
///
/// # Errors
/// Fails if the path of this program is unknown.
pub fn this_program() -> Result<PathBuf, String> {
    env::current_exe().map_err(|error| format!("find this program: {error}"))
}
