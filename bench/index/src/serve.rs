//! The worker's side of the protocol: the worker reports that it is ready, then runs its orders,
//! one per line, until `quit`. Workers in other languages use the same protocol.
//!
//! | line | from | meaning |
//! |---|---|---|
//! | `ready {...}` | worker | description of its data: entries, bytes, share of huge pages |
//! | `run NAME` | driver | measure this once |
//! | `done {...}` | worker | the results, a number for each name |
//! | `failed WORDS` | worker | the reason of a failure |
//! | `quit` | driver | end |

use std::collections::BTreeMap;
use std::io::{BufRead, Write};

use forebay_bench_report::Contender;

use crate::memory::Resident;

/// A worker's description: numbers by name.
pub type WorkerDescription = BTreeMap<String, f64>;

/// Describes this process, once it has loaded its data.
///
/// # Errors
/// Fails if the kernel does not report its memory.
pub fn about(entries: u64) -> Result<WorkerDescription, String> {
    let resident = Resident::now()?;
    let huge = 100.0 * resident.huge_bytes as f64 / resident.bytes.max(1) as f64;
    Ok(WorkerDescription::from([
        ("entries".to_owned(), entries as f64),
        ("resident MB".to_owned(), resident.bytes as f64 / 1e6),
        ("in huge pages, %".to_owned(), huge),
    ]))
}

/// Answers orders until the input ends.
///
/// # Errors
/// Fails if the driver is gone.
pub fn serve(
    description: &WorkerDescription,
    contenders: &mut [Contender<'_>],
    orders: impl BufRead,
    mut answers: impl Write,
) -> Result<(), String> {
    let mut say = |line: String| {
        writeln!(answers, "{line}").and_then(|()| answers.flush()).map_err(|e| e.to_string())
    };
    say(format!("ready {}", json(description)?))?;
    for order in orders.lines() {
        let order = order.map_err(|error| error.to_string())?;
        let Some(name) = order.strip_prefix("run ") else { return Ok(()) };
        let found = contenders.iter_mut().find(|contender| contender.name == name);
        let answer = found.ok_or_else(|| format!("there is no '{name}' here"));
        match answer.and_then(|contender| (contender.run)()) {
            Ok(values) => say(format!("done {}", json(&values.into_iter().collect())?))?,
            Err(problem) => say(format!("failed {}", problem.replace('\n', " ")))?,
        }
    }
    Ok(())
}

fn json(values: &BTreeMap<String, f64>) -> Result<String, String> {
    serde_json::to_string(values).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_answers_orders_in_turn_until_quit() {
        let mut contenders = [
            Contender::new("get", || Ok(2.5)),
            Contender::new("bad", || Err("no\nhit".to_owned())),
        ];
        let orders = "run get\nrun bad\nrun none\nquit\nrun get\n";
        let mut output = Vec::new();
        serve(&WorkerDescription::new(), &mut contenders, orders.as_bytes(), &mut output).unwrap();
        let output = String::from_utf8(output).unwrap();
        let lines: Vec<&str> = output.lines().collect();
        let expected = "failed there is no 'none' here";
        assert_eq!(lines, ["ready {}", "done {\"get\":2.5}", "failed no hit", expected]);
    }
}
