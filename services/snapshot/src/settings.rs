//! The settings of a snapshot service process, and the folders that they name.

use std::path::PathBuf;

use bytesize::ByteSize;
use clap::Parser;
use forebay_core::{Error, ErrorCode, Result};
use forebay_runtime::{
    CopySettings, ProcessSettings, SnapshotSchedule, SnapshotSettings, parse_size,
};
use forebay_snapshot::SnapshotStore;
use futures::future::join_all;
use tracing::warn;

use crate::context::SnapshotOptions;

/// Name of the program.
pub const PROGRAM: &str = "forebay-snapshot";

/// Builds, verifies and retains snapshots, and trims the logs up to them; takes backups and pushes.
#[derive(Parser)]
#[command(name = PROGRAM, version)]
#[command(mut_arg("listen", |arg| arg.default_value("127.0.0.1:7073")))]
pub struct SnapshotServiceSettings {
    /// Settings of every process.
    #[command(flatten)]
    pub process: ProcessSettings,
    /// Folder of the snapshots.
    #[command(flatten)]
    snapshots: SnapshotSettings,
    /// Schedule of the snapshots.
    #[command(flatten)]
    schedule: SnapshotSchedule,
    /// Limit on copies of shards.
    #[command(flatten)]
    copies: CopySettings,
    /// Folder for backups, separate from the snapshots; without it, backups and restores are
    /// disabled.
    #[arg(long, env = "FOREBAY_BACKUPS", value_name = "URL")]
    backups: Option<String>,
    /// Folder for images during a restore, and for the rows of a push, which resumes from them
    /// after an interruption [default: the system's temporary folder].
    #[arg(long, env = "FOREBAY_SCRATCH_DIR", value_name = "DIR")]
    scratch_dir: Option<PathBuf>,
    /// Time for which expired snapshots stay readable, such as 24h; at least twice the longest
    /// duration of a build.
    #[arg(long, env = "FOREBAY_SNAPSHOT_GRACE", value_name = "DURATION", default_value = "24h")]
    snapshot_grace: humantime::Duration,
    /// Maximum memory for the image of one partition during a build, such as 4GiB.
    #[arg(
        long,
        env = "FOREBAY_SNAPSHOT_MEMORY",
        value_name = "SIZE",
        value_parser = parse_size,
        default_value = "4GiB",
    )]
    snapshot_memory: ByteSize,
}

impl SnapshotServiceSettings {
    /// Returns the options of the snapshots.
    ///
    /// # Errors
    /// As [`SnapshotOptions::with_schedule`].
    pub fn options(&self) -> Result<SnapshotOptions> {
        Ok(SnapshotOptions {
            grace: *self.snapshot_grace,
            memory_bytes: self.snapshot_memory.as_u64(),
            bytes_per_second: self.copies.bytes_per_second(),
            ..SnapshotOptions::with_schedule(&self.schedule)?
        })
    }

    /// Opens and checks the folders.
    ///
    /// # Errors
    /// `InvalidArgument` if no folder of snapshots is set; else as [`SnapshotFolders::open`] and
    /// [`SnapshotFolders::check`].
    pub async fn folders(&self) -> Result<SnapshotFolders> {
        let folders = SnapshotFolders::open(&self.snapshots, self.backups.as_deref())?;
        let folders = folders.ok_or_else(|| {
            Error::invalid_argument("no folder of snapshots is set; set --snapshots to its URL")
        })?;
        folders.check().await?;
        Ok(folders)
    }

    /// Returns the folder for the files of restores and pushes.
    pub fn scratch_dir(&self) -> PathBuf {
        self.scratch_dir.clone().unwrap_or_else(std::env::temp_dir)
    }
}

/// The folders of a snapshot service.
pub struct SnapshotFolders {
    /// Folder of the snapshots.
    pub snapshots: SnapshotStore,
    /// Folder of the backups, separate from the snapshots.
    pub backups: Option<SnapshotStore>,
}

