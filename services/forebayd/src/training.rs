//! `forebayd training-set`: have a running node join labels with the values of a feature view, each
//! as of its moment.

use forebay_core::{Error, Result};
use forebay_wire::v1;
use forebay_wire::v1::training_client::TrainingClient;

use crate::asked::{self, NodeAt, channel, print};

/// What is joined.
#[derive(clap::Args)]
pub(crate) struct TrainingSettings {
    #[command(flatten)]
    node: NodeAt,
    /// The view.
    #[arg(long)]
    view: String,
    /// A file of Parquet, or a folder of them, which the node reads: file:///…, s3://…, az://… or
    /// gs://…. Its columns name the view's groups, as the view groups by them.
    #[arg(long, value_name = "URL")]
    labels: String,
    /// The column that says as of when.
    #[arg(long, value_name = "COLUMN")]
    time: String,
    /// The folder that the training set goes into, which has none yet.
    #[arg(long, value_name = "URL")]
    to: String,
}

/// Has them joined, and tells how far it is.
///
/// # Errors
/// `NotFound` for a view, files or columns that are not there; `Conflict` for a folder that has a
/// training set; those of the node.
pub(crate) fn run(settings: TrainingSettings) -> Result<()> {
    forebay_serve::run(async {
        let TrainingSettings { node, view, labels, time, to } = settings;
        let mut training = TrainingClient::new(channel(&node.address)?);
        let told = |status| asked::told(status, "it joins nothing; name a node of this version");
        let request = v1::JoinRequest { view, labels, time_column: time, to };
        let mut progress = training.join(request).await.map_err(told)?.into_inner();
        let mut is_done = false;
        while let Some(step) = progress.message().await.map_err(told)? {
            is_done = step.is_done;
            let v1::JoinProgress { rows, files, bytes, .. } = step;
            let done = if is_done { "done: " } else { "" };
            print(format!("{done}{rows} rows, {bytes} bytes in {files} files"));
        }
        let broken = || Error::unavailable("the node went before the join was done; try again");
        if is_done { Ok(()) } else { Err(broken()) }
    })
}
