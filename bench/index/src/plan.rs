//! The plan: which workers live at the same time, and the orders of each in a round.

use std::env;

use crate::data::{Data, Keys};

/// The language of a worker, and its runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// This program.
    Rust,
    /// The newer JDK, on which the jar uses foreign functions.
    Java25,
    /// The JDK on the path, on which the jar uses JNI.
    Java17,
    /// The wheel's own environment.
    Python,
}

/// A process of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Runtime of the process.
    pub runtime: Runtime,
    /// Data and contenders that the process holds.
    pub role: &'static str,
    /// Orders of the process, in sequence.
    pub orders: Vec<&'static str>,
    /// Whether the short form leaves the process out.
    pub slow: bool,
}

impl Process {
    /// Returns whether the process reads files that come from a node.
    #[must_use]
    pub fn needs_node(&self) -> bool {
        matches!(
            self.role,
            "files" | "java-files" | "java17-files" | "workers" | "reopen" | "weight"
        )
    }
}

/// Workers that are measured together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Name; goals refer to it.
    pub name: &'static str,
    /// Description of the data, in words.
    pub about: &'static str,
    /// Data set.
    pub data: Data,
    /// Processes.
    pub processes: Vec<Process>,
    /// Most rounds of one launch, if the usual number would take too long.
    pub rounds_max: Option<usize>,
}

/// Reads of a large store, next to which another map does not fit into memory.
const LARGE_RUST: [&str; 4] = ["D", "rust get", "rust loop 500", "rust batch 500"];
const LARGE_JAVA: [&str; 4] = ["java D", "java get", "java loop 500", "java batch 500"];
/// Reads of each size of a workload.
const SIZED_RUST: [&str; 7] = [
    "D",
    "rust get",
    "rust latencies",
    "rust batch 10",
    "rust batch 50",
    "rust batch 100",
    "rust batch 500",
];
const SIZED_JAVA: [&str; 5] =
    ["java D", "java get", "java singles", "java batches", "java batch 500"];
/// Further reads of the sizes for which goals are judged.
const MORE_RUST: [&str; 3] = ["rust loop 500", "hashmap get", "hashmap loop 500"];
const MORE_JAVA: [&str; 4] = ["java loop 500", "java arrays 500", "chm get", "chm loop 500"];

const FILE_READS: [&str; 5] =
    ["D", "rust-files get", "rust-files latencies", "rust-files loop 500", "rust-files batch 500"];

const CHRONICLE: [&str; 2] = ["chronicle get", "chronicle loop 500"];
const PYTHON: [&str; 7] = [
    "python get",
    "dict get",
    "lmdb get",
    "python get_many 500",
    "python get_packed 500",
    "dict comprehension 500",
    "lmdb getmulti 500",
];
const GATHER: [&str; 4] =
    ["gather 500 x 50", "batch copy 500", "matrix rows 500 x 50", "tuples 500 x 50"];
const SLOW: [&str; 5] =
    ["hollow get", "hollow loop 500", "rocksdb get", "rocksdb loop 500", "rocksdb batch 500"];

fn java(role: &'static str, orders: &[&'static str]) -> Process {
    Process { runtime: Runtime::Java25, role, orders: orders.to_vec(), slow: false }
}

fn python(role: &'static str, orders: &[&'static str]) -> Process {
    Process { runtime: Runtime::Python, ..java(role, orders) }
}

/// Returns Forebay and the peers in its JVM, with those in separate processes.
fn java_peers() -> Vec<Process> {
    let shared_processes = [&SIZED_JAVA[..], &MORE_JAVA, &CHRONICLE].concat();
    vec![
        java("java,chm,chronicle", &shared_processes),
        Process { runtime: Runtime::Java17, ..java("java17", &["java17 get", "java17 batch 500"]) },
        java("redis", &["redis get", "redis batch 500"]),
        Process { slow: true, ..java("hollow,rocksdb", &SLOW) },
    ]
}

/// Returns all sections, in the order in which they run.
#[must_use]
pub fn sections() -> Vec<Section> {
    [reads(), sizes(), over_files(), in_python(), writes()].concat()
}

const MILLION: u64 = 1_000_000;

/// Returns a data set with 16-byte keys.
fn data(entries: u64, value_bytes: usize) -> Data {
    Data { entries, keys: Keys::Bytes16, value_bytes }
}

fn section(
    name: &'static str,
    description: &'static str,
    data: Data,
    processes: Vec<Process>,
) -> Section {
    Section { name, about: description, data, processes, rounds_max: None }
}

fn rust(role: &'static str, orders: &[&'static str]) -> Process {
    Process { runtime: Runtime::Rust, role, orders: orders.to_vec(), slow: false }
}

