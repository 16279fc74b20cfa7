//! The report of one benchmark. The report compares the rows with the goals, writes
//! `bench/results/latest/NAME.json` and ends with `bench-NAME: met K of N goals`, misses first. A
//! goal without a row is missed, so a row cannot be dropped in silence.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use forebay_testkit::tree;
use serde::{Deserialize, Serialize};

use crate::goals::Goals;
use crate::machine::{Machine, Noise, NoiseWatch, commit};
use crate::rounds::Spread;
use crate::row::{Row, Unit};

/// A row in the result file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowResult {
    /// Measure of the row.
    pub measure: String,
    /// Median and quartiles; missing if a goal has no row.
    pub value: Option<Spread>,
    /// The unit of the value.
    pub unit: Option<Unit>,
    /// The peer's name.
    pub peer: Option<String>,
    /// Value of the peer.
    pub peer_value: Option<Spread>,
    /// Value / peer.
    pub ratio: Option<Spread>,
    /// The goal in words, if there is a goal.
    pub goal: Option<String>,
    /// Whether the goal is met.
    pub met: Option<bool>,
}

/// The contents of the result file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The benchmark.
    pub bench: String,
    /// Machine of the run.
    pub machine: Machine,
    /// The commit, with `+changes` if the tree differed from it.
    pub commit: String,
    /// Command that repeats the run.
    pub command: String,
    /// Data of the run.
    pub data: String,
    /// Whether the run was the short form.
    pub quick: bool,
    /// Noise of the machine.
    pub noise: Noise,
    /// Misses first, then met goals, then rows without a goal.
    pub rows: Vec<RowResult>,
}

/// A running benchmark, which collects rows and then writes the report.
pub struct Bench {
    name: String,
    root: PathBuf,
    data: String,
    goals: Goals,
    watch: NoiseWatch,
    rows: Vec<Row>,
}

impl Bench {
    /// Starts a benchmark of the current tree; `data` describes its data.
    ///
    /// # Errors
    /// Fails outside the tree, or if the goals cannot be read.
    pub fn start(name: &str, data: &str) -> Result<Self, String> {
        Self::start_in(&tree::root_of(Goals::FILE)?, name, data)
    }

    /// Starts a benchmark of another tree.
    ///
    /// # Errors
    /// Fails if the goals cannot be read.
    pub fn start_in(root: &Path, name: &str, data: &str) -> Result<Self, String> {
        let (name, data, root) = (name.to_owned(), data.to_owned(), root.to_path_buf());
        let goals = Goals::load(&root)?;
        Ok(Self { name, root, data, goals, watch: NoiseWatch::start(), rows: Vec::new() })
    }

    /// Returns whether the short form was requested (`QUICK=1`).
    #[must_use]
    pub fn is_quick() -> bool {
        env::var("QUICK").is_ok_and(|value| value == "1")
    }

    /// Returns the number of rounds: fewer in the short form.
    #[must_use]
    pub fn rounds(full: usize, quick: usize) -> usize {
        if Self::is_quick() { quick } else { full }
    }

    /// Adds a row.
    pub fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Writes the result file and returns the report; print its [`Report::summary`].
    ///
    /// # Errors
    /// Fails if there is no row, a measure came twice, or the file cannot be written.
    pub fn finish(self) -> Result<Report, String> {
        let report = self.report()?;
        let folder = self.root.join("bench/results/latest");
        let path = folder.join(format!("{}.json", self.name));
        let text = serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?;
        fs::create_dir_all(&folder)
            .and_then(|()| fs::write(&path, text + "\n"))
            .map_err(|error| format!("write {}: {error}", path.display()))?;
        Ok(report)
    }

    fn report(&self) -> Result<Report, String> {
        if self.rows.is_empty() {
            return Err(format!("benchmark {} measured nothing", self.name));
        }
        let worst = self.rows.iter().map(|row| row.value.relative()).fold(0.0, f64::max);
        Ok(Report {
            bench: self.name.clone(),
            machine: Machine::here(),
            commit: commit(&self.root),
            command: command(),
            data: self.data.clone(),
            quick: Self::is_quick(),
            noise: self.watch.stop(worst),
            rows: self.results()?,
        })
    }

    fn results(&self) -> Result<Vec<RowResult>, String> {
        let goals = self.goals.of(&self.name);
        let mut results: Vec<RowResult> = Vec::new();
        for row in &self.rows {
            if results.iter().any(|result| result.measure == row.measure) {
                return Err(format!("two rows of '{}'", row.measure));
            }
            let goal = goals.iter().find(|goal| goal.measure == row.measure);
            results.push(RowResult {
                measure: row.measure.clone(),
                value: Some(row.value),
                unit: Some(row.unit),
                peer: row.peer.as_ref().map(|(name, _)| name.clone()),
                peer_value: row.peer.as_ref().map(|(_, value)| *value),
                ratio: row.ratio,
                goal: goal.map(|goal| goal.words()),
                met: goal.map(|goal| goal.met_by(row)),
            });
        }
        for goal in goals {
            if !results.iter().any(|result| result.measure == goal.measure) {
                results.push(missing(&goal.measure, goal.words()));
            }
        }
        // A stable sort: false, true, none; within each, the order of the benchmark.
        results.sort_by_key(|result| result.met.map_or(2, u8::from));
        Ok(results)
    }
}

fn missing(measure: &str, goal: String) -> RowResult {
    RowResult {
        measure: measure.to_owned(),
        value: None,
        unit: None,
        peer: None,
        peer_value: None,
        ratio: None,
        goal: Some(goal),
        met: Some(false),
    }
}

/// Ends a benchmark's program: prints the report, or the error.
#[must_use]
pub fn end(name: &str, ran: Result<Report, String>) -> ExitCode {
    match ran {
        Ok(report) => {
            println!("{}", report.summary());
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("bench-{name}: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the command of the Makefile, or this program's own command line.
fn command() -> String {
    let own_command = || {
        let path = env::args().next().unwrap_or_default();
        let name = Path::new(&path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        std::iter::once(name).chain(env::args().skip(1)).collect::<Vec<_>>().join(" ")
    };
    env::var("FOREBAY_BENCH_COMMAND").unwrap_or_else(|_| own_command())
}

impl Report {
    /// Returns the rows as lines, misses first, and the closing line.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let _ = writeln!(text, "{}", line(row));
        }
        let judged = self.rows.iter().filter(|row| row.met.is_some()).count();
        let met_rows = self.rows.iter().filter(|row| row.met == Some(true)).count();
        let _ = write!(text, "bench-{}: met {met_rows} of {judged} goals", self.bench);
        text
    }
}

fn line(row: &RowResult) -> String {
    let mark = match row.met {
        Some(true) => "met ",
        Some(false) => "MISS",
        None => "    ",
    };
    let value = row.value.map_or_else(
        || "not measured".to_owned(),
        |value| {
            let (low, high) = (value.quartile_1, value.quartile_3);
            let unit = row.unit.map_or("", Unit::symbol);
            format!("{:.4} {unit} [{low:.4} .. {high:.4}]", value.median)
        },
    );
    let ratio = match (&row.peer, row.ratio) {
        (Some(peer), Some(ratio)) => format!(", {:.3} x {peer}", ratio.median),
        _ => String::new(),
    };
    let goal = row.goal.as_ref().map_or_else(String::new, |goal| format!(" (goal: {goal})"));
    format!("{mark} {}: {value}{ratio}{goal}", row.measure)
}
