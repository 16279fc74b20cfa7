//! `xtask nightly`: the long forms of the tests and the measures of the build, in parts of at most
//! ninety minutes on two cores. No scheduler runs it: a person runs the parts that a change
//! touches. Each part adds a row to `tools/nightly/record.md`.

mod figures;
mod long;
mod measure;
mod record;

use self::record::PartReport;

use crate::clock::Stopwatch;
use crate::suite::{Counts, Suite};
use crate::workspace::Workspace;

/// A part of the run.
struct Part {
    /// The name, for `ONLY`.
    name: &'static str,
    /// The work of the part, which prints its suites.
    run: fn(&Workspace) -> Result<PartReport, String>,
}

const PARTS: &[Part] = &[
    Part { name: "tests", run: measure::run },
    Part { name: "long", run: long::run },
    Part { name: "release", run: figures::run },
];

/// Runs all parts, or the one of this name, and records each.
///
/// # Errors
/// Returns an error if there is no such part, a suite fails, or the record cannot be written.
pub fn run(workspace: &Workspace, only: Option<&str>) -> Result<(), String> {
    let selected: Vec<&Part> =
        PARTS.iter().filter(|part| only.is_none_or(|only| only == part.name)).collect();
    if selected.is_empty() {
        let names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
        return Err(format!("no such part; fix: name one of {}", names.join(", ")));
    }
    let mut all = Counts::default();
    for part in selected {
        println!("nightly {}: starts", part.name);
        let watch = Stopwatch::start();
        let outcome = (part.run)(workspace).unwrap_or_else(|problem| {
            println!("nightly {}: FAILED: {problem}", part.name);
            PartReport { suites: vec![Suite::broken(part.name, problem)], measured: vec![] }
        });
        let mut counts = Counts::default();
        outcome.suites.iter().for_each(|suite| counts.add(suite.counts()));
        outcome.measured.iter().for_each(|line| println!("nightly {}: {line}", part.name));
        record::add(workspace, part.name, watch.elapsed(), counts, &outcome.measured)?;
        all.add(counts);
    }
    println!("{all}");
    if all.failed == 0 { Ok(()) } else { Err("a part of the nightly run fails; see above".into()) }
}
