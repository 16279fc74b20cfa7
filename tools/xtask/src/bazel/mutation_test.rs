//! `xtask bazel-mutation-test`: a mutation test of BUILD files. `tools/bazel/faults.toml` lists
//! known faults; an entry has the edits that plant the fault, the command that must fail (the
//! *witness*), and words that its output must contain. Each fault is planted alone in a copy of the
//! tree and then undone. A fault fails if the witness succeeds, if the output lacks a word, or if
//! the edit does not apply.

mod copy;
mod fault;

use std::process::Command;
use std::time::Duration;

use crate::process::{self, Outcome};
use crate::stage::Form;
use crate::suite::{Counts, Suite};
use crate::suite_output::{ended, show};
use crate::workspace::Workspace;

use copy::Copy;
use fault::{Fault, Witness};

/// Bound of a witness on a tree with a fault.
const LOOK_BOUND: Duration = Duration::from_secs(5 * 60);
/// Bound of the witnesses on the tree without a fault, which build everything for the later runs.
const SOUND_BOUND: Duration = Duration::from_secs(20 * 60);

/// Plants all faults, or the one of this name, and prints the closing line.
///
/// # Errors
/// Returns an error if a fault is not caught, or a witness fails without a fault.
pub fn run(workspace: &Workspace, only: Option<&str>) -> Result<(), String> {
    let mut counts = Counts::default();
    plant(workspace, fault::read(workspace, only)?)?
        .iter()
        .for_each(|suite| counts.add(suite.counts()));
    println!("{counts}");
    if counts.failed == 0 { Ok(()) } else { Err("faults were not caught; see above".to_owned()) }
}

/// Plants faults as a stage of the tests, one suite each. The bounded form plants the faults that
/// the list marks, one of each rule.
///
/// # Errors
/// Returns an error if the list cannot be read, or a witness fails without a fault.
pub fn suites(workspace: &Workspace, form: Form) -> Result<Vec<Suite>, String> {
    let faults = fault::read(workspace, None)?.into_iter();
    plant(workspace, faults.filter(|fault| form == Form::Long || fault.is_in_test).collect())
}

/// Returns a finding for each fault whose edits do not apply to the tree, before a long run finds
/// it.
///
/// # Errors
/// Returns an error if the list cannot be read.
pub fn problems(workspace: &Workspace) -> Result<Vec<String>, String> {
    let faults = fault::read(workspace, None)?;
    let edits = faults.iter().flat_map(|fault| fault.edits.iter().map(move |edit| (fault, edit)));
    let refusals = edits.filter_map(|(fault, edit)| {
        let refusal = edit.changed(&workspace.root).err()?;
        Some(format!("tools/bazel/faults.toml: fault {}: {refusal}", fault.name))
    });
    Ok(refusals.collect())
}

fn plant(workspace: &Workspace, faults: Vec<Fault>) -> Result<Vec<Suite>, String> {
    let copy = Copy::make(workspace)?;
    sound(&copy, &faults)?;
    let mut suites = Vec::new();
    for fault in &faults {
        let (verdict, output) = planted(&copy, fault)?;
        let suite = Suite::single(&format!("bazel-mutation-test/{}", fault.name), verdict);
        show(&suite, &output);
        suites.push(suite);
    }
    Ok(suites)
}

/// Runs the witnesses on the tree without a fault. If one fails, a failure with a fault proves
/// nothing.
fn sound(copy: &Copy, faults: &[Fault]) -> Result<(), String> {
    let mut witnesses: Vec<Witness> = Vec::new();
    for witness in faults.iter().flat_map(|fault| fault.sound()) {
        if !witnesses.contains(&witness) {
            witnesses.push(witness);
        }
    }
    let (bazel, mut looks): (Vec<Witness>, Vec<Witness>) =
        witnesses.into_iter().partition(|witness| matches!(witness, Witness::Bazel { .. }));
    looks.extend(Witness::together(bazel));
    for witness in &looks {
        let outcome = look(copy, witness, SOUND_BOUND)?;
        let unsound = |ending| format!("{witness} fails without a fault: {ending}");
        ended(outcome.ok, &outcome.ending)
            .map_err(|ending| format!("{}\n{}", unsound(ending), outcome.output.trim_end()))?;
    }
    Ok(())
}

/// Plants a fault, runs its witness, and undoes the fault.
fn planted(copy: &Copy, fault: &Fault) -> Result<(Result<(), String>, String), String> {
    let mut edited = Vec::new();
    let mut applied = Ok(());
    for edit in &fault.edits {
        applied = applied.and_then(|()| copy.edit(edit));
        edited.push(edit.file.as_str());
    }
    let looked = match applied {
        Ok(()) => look(copy, &fault.witness, LOOK_BOUND)
            .map(|outcome| (verdict(fault, &outcome), outcome.output)),
        Err(problem) => Ok((Err(problem), String::new())),
    };
    edited.iter().try_for_each(|file| copy.restore(file))?;
    looked.map_err(|problem| format!("fault {}: {problem}", fault.name))
}

fn look(copy: &Copy, witness: &Witness, bound: Duration) -> Result<Outcome, String> {
    let mut command = match witness {
        Witness::Check(rule) => {
            let mut command = Command::new(&copy.xtask);
            command.args(["check", "--only", rule]).current_dir(&copy.tree.root);
            command
        }
        Witness::Bazel { verb, labels } => {
            let mut command = super::host(&copy.tree, &[verb, "--keep_going"]);
            command.args(labels);
            command
        }
    };
    command.env("CARGO_TARGET_DIR", &copy.target);
    process::capture(&mut command, &copy.log, bound)
}

fn verdict(fault: &Fault, outcome: &Outcome) -> Result<(), String> {
    if outcome.timed_out {
        return Err(outcome.ending.clone());
    }
    if outcome.ok {
        return Err(format!("{} did not catch: {}", fault.witness, fault.what));
    }
    let unnamed = fault.names.iter().find(|name| !outcome.output.contains(*name));
    match unnamed {
        Some(name) => Err(format!("{} failed, but its output lacks '{name}'", fault.witness)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(ok: bool, output: &str) -> Outcome {
        let (ending, output) = ("exit code 1".to_owned(), output.to_owned());
        Outcome { ok, timed_out: false, ending, output }
    }

    #[test]
    fn fault_is_caught_only_by_a_failure_that_names_it() {
        let fault = Fault {
            name: "a".to_owned(),
            what: "b".to_owned(),
            is_in_test: false,
            witness: Witness::Check("tidy".to_owned()),
            sound: vec![],
            names: vec!["serde".to_owned(), "libs/core".to_owned()],
            edits: vec![],
        };
        assert_eq!(verdict(&fault, &outcome(false, "libs/core: no serde")), Ok(()));
        assert!(verdict(&fault, &outcome(false, "out of memory")).is_err());
        assert!(verdict(&fault, &outcome(false, "no serde")).unwrap_err().contains("libs/core"));
        assert!(verdict(&fault, &outcome(true, "libs/core: no serde")).is_err());
        let late = Outcome { timed_out: true, ..outcome(false, "libs/core: no serde") };
        assert!(verdict(&fault, &late).is_err());
    }
}
