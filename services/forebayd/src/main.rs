//! The `forebayd` command: one process that serves all of Forebay on loopback, and a client of
//! running nodes.

mod backup;
mod change_log;
mod cli;
mod copy;
mod dev;
mod node_args;
mod push;
mod select;
mod sql;
mod training;
mod verify;
mod version;
mod view;

use std::process::ExitCode;

use forebayd::PROGRAM;
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    forebay_runtime::main(PROGRAM, cli::run)
}
