//! `forebayd backup` and `forebayd restore`: take, list and restore backups at a running node or at
//! `forebay-snapshot`.

use std::time::{Duration, UNIX_EPOCH};

use forebay_core::{Error, Result};
use forebay_wire::v1;
use forebay_wire::v1::backups_client::BackupsClient;
use forebay_wire::v1::restore_store_request::PointInTime;
use tonic::transport::Channel;

use crate::node_args::{self, StoreArgs, channel, print};

/// Subcommands of `backup`.
#[derive(clap::Subcommand)]
pub(crate) enum BackupCommand {
    /// Take a backup of the current contents of a store.
    #[command(after_help = "Example:\n  forebayd backup take --store users --keep 7")]
    Take(TakeSettings),
    /// List a store's backups, oldest first.
    #[command(after_help = "Example:\n  forebayd backup list --store users")]
    List(StoreArgs),
}

/// Arguments of `backup take`.
#[derive(clap::Args)]
pub(crate) struct TakeSettings {
    #[command(flatten)]
    at: StoreArgs,
    /// Number of the store's backups to retain, including this one [default: all].
    #[arg(long, value_name = "BACKUPS", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
}

/// Arguments of `restore`.
#[derive(clap::Args)]
pub(crate) struct RestoreSettings {
    #[command(flatten)]
    at: StoreArgs,
    /// Name of the new store.
    #[arg(long = "to", value_name = "STORE")]
    restore_as: String,
    #[command(flatten)]
    point: PointSettings,
}

/// Point in time to restore; the newest backup if none is given.
#[derive(clap::Args)]
#[group(multiple = false)]
struct PointSettings {
    /// Id of the backup to restore, as `backup list` prints it.
    #[arg(long, value_name = "ID")]
    backup: Option<String>,
    /// Restore the state just before this time, such as 2026-05-01T12:00:00Z.
    #[arg(long, value_name = "TIME")]
    before: Option<String>,
    /// Restore all writes up to and including those of this token, given as hex digits.
    #[arg(long, value_name = "HEX")]
    token: Option<String>,
}

/// Takes or lists backups.
///
/// # Errors
/// As the node's answer.
pub(crate) fn run(command: BackupCommand) -> Result<()> {
    forebay_runtime::run(async {
        match command {
            BackupCommand::Take(settings) => take(settings).await,
            BackupCommand::List(at) => list(at).await,
        }
    })
}

/// Restores a store.
///
/// # Errors
/// `InvalidArgument` for an invalid point in time; else as the node's answer.
pub(crate) fn run_restore(settings: RestoreSettings) -> Result<()> {
    forebay_runtime::run(restore(settings))
}

fn client(node: &str) -> Result<BackupsClient<Channel>> {
    Ok(BackupsClient::new(channel(node)?))
}

fn map_status(status: tonic::Status) -> Error {
    node_args::map_status(
        status,
        "the node does not take backups; start the node with --backups URL",
    )
}

async fn take(TakeSettings { at, keep }: TakeSettings) -> Result<()> {
    let request = v1::TakeBackupRequest { store: at.store, keep };
    let mut answers =
        client(&at.node.address)?.take_backup(request).await.map_err(map_status)?.into_inner();
    while let Some(answer) = answers.message().await.map_err(map_status)? {
        eprintln!("{} of {} partitions", answer.partitions_done, answer.partitions);
        if let Some(backup) = answer.backup {
            print(format!("backup {:016x} {}", backup.backup_id, time(backup.taken_at_us)));
        }
    }
    Ok(())
}

async fn list(at: StoreArgs) -> Result<()> {
    let request = v1::ListBackupsRequest { store: at.store };
    let answer =
        client(&at.node.address)?.list_backups(request).await.map_err(map_status)?.into_inner();
    for backup in answer.backups {
        let (id, taken) = (backup.backup_id, time(backup.taken_at_us));
        let between = match backup.leads_here {
            true => "any moment since the previous backup",
            false => "this moment",
        };
        print(format!("{id:016x}  {taken}  store {:016x}  {between}", backup.store_id));
    }
    Ok(())
}

async fn restore(settings: RestoreSettings) -> Result<()> {
    let RestoreSettings { at, restore_as, point } = settings;
    let (store, point_in_time) = (at.store, point.read()?);
    let request = v1::RestoreStoreRequest { store, restore_as: restore_as.clone(), point_in_time };
    let mut answers =
        client(&at.node.address)?.restore_store(request).await.map_err(map_status)?.into_inner();
    while let Some(answer) = answers.message().await.map_err(map_status)? {
        eprintln!("{} of {} partitions", answer.partitions_done, answer.partitions);
        if let Some(restored) = answer.restored {
            print(format!("restored {restore_as} with {} documents", restored.documents));
        }
    }
    Ok(())
}

impl PointSettings {
    fn read(self) -> Result<Option<PointInTime>> {
        let Self { backup, before, token } = self;
        let backup = backup.map(|id| {
            let wrong = |_| {
                Error::invalid_argument(format!(
                    "invalid backup id `{id}`; give up to 16 hex digits, as the list of backups \
                     prints them"
                ))
            };
            u64::from_str_radix(&id, 16).map(PointInTime::BackupId).map_err(wrong)
        });
        let before = before.map(|text| {
            let wrong = |error| {
                let advice = "write a time such as 2026-05-01T12:00:00Z";
                Error::invalid_argument(format!("invalid time `{text}`: {error}; {advice}"))
            };
            let time = humantime::parse_rfc3339_weak(&text).map_err(wrong)?;
            let micros = time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros());
            Ok(PointInTime::BeforeUs(i64::try_from(micros).unwrap_or(i64::MAX)))
        });
        let token = token.map(|digits| {
            let bytes = node_args::parse_hex(&digits);
            Ok(PointInTime::Token(
                bytes.map_err(|error| error.while_doing("read the token"))?.into(),
            ))
        });
        backup.or(before).or(token).transpose()
    }
}

fn time(micros: i64) -> String {
    let time = UNIX_EPOCH + Duration::from_micros(micros.max(0).unsigned_abs());
    humantime::format_rfc3339_micros(time).to_string()
}
