//! `forebayd verify`: compares two copies of a store at one position, and prints the documents that
//! differ.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_core::entropy::SystemEntropy;
use forebay_core::id::{PartitionId, PartitionRef};
use forebay_core::key::{Key, KeyType};
use forebay_core::limits::SNAPSHOT_MEMORY_MIB;
use forebay_core::schema::Definition;
use forebay_core::versions::VersionNumber;
use forebay_core::{Error, Result};
use forebay_entries::CatalogFollower;
use forebay_log::{ChangeLog, RemoteLog};
use forebay_reader::{
    DifferenceKind, OfflineCopy, ShardCopy, Verification, VerifiedCopy, VerifyLog, verify,
};
use forebay_snapshot::{PointInTimePartition, SnapshotStore};

use crate::node_args::{StoreArgs, address, channel, print};

/// Longest wait for the store's definition in the control log.
const CATALOG_WAIT: Duration = Duration::from_secs(10);

/// Arguments of `verify`.
#[derive(clap::Args)]
pub(crate) struct VerifySettings {
    #[command(flatten)]
    at: StoreArgs,
    /// Partitions to compare, separated by commas [default: all].
    #[arg(long, value_delimiter = ',', value_name = "PARTITION")]
    partitions: Vec<u32>,
    /// Version of the documents, as `version list` prints it [default: the live one].
    #[arg(long)]
    version: Option<u32>,
    /// Folder for images of snapshots during the comparison [default: the system's temporary
    /// folder].
    #[arg(long, value_name = "DIR")]
    scratch_dir: Option<PathBuf>,
    /// First copy: HOST:PORT of a replicator, for its shards; URL of a folder (file:///…, s3://…,
    /// az://… or gs://…), for the newest snapshots there; or a directory, for the newest checkpoints
    /// of its readers.
    first: String,
    /// Second copy [default: the shards of the node].
    second: Option<String>,
}

/// Location of a copy of each partition.
enum Place {
    Replicator(String),
    Snapshots(SnapshotStore),
    Reader(PathBuf),
}

impl Place {
    fn of(text: &str) -> Result<Self> {
        if text.starts_with("http://") {
            return Ok(Self::Replicator(address(text)));
        }
        if text.contains("://") {
            return SnapshotStore::open(text).map(Self::Snapshots);
        }
        let path = Path::new(text);
        if path.is_dir() {
            return Ok(Self::Reader(path.to_owned()));
        }
        match text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
            true => Ok(Self::Replicator(text.to_owned())),
            false => {
                let message =
                    format!("`{text}` is not a folder, a URL or HOST:PORT; name one of the three");
                Err(Error::not_found(message))
            }
        }
    }
}

/// Compares the copies and prints the differences.
///
/// # Errors
/// `Corrupt` if documents differ; else the error that prevented the comparison.
pub(crate) fn run(settings: VerifySettings) -> Result<()> {
    forebay_runtime::run(compare(settings))
}

async fn compare(settings: VerifySettings) -> Result<()> {
    let second = settings.second.as_deref().unwrap_or(&settings.at.node.address);
    let names = (settings.first.as_str(), second);
    let places = (Place::of(names.0)?, Place::of(names.1)?);
    let scratch = settings.scratch_dir.clone().unwrap_or_else(std::env::temp_dir);
    let compared = ComparedStore::ask(&settings, scratch).await?;
    let all = compared.newest()?.partitions;
    let wanted: BTreeSet<_> = settings.partitions.iter().copied().map(PartitionId).collect();
    if let Some(unknown) = wanted.iter().find(|partition| partition.0 >= all.0) {
        let message = format!("the store has partitions 0 to {}; name one of these", all.0 - 1);
        return Err(Error::invalid_argument(message).with_partition(*unknown));
    }
    let mut differ = 0;
    for partition in all.partitions().filter(|it| wanted.is_empty() || wanted.contains(it)) {
        let mut first = compared.copy(&places.0, partition).await?;
        let mut second = compared.copy(&places.1, partition).await?;
        let verified = verify(&mut *first, &mut *second, &compared.log).await;
        tokio::join!(first.end(), second.end());
        let verified = verified.map_err(|error| error.with_partition(partition))?;
        differ += u32::from(!verified.is_same());
        tell(&verified, names, compared.newest()?).into_iter().for_each(print);
    }
    match differ {
        0 => Ok(()),
        _ => Err(Error::corrupt(format!(
            "the two replicas differ in {differ} partitions; keep both, report a bug"
        ))
        .with_store(&settings.at.store)),
    }
}

/// The store to compare: its log and definitions.
struct ComparedStore {
    log: VerifyLog,
    /// Definitions of the compared version of the documents.
    definitions: Vec<Definition>,
    scratch: PathBuf,
}

