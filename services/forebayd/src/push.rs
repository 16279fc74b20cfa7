//! `forebayd push` and `forebayd versions`: bulk-load files as a version of a store or as a new
//! store, and administer versions, at a running node or at `forebay-snapshot`.

use std::collections::HashMap;
use std::path::Path;

use forebay_core::{Error, Result};
use forebay_wire::v1;
use forebay_wire::v1::pushes_client::PushesClient;
use forebay_wire::v1::versions_request::Alteration;
use indicatif::{ProgressBar, ProgressStyle};
use url::Url;

use crate::node_args::{StoreArgs, channel, map_status, print};

/// Arguments of `push`.
#[derive(clap::Args)]
pub(crate) struct PushSettings {
    #[command(flatten)]
    at: StoreArgs,
    /// Push the files as a new store of this name with the same fields, instead of as a version of
    /// the store.
    #[arg(long = "to", value_name = "STORE")]
    push_as: Option<String>,
    /// Number of partitions of the pushed documents [default: as the store]. Changing the number
    /// redirects concurrent writes to the new partitions and disables rollback.
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
    rows_min: u64,
    /// Maximum number of rows; a push with more rows fails.
    #[arg(long, value_name = "ROWS")]
    rows_max: Option<u64>,
    /// Maximum fraction of rows without a value of a field, from 0 to 1: FIELD=RATE.
    #[arg(long, value_parser = null_rate, value_name = "FIELD=RATE")]
    null_rate_max: Vec<(String, f64)>,
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
    let rate = rate.parse().map_err(|_| format!("the rate `{rate}` is not a number"))?;
    Ok((field.to_owned(), rate))
}

/// Subcommands of `versions`.
#[derive(clap::Subcommand)]
pub(crate) enum VersionsCommand {
    /// List the versions of a store.
    List(StoreArgs),
    /// Make a version live, so that reads answer from it. Naming the previous version is a
    /// rollback.
    Live(VersionSettings),
    /// Drop a version that is not live.
    Drop(VersionSettings),
}

/// A version of a store.
#[derive(clap::Args)]
pub(crate) struct VersionSettings {
    #[command(flatten)]
    at: StoreArgs,
    /// Number of the version, as `versions list` prints it.
    number: u32,
}

/// Lists or alters the versions of a store, and prints the resulting versions.
///
/// # Errors
/// As the node's answer.
pub(crate) fn run_versions(command: VersionsCommand) -> Result<()> {
    let (at, alteration) = match command {
        VersionsCommand::List(at) => (at, None),
        VersionsCommand::Live(settings) => {
            (settings.at, Some(Alteration::MakeLive(settings.number)))
        }
        VersionsCommand::Drop(settings) => (settings.at, Some(Alteration::Drop(settings.number))),
    };
    forebay_runtime::run(async {
        let mut client = PushesClient::new(channel(&at.node.address)?);
        let request = v1::VersionsRequest { store: at.store, alteration };
        let answer = client.versions(request).await.map_err(not_here)?.into_inner();
        let versions = answer.versions.unwrap_or_default();
        for version in versions.kept {
            let is_live = if version.number == versions.live { "  live" } else { "" };
            print(format!("{}{is_live}", version.number));
        }
        Ok(())
    })
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
    let mut answers = client.push(request).await.map_err(not_here)?.into_inner();
    let bar = ProgressBar::new(0).with_style(style("{bytes} of {total_bytes} {msg}")?);
    let mut is_made = false;
    while let Some(answer) = answers.message().await.map_err(not_here)? {
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
            let v1::Pushed { documents, version, flipped, .. } = pushed;
            flipped.iter().for_each(|change| print(told_flipped(change)));
            print(match &push_as {
                Some(name) => format!("pushed {name} with {documents} documents"),
                None => format!("pushed version {version} of {store} with {documents} documents"),
            });
        }
    }
    Ok(())
}

/// Formats a conditional change whose final outcome differs from the one that its client received.
fn told_flipped(change: &v1::FlippedChange) -> String {
    let client: Vec<u8> = change.client_id.iter().rev().copied().collect();
    let client = hex::encode(client);
    let ended = if change.happened { "happened" } else { "did not happen" };
    let offset = change.position.map_or(0, |position| position.offset);
    let (partition, sequence) = (change.partition, change.sequence);
    format!("partition {partition} offset {offset} client {client} change {sequence} {ended}")
}

fn style(what: &str) -> Result<ProgressStyle> {
    let template = format!("{{elapsed}} {{wide_bar}} {what} {{eta}}");
    ProgressStyle::with_template(&template).map_err(|error| Error::internal(error.to_string()))
}

fn not_here(status: tonic::Status) -> Error {
    map_status(status, "the node takes no pushes; start the node with --snapshots URL")
}

impl PushSettings {
    fn request(self) -> Result<v1::PushRequest> {
        use v1::PushFormat::{Arrow, Csv, JsonLines, Parquet, Unspecified};
        let format = match self.format {
            None => Unspecified,
            Some(FileFormat::Parquet) => Parquet,
            Some(FileFormat::Arrow) => Arrow,
            Some(FileFormat::Csv) => Csv,
            Some(FileFormat::Jsonl) => JsonLines,
        };
        let inputs = self.files.iter().map(|file| url_of(file)).collect::<Result<_>>()?;
        let null_rates_max: HashMap<_, _> = self.null_rate_max.into_iter().collect();
        Ok(v1::PushRequest {
            store: self.at.store,
            push_as: self.push_as,
            partitions: self.partitions,
            inputs,
            format: format.into(),
            key_column: self.key,
            ignored_columns: self.ignore,
            rows_min: self.rows_min,
            rows_max: self.rows_max,
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
