//! `forebayd sql`: runs a statement over streams and their exports at a running node. `forebayd
//! export`: exports a stream at a running node.

use std::io::stdout;

use arrow::array::RecordBatch;
use arrow::csv::WriterBuilder;
use arrow::error::ArrowError;
use arrow::json::LineDelimitedWriter;
use forebay_core::{Error, Result};
use forebay_query::{Rows, query};
use forebay_wire::v1;
use forebay_wire::v1::exports_client::ExportsClient;
use futures::TryStreamExt;

use crate::node_args::{self, NodeArgs, OutputFormat, channel, print};

/// Arguments of `sql`.
#[derive(clap::Args)]
pub(crate) struct SqlSettings {
    #[command(flatten)]
    node: NodeArgs,
    /// Output format.
    #[arg(long, value_enum, default_value_t = OutputFormat::Csv)]
    format: OutputFormat,
    /// The statement, such as "SELECT count(*) FROM clicks".
    statement: String,
}

/// Arguments of `export`.
#[derive(clap::Args)]
pub(crate) struct ExportSettings {
    #[command(flatten)]
    node: NodeArgs,
    /// Name of the stream.
    stream: String,
}

/// Runs a statement and prints rows as they arrive.
///
/// # Errors
/// As the statement or the node; `Unavailable` if stdout is closed.
pub(crate) fn run(settings: SqlSettings) -> Result<()> {
    forebay_runtime::run(async {
        let rows = query(channel(&settings.node.address)?, &settings.statement).await?;
        match settings.format {
            OutputFormat::Json => json(rows).await,
            OutputFormat::Csv => csv(rows).await,
        }
    })
}

async fn json(mut rows: Rows) -> Result<()> {
    let mut out = LineDelimitedWriter::new(stdout().lock());
    while let Some(batch) = rows.batches.try_next().await? {
        out.write(&batch).map_err(closed)?;
    }
    out.finish().map_err(closed)
}

async fn csv(mut rows: Rows) -> Result<()> {
    let mut out = WriterBuilder::new().with_header(true).build(stdout().lock());
    // The header is printed even if there are no rows.
    out.write(&RecordBatch::new_empty(rows.schema)).map_err(closed)?;
    while let Some(batch) = rows.batches.try_next().await? {
        out.write(&batch).map_err(closed)?;
    }
    Ok(())
}

fn closed(error: ArrowError) -> Error {
    Error::unavailable(format!("could not print the rows: {error}; look at the output"))
}

/// Exports a stream and prints the progress.
///
/// # Errors
/// `InvalidArgument` if the node has no folder for exports; else as the node's answer.
pub(crate) fn run_export(settings: ExportSettings) -> Result<()> {
    forebay_runtime::run(async {
        let mut exports = ExportsClient::new(channel(&settings.node.address)?);
        let request = v1::ExportEventsRequest { stream: settings.stream.clone() };
        let map_status = |status| {
            node_args::map_status(
                status,
                "the node does not offer exports; upgrade the node, or name another one with \
                 --node",
            )
        };
        let mut progress = exports.export_events(request).await.map_err(map_status)?.into_inner();
        let mut is_done = false;
        while let Some(step) = progress.message().await.map_err(map_status)? {
            is_done = step.is_done;
            print(line(&settings.stream, &step));
        }
        let broken =
            || Error::unavailable("the node ended before the export was complete; try again");
        if is_done { Ok(()) } else { Err(broken()) }
    })
}

fn line(stream: &str, step: &v1::ExportEventsResponse) -> String {
    let v1::ExportEventsResponse { events, bytes, files, partitions, .. } = step;
    let so_far = format!("{events} events, {bytes} bytes in {files} files");
    match (step.is_done, step.number) {
        (false, _) => format!("{stream}: {so_far}, {partitions} partitions done"),
        (true, Some(number)) => format!("{stream}: export {number}: {so_far}"),
        (true, None) => format!("{stream}: no events since the last export"),
    }
}