impl SnapshotFolders {
    /// Opens the configured folders, without a request; `None` if no folder of snapshots is
    /// configured.
    ///
    /// # Errors
    /// `InvalidArgument` if
    /// - a URL names no folder,
    /// - a folder of backups is configured, and none of snapshots, from which restored stores
    ///   bootstrap,
    /// - both folders are the same: backups would expire there.
    pub fn open(settings: &SnapshotSettings, backups: Option<&str>) -> Result<Option<Self>> {
        let snapshots = settings.open()?;
        let backups = open_backups(backups, settings.snapshots.as_deref())?;
        Ok(snapshots.map(|snapshots| Self { snapshots, backups }))
    }

    /// Checks that this process can use the folders. An object store that is down or full is only
    /// logged: the process starts, and its builds try again.
    ///
    /// # Errors
    /// As [`SnapshotStore::check`], except `Unavailable` and `LimitExceeded`.
    pub async fn check(&self) -> Result<()> {
        let folders = [Some(&self.snapshots), self.backups.as_ref()].into_iter().flatten();
        let checks = folders.map(|folder| async move { (folder, folder.check().await) });
        let mut checked = join_all(checks).await.into_iter();
        checked.try_for_each(|(folder, checked)| tolerate_outage(folder, checked))
    }
}

/// Opens the folder of the backups, if one is configured.
fn open_backups(backups: Option<&str>, snapshots: Option<&str>) -> Result<Option<SnapshotStore>> {
    let Some(url) = backups else { return Ok(None) };
    let folder = |url: &str| url.trim_end_matches('/').to_owned();
    let wrong = match snapshots {
        None => "backups need snapshots; set --snapshots too",
        Some(snapshots) if folder(snapshots) == folder(url) => {
            "backups and snapshots share a folder, where snapshots expire; set another --backups"
        }
        Some(_) => return SnapshotStore::open(url).map(Some),
    };
    Err(Error::invalid_argument(wrong))
}

/// Logs the error of a check that may succeed later without new settings; returns every other one.
fn tolerate_outage(folder: &SnapshotStore, checked: Result<()>) -> Result<()> {
    match checked {
        Err(error) if is_outage(error.code()) => {
            warn!(?folder, %error, "folder not usable yet; builds try again");
            Ok(())
        }
        checked => checked,
    }
}

/// Returns whether a check fails with this code while the object store is down or full. Every other
/// failure needs another setting or permission.
fn is_outage(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::Unavailable | ErrorCode::LimitExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_outage_and_a_full_object_store_are_tolerated_at_the_start() {
        let folder = SnapshotStore::open("file:///snapshots").unwrap();
        for code in ErrorCode::ALL {
            let checked = tolerate_outage(&folder, Err(Error::new(code, "as the test says")));
            match code {
                ErrorCode::Unavailable | ErrorCode::LimitExceeded => checked.unwrap(),
                _ => assert_eq!(checked.unwrap_err().code(), code),
            }
        }
        tolerate_outage(&folder, Ok(())).unwrap();
    }

    #[tokio::test]
    async fn both_folders_are_checked() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let url = |path: PathBuf| format!("file://{}", path.display());
        let (good, bad) = (url(folder.path().join("good")), url(file.join("folder")));
        let other = url(folder.path().join("other"));
        for (snapshots, backups, is_usable) in [
            (&good, None, true),
            (&good, Some(&other), true),
            (&good, Some(&bad), false),
            (&bad, Some(&good), false),
        ] {
            let settings = SnapshotSettings { snapshots: Some(snapshots.clone()) };
            let folders = SnapshotFolders::open(&settings, backups.map(String::as_str));
            let checked = folders.unwrap().unwrap().check().await;
            assert_eq!(checked.is_ok(), is_usable, "{snapshots}, {backups:?}: {checked:?}");
        }
    }
}
