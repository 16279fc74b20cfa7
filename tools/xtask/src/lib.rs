//! The build tool that the Makefile calls. Each verb is a module: `stages` lists the stages of
//! `xtask test`, `check` the rules of `xtask check`. The tool is a library, so that its tests can
//! plant a violation of each rule and prove that the rule catches it.

pub mod bazel;
pub mod bench;
pub mod check;
pub mod clock;
pub mod compiled_twice;
pub mod demo;
pub mod documented_names;
pub mod engine_logs;
pub mod fuzz;
pub mod java;
pub mod language;
pub mod layers;
pub mod nightly;
pub mod package;
pub mod parallel;
pub mod process;
pub mod pytest;
pub mod python;
pub mod python_versions;
pub mod rocksdb_pins;
pub mod sanitize;
pub mod schedules;
pub mod stage;
pub mod stage_times;
pub mod stages;
pub mod suite;
pub mod suite_output;
pub mod tidy;
pub mod unit;
pub mod workspace;