impl ComparedStore {
    async fn ask(settings: &VerifySettings, scratch: PathBuf) -> Result<Self> {
        let StoreArgs { node, store } = &settings.at;
        let log: Arc<dyn ChangeLog> = Arc::new(RemoteLog::new(channel(&node.address)?));
        let end = log.bounds(PartitionRef::CONTROL).await?.end;
        let catalog = CatalogFollower::start(Arc::clone(&log), Arc::new(SystemEntropy));
        catalog.wait_applied(end, CATALOG_WAIT).await?;
        let known = catalog.catalog();
        let versions = known.document_store_by_name(store)?.definition.versions.clone();
        let storage_id = match settings.version {
            None => versions.live().storage_id,
            Some(number) => {
                let missing = || {
                    let message = "the store has no such version; list them with `version list`";
                    Error::not_found(message).with_store(store)
                };
                versions.get(VersionNumber(number)).ok_or_else(missing)?.storage_id
            }
        };
        let history = known.definitions(storage_id);
        let definitions = history.map(|schema| (*schema.definition).clone()).collect();
        let log = VerifyLog::new(log, Arc::new(catalog), storage_id)?;
        Ok(Self { log, definitions, scratch })
    }

    fn newest(&self) -> Result<&Definition> {
        self.definitions
            .last()
            .ok_or_else(|| Error::internal("the store has no definition; report a bug"))
    }

    async fn copy(&self, place: &Place, partition: PartitionId) -> Result<Box<dyn VerifiedCopy>> {
        let newest = self.newest()?;
        let at = PartitionRef { store: newest.store, partition };
        Ok(match place {
            Place::Replicator(address) => {
                let way = channel(address)?;
                Box::new(ShardCopy::freeze(way, newest, newest.store, partition).await?)
            }
            Place::Snapshots(store) => {
                let snapshots = store.partition(at);
                let missing = || {
                    let message =
                        "the folder has no snapshot of the partition; name another folder";
                    Error::not_found(message).with_partition(partition)
                };
                let manifest = snapshots.newest(None).await?.ok_or_else(missing)?;
                let past = PointInTimePartition::begin(
                    &snapshots,
                    &manifest,
                    &self.definitions,
                    &self.scratch,
                    SNAPSHOT_MEMORY_MIB << 20,
                );
                Box::new(OfflineCopy::of_snapshot(past.await?))
            }
            Place::Reader(dir) => {
                Box::new(OfflineCopy::of_checkpoint(dir, &self.definitions, partition)?)
            }
        })
    }
}

/// Returns the lines about a partition.
fn tell(verified: &Verification, names: (&str, &str), definition: &Definition) -> Vec<String> {
    let Verification { at, position, documents, differences, more, ranges_left } = verified;
    let (partition, offset) = (at.partition, position.offset);
    let (first, second) = documents;
    let differing = differences.len() as u64 + more;
    let what = match verified.is_same() {
        true => "the same".to_owned(),
        false => format!("{differing} differ"),
    };
    let mut lines = vec![format!(
        "partition {partition}: {what}; {first} and {second} documents at offset {offset}"
    )];
    for (key, difference) in differences {
        let key = named(key, definition);
        lines.push(match difference {
            DifferenceKind::OnlyInFirst => format!("  {key} only in {}", names.0),
            DifferenceKind::OnlyInSecond => format!("  {key} only in {}", names.1),
            DifferenceKind::Contents => format!("  {key} has different contents"),
        });
    }
    if *more > 0 {
        lines.push(format!("  and {more} more"));
    }
    if *ranges_left > 0 {
        lines.push(format!("  and differences in {ranges_left} more of 4096 ranges of keys"));
    }
    lines
}

/// Formats a document's key.
fn named(key: &Key, definition: &Definition) -> String {
    let partition_key_type = definition.partition_key_type();
    let Ok((partition_key, primary)) = Key::split(key.as_bytes(), partition_key_type.is_some())
    else {
        return format!("{key:?}");
    };
    let primary = part(primary, definition.key_type);
    match partition_key.zip(partition_key_type) {
        Some((bytes, key_type)) => format!("{} {primary}", part(bytes, key_type)),
        None => primary,
    }
}

fn part(bytes: &[u8], key_type: KeyType) -> String {
    match (key_type, bytes.try_into(), std::str::from_utf8(bytes)) {
        (KeyType::Int64, Ok(bytes), _) => i64::from_le_bytes(bytes).to_string(),
        (KeyType::String, _, Ok(text)) => format!("{text:?}"),
        _ => hex::encode(bytes),
    }
}
