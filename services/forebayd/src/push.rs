//! `forebayd push`: bulk-loads files as a version of a store or as a new store, at a running node
//! or at `forebay-snapshot`.

use std::collections::HashMap;
use std::path::Path;

use forebay_core::{Error, Result};
use forebay_wire::v1;
use forebay_wire::v1::pushes_client::PushesClient;
use indicatif::{ProgressBar, ProgressStyle};
use url::Url;

use crate::node_args::{self, StoreArgs, channel, print};

/// Arguments of `push`.
#[derive(clap::Args)]
pub(crate) struct PushSettings {
    #[command(flatten)]
    at: StoreArgs,
    /// Push the files as a new store of this name with the same fields, instead of as a version of
    /// the store.
    #[arg(long = "to", value_name = "STORE")]
    push_as: Option<String>,
    /// Number of partitions of the pushed documents [default: that of the store]. Another number
    /// redirects concurrent writes to the new partitions, and the store cannot be rolled back.
    #[arg(long)]
    partitions: Option<u32>,
    /// Column that holds the primary key.
    #[arg(long, value_name = "COLUMN")]
    key: String,
    /// Columns to ignore, separated by commas.
    #[arg(long, value_delimiter = ',', value_name = "COLUMN")]
    ignore: Vec<String>,
    /// Format of all files [default: by the name of each file].
    #[arg(long)]
    format: Option<FileFormat>,
    /// Minimum number of rows; a push with fewer rows fails.
    #[arg(long, default_value_t = 0, value_name = "ROWS")]
    min_rows: u64,
    /// Maximum number of rows; a push with more rows fails [default: no limit].
    #[arg(long, value_name = "ROWS")]
    max_rows: Option<u64>,
    /// Maximum fraction of rows without a value of a field, from 0 to 1, such as age=0.05; may be
    /// repeated [default: no limit].
    #[arg(long, value_parser = null_rate, value_name = "FIELD=RATE")]
    max_null_rate: Vec<(String, f64)>,
    /// Files, folders of files, or URLs of either: s3://…, az://… or gs://….
    #[arg(required = true)]
    files: Vec<String>,
}

/// Format of pushed files.
#[derive(Clone, Copy, clap::ValueEnum)]
enum FileFormat {
    Parquet,
    Arrow,
    Csv,
    Jsonl,
}

fn null_rate(text: &str) -> std::result::Result<(String, f64), String> {
    let (field, rate) =
        text.split_once('=').ok_or("missing `=`; give FIELD=RATE, such as age=0.05")?;
    let rate =
        rate.parse().map_err(|_| format!("the rate `{rate}` is not a number; give 0 to 1"))?;
    Ok((field.to_owned(), rate))
}

/// Pushes files.
///
/// # Errors
/// `NotFound` for a local file that does not exist; else as the node's answer.
pub(crate) fn run(settings: PushSettings) -> Result<()> {
    forebay_runtime::run(push(settings))
}

async fn push(settings: PushSettings) -> Result<()> {
    let node = settings.at.node.address.clone();
    let (store, push_as) = (settings.at.store.clone(), settings.push_as.clone());
    let request = settings.request()?;
    let mut client = PushesClient::new(channel(&node)?);
    let mut answers = client.push_files(request).await.map_err(map_status)?.into_inner();
    let bar = ProgressBar::new(0).with_style(style("{bytes} of {total_bytes} {msg}")?);
    let mut is_made = false;
    while let Some(answer) = answers.message().await.map_err(map_status)? {
        if answer.partitions_done == 0 {
            bar.set_length(answer.bytes);
            bar.set_position(answer.bytes_done);
            bar.set_message(format!("{} rows", answer.rows));
        } else {
            if !is_made {
                bar.set_style(style("{pos} of {len} partitions")?);
                bar.set_length(answer.partitions.into());
                is_made = true;
            }
            bar.set_position(answer.partitions_done.into());
        }
        if let Some(pushed) = answer.pushed {
            bar.finish_and_clear();
            let v1::PushResult { documents, version, changed_outcomes, .. } = pushed;
            changed_outcomes.iter().for_each(|outcome| print(changed_outcome_line(outcome)));
            print(match &push_as {
                Some(name) => format!("pushed {name} with {documents} documents"),
                None => format!("pushed version {version} of {store} with {documents} documents"),
            });
        }
    }
    Ok(())
}

/// Formats a conditional change whose final outcome differs from the one that its client received.
fn changed_outcome_line(outcome: &v1::ChangedOutcome) -> String {
    let client: Vec<u8> = outcome.client_id.iter().rev().copied().collect();
    let client = hex::encode(client);
    let ended = if outcome.is_applied { "applied" } else { "not applied" };
    let offset = outcome.position.map_or(0, |position| position.offset);
    let (partition, sequence) = (outcome.partition, outcome.sequence);
    format!("partition {partition} offset {offset} client {client} change {sequence} {ended}")
}

fn style(what: &str) -> Result<ProgressStyle> {
    let template = format!("{{elapsed}} {{wide_bar}} {what} {{eta}}");
    ProgressStyle::with_template(&template).map_err(|error| Error::internal(error.to_string()))
}

/// Converts a node's error status, for requests about pushes and versions.
pub(crate) fn map_status(status: tonic::Status) -> Error {
    node_args::map_status(
        status,
        "the node does not take pushes; start the node with --snapshots URL",
    )
}

impl PushSettings {
    fn request(self) -> Result<v1::PushFilesRequest> {
        use v1::PushFormat::{Arrow, Csv, JsonLines, Parquet, Unspecified};
        let format = match self.format {
            None => Unspecified,
            Some(FileFormat::Parquet) => Parquet,
            Some(FileFormat::Arrow) => Arrow,
            Some(FileFormat::Csv) => Csv,
            Some(FileFormat::Jsonl) => JsonLines,
        };
        let inputs = self.files.iter().map(|file| url_of(file)).collect::<Result<_>>()?;
        let null_rates_max: HashMap<_, _> = self.max_null_rate.into_iter().collect();
        Ok(v1::PushFilesRequest {
            store: self.at.store,
            push_as: self.push_as,
            partitions: self.partitions,
            inputs,
            format: format.into(),
            key_column: self.key,
            ignored_columns: self.ignore,
            rows_min: self.min_rows,
            rows_max: self.max_rows,
            null_rates_max,
        })
    }
}

/// Returns the URL of a file, which may already be a URL.
fn url_of(file: &str) -> Result<String> {
    if file.contains("://") {
        return Ok(file.to_owned());
    }
    let missing = |error| Error::not_found(format!("`{file}`: {error}; name a file or a folder"));
    let path = Path::new(file).canonicalize().map_err(missing)?;
    Url::from_file_path(&path).map(String::from).map_err(|()| {
        Error::invalid_argument(format!(
            "the file name `{file}` cannot be written as a URL; rename the file"
        ))
    })
}
