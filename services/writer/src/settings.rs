//! The settings of a writer process.

use std::sync::Arc;

use clap::Parser;
use forebay_core::Result;
use forebay_runtime::ProcessSettings;

use crate::outcomes::{NoOutcomes, Outcomes, RemoteOutcomes};

/// Name of the program.
pub const PROGRAM: &str = "forebay-writer";

/// Checks, routes and appends changes; administers stores.
#[derive(Parser)]
#[command(name = PROGRAM, version)]
#[command(mut_arg("listen", |arg| arg.default_value("127.0.0.1:7071")))]
pub struct WriterSettings {
    /// Settings of every process.
    #[command(flatten)]
    pub process: ProcessSettings,
    /// Address of the replicator that reports the outcomes of conditional changes; without it,
    /// conditional changes end as unknown outcomes.
    #[arg(long, env = "FOREBAY_REPLICATOR", value_name = "HOST:PORT")]
    replicator: Option<String>,
}

impl WriterSettings {
    /// Returns the source of outcomes.
    ///
    /// # Errors
    /// `InvalidArgument` if the address of the replicator is invalid.
    pub fn outcomes(&self) -> Result<Arc<dyn Outcomes>> {
        let outcomes: Arc<dyn Outcomes> = match &self.replicator {
            Some(address) => Arc::new(RemoteOutcomes::new(address)?),
            None => Arc::new(NoOutcomes),
        };
        Ok(outcomes)
    }
}
