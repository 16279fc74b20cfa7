//! The frame of every program: arguments, logging, the runtime and the exit code.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use forebay_core::{Error, Result};
use tracing_subscriber::EnvFilter;

/// Environment variable of the filter of log lines, in the syntax of `tracing_subscriber`.
const LOG_FILTER: &str = "FOREBAY_LOG_FILTER";
/// Log lines that a program prints by default.
const DEFAULT_FILTER: &str = "info";

/// Runs a program: parses the arguments, which ends the process if they are wrong, sets up the log
/// on stderr, and calls `run`. Prints an error on stderr, and returns the exit code of the process.
pub fn main<A: Parser>(program: &str, run: impl FnOnce(A) -> Result<()>) -> ExitCode {
    let arguments = A::parse();
    let filter = EnvFilter::try_from_env(LOG_FILTER);
    let filter = filter.unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter).init();
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a service on a new runtime until the service ends.
///
/// # Errors
/// The error of the service; `Internal` if the runtime cannot be created.
pub fn run(service: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
            let advice = "raise the limits of threads and open files";
            Error::internal(format!("could not start the runtime: {error}; {advice}"))
        })?;
    runtime.block_on(service)
}

/// Prints the ready line, by which a supervisor learns that the program serves at this address. A
/// closed stdout does not stop the program.
pub fn print_ready(program: &str, address: impl std::fmt::Display) {
    let mut stdout = std::io::stdout().lock();
    let result = writeln!(stdout, "{program} ready http://{address}");
    drop(result.and_then(|()| stdout.flush()));
}
