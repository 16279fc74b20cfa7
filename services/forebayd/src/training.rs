//! `forebayd training-set`: joins labels with the values of a feature view, each as of the label's
//! time, at a running node.

use forebay_core::{Error, Result};
use forebay_wire::v1;
use forebay_wire::v1::training_client::TrainingClient;

use crate::node_args::{self, NodeArgs, channel, print};

/// Arguments of `training-set`.
#[derive(clap::Args)]
pub(crate) struct TrainingSettings {
    #[command(flatten)]
    node: NodeArgs,
    /// Name of the feature view.
    #[arg(long)]
    view: String,
    /// Parquet file, or folder of Parquet files, that the node reads: file:///…, s3://…, az://… or
    /// gs://…. The columns that identify a group have the names of the view's entity columns.
    #[arg(long, value_name = "URL")]
    labels: String,
    /// Column with the time of each label.
    #[arg(long, value_name = "COLUMN")]
    time: String,
    /// Folder for the training set; it must not hold a training set yet.
    #[arg(long, value_name = "URL")]
    to: String,
}

/// Runs the join and prints the progress.
///
/// # Errors
/// `NotFound` for a view, files or columns that do not exist; `Conflict` for a folder that has a
/// training set; else as the node's answer.
pub(crate) fn run(settings: TrainingSettings) -> Result<()> {
    forebay_runtime::run(async {
        let TrainingSettings { node, view, labels, time, to } = settings;
        let mut training = TrainingClient::new(channel(&node.address)?);
        let map_status = |status| {
            node_args::map_status(
                status,
                "the node does not offer training sets; upgrade the node, or name another one with \
                 --node",
            )
        };
        let request = v1::CreateTrainingSetRequest { view, labels, time_column: time, to };
        let mut progress =
            training.create_training_set(request).await.map_err(map_status)?.into_inner();
        let mut is_done = false;
        while let Some(step) = progress.message().await.map_err(map_status)? {
            is_done = step.is_done;
            let v1::CreateTrainingSetResponse { rows, files, bytes, .. } = step;
            let done = if is_done { "done: " } else { "" };
            print(format!("{done}{rows} rows, {bytes} bytes in {files} files"));
        }
        let broken =
            || Error::unavailable("the node ended before the training set was complete; try again");
        if is_done { Ok(()) } else { Err(broken()) }
    })
}
