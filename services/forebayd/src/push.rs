//! `forebayd push` and `forebayd versions`: ask a running node, or `forebay-snapshot`, to make
//! files a version of a store's documents, or a store, and which version is live.

use std::collections::HashMap;
use std::path::Path;

use forebay_core::{Error, Result};
use forebay_wire::v1;
use forebay_wire::v1::pushes_client::PushesClient;
use forebay_wire::v1::versions_request::Alteration;
use indicatif::{ProgressBar, ProgressStyle};
use url::Url;

use crate::asked::{StoreAt, channel, print, told};

/// What is pushed, and as what.
#[derive(clap::Args)]
pub(crate) struct PushSettings {
    #[command(flatten)]
    at: StoreAt,
    /// Name of a store of its own that the files become, instead of a version of this one's
    /// documents; it has the same fields.
    #[arg(long = "as", value_name = "NAME")]
    push_as: Option<String>,
    /// Partitions that the documents get [default: as many as the store has]. With another number
    /// what is written meanwhile goes there too, and nobody goes back to the version before.
    #[arg(long)]
    partitions: Option<u32>,
    /// Column that holds the primary key.
    #[arg(long, value_name = "COLUMN")]
    key: String,
    /// Columns that are passed over, joined by commas.
    #[arg(long, value_delimiter = ',', value_name = "COLUMN")]
    ignore: Vec<String>,
    /// What all files hold [default: what each one's name says].
    #[arg(long)]
    format: Option<FileFormat>,
    /// Fewest rows that are pushed.
    #[arg(long, default_value_t = 0, value_name = "ROWS")]
    rows_min: u64,
    /// Most rows that are pushed.
    #[arg(long, value_name = "ROWS")]
    rows_max: Option<u64>,
    /// Most rows of all, from 0 to 1, that may have no value of a field: FIELD=RATE.
    #[arg(long, value_parser = null_rate, value_name = "FIELD=RATE")]
    null_rate_max: Vec<(String, f64)>,
    /// Files, folders of files, or URLs of either: s3://…, az://… or gs://….
    #[arg(required = true)]
    files: Vec<String>,
}

/// What files hold.
#[derive(Clone, Copy, clap::ValueEnum)]
enum FileFormat {
    Parquet,
    Arrow,
    Csv,
    Jsonl,
}

fn null_rate(text: &str) -> std::result::Result<(String, f64), String> {
    let (field, rate) = text.split_once('=').ok_or("give FIELD=RATE, such as age=0.05")?;
    let rate = rate.parse().map_err(|_| format!("`{rate}` is no number"))?;
    Ok((field.to_owned(), rate))
}

/// The versions of a store's documents.
#[derive(clap::Subcommand)]
pub(crate) enum VersionsCommand {
    /// List them.
    List(StoreAt),
    /// Make one of them live: reads answer from it then. One that was live before is gone back to.
    Live(VersionSettings),
    /// Drop one that is not live.
    Drop(VersionSettings),
}

/// One version.
#[derive(clap::Args)]
pub(crate) struct VersionSettings {
    #[command(flatten)]
    at: StoreAt,
    /// Its number, as `versions list` prints it.
    number: u32,
}

/// Lists or alters the versions of a store's documents, and prints those that there are then.
///
/// # Errors
/// Those of the node.
pub(crate) fn run_versions(command: VersionsCommand) -> Result<()> {
    let (at, alteration) = match command {
        VersionsCommand::List(at) => (at, None),
        VersionsCommand::Live(settings) => {
            (settings.at, Some(Alteration::MakeLive(settings.number)))
        }
        VersionsCommand::Drop(settings) => (settings.at, Some(Alteration::Drop(settings.number))),
    };
    forebay_serve::run(async {
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

/// Pushes.
///
/// # Errors
/// `NotFound` for a file that is not here; those of the node.
pub(crate) fn run(settings: PushSettings) -> Result<()> {
    forebay_serve::run(push(settings))
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

/// A line for a conditional change that ends in another way than its client was told.
fn told_flipped(change: &v1::FlippedChange) -> String {
    let client: String = change.client_id.iter().rev().map(|byte| format!("{byte:02x}")).collect();
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
    told(status, "it takes no pushes; start it with --snapshots URL")
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

/// The URL of a file, which may be one already.
fn url_of(file: &str) -> Result<String> {
    if file.contains("://") {
        return Ok(file.to_owned());
    }
    let missing = |error| Error::not_found(format!("`{file}`: {error}; name a file or a folder"));
    let path = Path::new(file).canonicalize().map_err(missing)?;
    Url::from_file_path(&path)
        .map(String::from)
        .map_err(|()| Error::invalid_argument(format!("`{file}` has no URL; give another name")))
}
