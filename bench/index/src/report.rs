//! The results of a run: the table on the screen, the rounds and verdicts in a file, and the
//! chart.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use forebay_bench_report::{Machine, NoiseWatch, Rounds, commit};
use forebay_testkit::tree;
use serde_json::{Value, json};

use crate::chart;
use crate::driver::WorkerReports;
use crate::goals::Goals;
use crate::plan::{Section, Times};
use crate::table;
use crate::verdict::{GoalResult, Measurements, judge};

/// Folder of results.
const FOLDER: &str = "bench/results/latest";

/// Notes that hold for every row, printed under each table.
const NOTES: [&str; 10] = [
    "D is one dependent line of the very mapping that holds the records, in the same process and \
     on the same core",
    "readers are those in memory unless a section says files: those follow a node, in the readers' \
     default directory, and share one copy there",
    "single gets are dependent: a key is the first bytes of the value before it; each chain's end \
     is checked. A loop knows its keys beforehand",
    "times of single gets (p50 and so on) include reading the clock once",
    "Rust runs on one core; concurrent writers on the other. Malloc of every process may take huge \
     pages, as ours does",
    "apply, growth and bytes are of one partition and entries of 500 changes; the reads of four \
     partitions. Apply begins when all documents have been replaced twice",
    "ours in Java packs the byte[] keys of a batch in the time measured; ConcurrentHashMap answers \
     with references and copies nothing",
    "the floats of 10M documents are of 65,536 values, whose objects the dict of tuples shares: \
     with an object for each it would take 17 GB; the mixed store is of 1M documents; batches in \
     Python are compared with a list comprehension over a dict",
    "reopenings, and openings of Python workers, count from the opening of a reader, its \
     connection included, to its first correct get; torn pages are repaired in checkpoints, if no \
     copy is left, and rebuilding counts until all of the store is served again",
    "private dirty is that of the mappings that workers read by; the owner maps what it writes a \
     second time, shared too, and its pages that nobody else has touched are printed apart",
];

/// A run in progress.
pub struct Report {
    root: PathBuf,
    goals: Goals,
    watch: NoiseWatch,
    times: Times,
}

impl Report {
    /// Starts a run; an invalid file of goals ends it at once.
    ///
    /// # Errors
    /// Fails outside the tree, or if the goals cannot be read.
    pub fn start(times: Times) -> Result<Self, String> {
        let root = tree::root_of(Goals::FILE)?;
        let goals = Goals::load(&root)?;
        Ok(Self { root, goals, watch: NoiseWatch::start(), times })
    }

    /// Judges, writes `index.json` and `index.svg`, and returns the table.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub fn finish(
        &mut self,
        sections: &[Section],
        measured: Measurements,
        reports: WorkerReports,
    ) -> Result<String, String> {
        let judged = judge(&self.goals, &measured);
        let folder = self.root.join(FOLDER);
        let problem = |error: std::io::Error| format!("write {}: {error}", folder.display());
        fs::create_dir_all(&folder).map_err(problem)?;
        let result = self.result(sections, &judged, &measured, &reports)?;
        let text = serde_json::to_string_pretty(&result).map_err(|error| error.to_string())?;
        fs::write(folder.join("index.json"), text + "\n").map_err(problem)?;
        chart::draw(&judged, &folder.join("index.svg"))?;
        Ok(self.text(&judged, &measured, &reports))
    }

    fn result(
        &self,
        sections: &[Section],
        judged: &[GoalResult],
        measured: &Measurements,
        reports: &WorkerReports,
    ) -> Result<Value, String> {
        let rounds = |name: &str| match measured.get(name) {
            Some(Ok(rounds)) => values_of(rounds),
            Some(Err(problem)) => Value::from(problem.as_str()),
            None => Value::Null,
        };
        let section = |section: &Section| {
            let processes = reports.about.iter().filter(|(name, _)| name.starts_with(section.name));
            json!({
                "name": section.name,
                "about": section.about,
                "processes": processes.collect::<Vec<_>>(),
                "rounds": rounds(section.name),
            })
        };
        Ok(json!({
            "bench": "index",
            "machine": Machine::here(),
            "commit": commit(&self.root),
            "command": command(),
            "quick": self.times.quick,
            "launches": self.times.launches,
            "rounds": self.times.rounds,
            "noise": self.watch.stop(worst(judged)),
            "notes": NOTES,
            "problems": reports.problems,
            "rows": judged,
            "sections": sections.iter().map(section).collect::<Vec<_>>(),
        }))
    }

    fn text(
        &self,
        judged: &[GoalResult],
        measured: &Measurements,
        reports: &WorkerReports,
    ) -> String {
        let mut text = table::goals(judged);
        text.push_str(&table::values(measured));
        text.push_str(&table::histograms(measured));
        text.push('\n');
        for (name, description) in &reports.about {
            let description: Vec<String> =
                description.iter().map(|(label, number)| format!("{label} {number:.0}")).collect();
            let _ = writeln!(text, "process of {name}: {}", description.join(", "));
        }
        reports.problems.iter().for_each(|problem| {
            let _ = writeln!(text, "did not work: {problem}");
        });
        NOTES.iter().for_each(|note| {
            let _ = writeln!(text, "note: {note}");
        });
        let noise = self.watch.stop(worst(judged));
        let Times { launches, rounds, .. } = self.times;
        let _ = writeln!(
            text,
            "{launches} launches of {rounds} rounds and more; load {:.2} before, {:.2} after; \
             stolen {:.1} %",
            noise.load_before, noise.load_after, noise.stolen_percent
        );
        let _ = writeln!(text, "chart and rounds: {FOLDER}/index.svg, index.json");
        let _ = writeln!(text, "{}", table::closing(judged));
        text
    }
}

fn worst(judged: &[GoalResult]) -> f64 {
    let spreads = judged.iter().filter_map(|part| part.found);
    spreads.map(|spread| spread.relative()).fold(0.0, f64::max)
}

fn values_of(rounds: &Rounds) -> Value {
    let values = rounds.names().into_iter().filter_map(|name| {
        let values = rounds.values(&name).ok()?;
        Some((name, Value::from(values)))
    });
    Value::Object(values.collect())
}

fn command() -> String {
    let rows = env::var("ROWS").map_or(String::new(), |rows| format!(" ROWS='{rows}'"));
    env::var("FOREBAY_BENCH_COMMAND").unwrap_or_else(|_| "index".to_owned()) + &rows
}