fn reads() -> Vec<Section> {
    let peers = java_peers();
    let reads = [&SIZED_RUST[..], &MORE_RUST].concat();
    let with_peers = |peers: &[Process]| [&[rust("reads", &reads)], peers].concat();
    let inline = Data { keys: Keys::Int64, ..data(MILLION, 16) };
    vec![
        section(
            "1M x 50 B",
            "1M documents, keys of 16 B, values of 50 B",
            data(MILLION, 50),
            with_peers(&peers),
        ),
        section(
            "1M x 350 B",
            "1M documents, keys of 16 B, values of 350 B",
            data(MILLION, 350),
            with_peers(&peers[..1]),
        ),
        section(
            "1M inline",
            "1M documents, int64 keys, values of 16 B",
            inline,
            vec![rust("reads", &["D", "rust get", "rust latencies", "hashmap get"])],
        ),
        section(
            "25M x 50 B",
            "25M documents, keys of 16 B, values of 50 B, each side in a process of its own",
            data(25 * MILLION, 50),
            large_reads(),
        ),
        Section {
            rounds_max: Some(1),
            ..section(
                "25M x 32 B",
                "25M documents, keys of 4 B, values of 32 B, each side in a process of its own",
                Data { keys: Keys::Bytes4, ..data(25 * MILLION, 32) },
                large_reads(),
            )
        },
    ]
}

/// Returns each contender in a separate process.
fn large_reads() -> Vec<Process> {
    vec![rust("rust", &LARGE_RUST), java("java", &LARGE_JAVA), java("chronicle", &CHRONICLE)]
}

/// Returns the other sizes of the workload of 1M documents. They are reported and not judged, so
/// one round of each launch is enough.
fn sizes() -> Vec<Section> {
    let sized = |(name, description, entries, value_bytes)| Section {
        rounds_max: Some(1),
        ..section(
            name,
            description,
            data(entries, value_bytes),
            vec![rust("rust", &SIZED_RUST), java("java", &SIZED_JAVA)],
        )
    };
    [
        ("100K x 50 B", "100K documents, keys of 16 B, values of 50 B", MILLION / 10, 50),
        ("500K x 50 B", "500K documents, keys of 16 B, values of 50 B", MILLION / 2, 50),
        ("5M x 50 B", "5M documents, keys of 16 B, values of 50 B", 5 * MILLION, 50),
        ("100K x 350 B", "100K documents, keys of 16 B, values of 350 B", MILLION / 10, 350),
        ("500K x 350 B", "500K documents, keys of 16 B, values of 350 B", MILLION / 2, 350),
        ("5M x 350 B", "5M documents, keys of 16 B, values of 350 B", 5 * MILLION, 350),
    ]
    .map(sized)
    .to_vec()
}

/// Returns the sections in which readers share a copy through their directory, and those that
/// measure its opening.
fn over_files() -> Vec<Section> {
    let java_files = ["java-files get", "java-files singles", "java-files batch 500"];
    let java17 = Process {
        runtime: Runtime::Java17,
        ..java("java17-files", &["java17-files get", "java17-files batch 500"])
    };
    let reopen = |name, description, entries| {
        section(name, description, data(entries, 50), vec![rust("reopen", &["reopen", "torn"])])
    };
    vec![
        section(
            "files 1M x 50 B",
            "1M documents, keys of 16 B, values of 50 B: readers of one directory, over one copy",
            data(MILLION, 50),
            vec![rust("files", &FILE_READS), java("java-files", &java_files), java17],
        ),
        reopen("reopen 1M", "readers that are opened over the files of 1M x 50 B", MILLION),
        reopen("reopen 5M", "readers that are opened over the files of 5M x 50 B", 5 * MILLION),
        section(
            "Python workers",
            "16 workers of 1M documents of 1,008 B, over one copy",
            data(MILLION, 992),
            vec![python("workers", &["workers", "opens"])],
        ),
    ]
}

fn in_python() -> Vec<Section> {
    let section_of =
        |name, description, process| section(name, description, data(MILLION, 50), vec![process]);
    vec![
        section_of(
            "Python gets",
            "1M documents, keys of 16 B, values of 50 B, in Python",
            python("gets", &PYTHON),
        ),
        section(
            "Python gather",
            "10M documents of 50 float32 fields",
            data(10 * MILLION, 200),
            vec![python("gather", &GATHER)],
        ),
        section_of(
            "Python mixed",
            "1M documents of 200 fields of four types, a tenth of them absent",
            python("mixed", &["gather 500 x 50 of 200"]),
        ),
        section_of("weight", "shipped packages", python("weight", &["weight"])),
    ]
}

fn writes() -> Vec<Section> {
    let bytes = vec![rust("bytes", &["bytes"]), java("small", &["chronicle bytes"])];
    let rates = ["idle", "10K/s", "100K/s", "500K/s", "1M/s"];
    vec![
        section(
            "apply",
            "updates of existing documents of 1M x 50 B, 500 in an entry",
            data(MILLION, 50),
            vec![rust("apply", &["D", "apply", "from the log"])],
        ),
        section(
            "concurrent writer",
            "reads of 1M x 50 B on one core, updates of them on the other",
            data(MILLION, 50),
            vec![rust("concurrent", &rates)],
        ),
        section(
            "growth",
            "reads of the first 1M of 50 B on one core while 24M more come on the other",
            data(25 * MILLION, 50),
            vec![rust("growth", &["grow"])],
        ),
        Section {
            rounds_max: Some(1),
            ..section(
                "bytes per entry",
                "25M documents, keys of 16 B, values of 50 B, no size hint",
                data(25 * MILLION, 50),
                bytes,
            )
        },
    ]
}

/// Most rounds of one launch.
const ROUNDS_MAX: usize = 30;

/// The number of runs of each section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Launches of the processes.
    pub launches: usize,
    /// Least rounds of each launch.
    pub rounds: usize,
    /// Time for which a launch with short rounds continues, in nanoseconds.
    pub rounds_nanos: u64,
    /// Whether slow peers are left out.
    pub quick: bool,
}

impl Times {
    /// Returns the times of the long or the short form.
    #[must_use]
    pub fn of(quick: bool) -> Self {
        if quick {
            Self { launches: 1, rounds: 5, rounds_nanos: 0, quick }
        } else {
            // Filling takes minutes but a round a tenth of a second: three rounds would all meet
            // the same disturbance of the machine.
            Self { launches: 3, rounds: 3, rounds_nanos: 10_000_000_000, quick }
        }
    }

    /// Returns whether a launch of a section has had all its rounds.
    #[must_use]
    pub fn are_over(&self, section: &Section, rounds: usize, nanos: u64) -> bool {
        match section.rounds_max {
            Some(rounds_max) => rounds >= rounds_max.min(self.rounds),
            None => rounds >= self.rounds && (rounds >= ROUNDS_MAX || nanos >= self.rounds_nanos),
        }
    }
}

/// Returns whether `ROWS` selects a section. If `ROWS` is not set, it selects all sections;
/// otherwise the sections whose name contains one of its words (separated by commas), not preceded
/// by a digit or letter: `5M x 50 B` is not in `25M x 50 B`.
#[must_use]
pub fn is_asked_for(section: &str, rows: Option<&str>) -> bool {
    let contains_word = |word: &str| {
        let mut places = section.match_indices(word).map(|(place, _)| &section[..place]);
        places.any(|before| !before.ends_with(char::is_alphanumeric))
    };
    rows.is_none_or(|rows| rows.split(',').any(|row| contains_word(row.trim())))
}

/// Returns the value of `ROWS`.
#[must_use]
pub fn rows_asked() -> Option<String> {
    env::var("ROWS").ok().filter(|rows| !rows.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_names_are_unique() {
        let sections = sections();
        let mut names: Vec<_> = sections.iter().map(|section| section.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), sections.len());
    }

    #[test]
    fn quick_form_reduces_only_rounds_and_launches() {
        let (full, quick) = (Times::of(false), Times::of(true));
        assert!(full.launches >= 3 && full.launches * full.rounds >= 9);
        assert_eq!((quick.launches, quick.rounds), (1, 5));
    }

    #[test]
    fn launch_continues_while_its_rounds_are_short() {
        let (full, quick) = (Times::of(false), Times::of(true));
        let section = in_python().remove(0);
        assert!(!full.are_over(&section, 2, u64::MAX) && full.are_over(&section, 3, u64::MAX));
        assert!(!full.are_over(&section, 29, 1_000_000_000) && full.are_over(&section, 30, 0));
        assert!(!quick.are_over(&section, 4, u64::MAX) && quick.are_over(&section, 5, 0));
        let one_round = Section { rounds_max: Some(1), ..section };
        assert!(full.are_over(&one_round, 1, 0) && !full.are_over(&one_round, 0, u64::MAX));
    }

    #[test]
    fn filter_words_select_rows() {
        assert!(is_asked_for("1M x 50 B", None) && is_asked_for("1M x 50 B", Some("apply, 50 B")));
        assert!(!is_asked_for("1M x 50 B", Some("apply,growth")));
        assert!(is_asked_for("files 1M x 50 B", Some("1M x 50 B")));
        assert!(!is_asked_for("25M x 50 B", Some("5M x 50 B,0 B")));
    }
}
