//! The settings of a snapshot service process, and the folders that they name.

use std::path::PathBuf;

use bytesize::ByteSize;
use clap::Parser;
use forebay_core::{Error, Result};
use forebay_runtime::{
    CopySettings, ProcessSettings, SnapshotSchedule, SnapshotSettings, parse_size,
};
use forebay_snapshot::SnapshotStore;

use crate::backup::backup_store;
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
    /// Time for which expired snapshots stay readable, such as 24h; twice the longest duration of a
    /// build.
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
    /// `InvalidArgument` if no folder of snapshots is set; else as [`SnapshotFolders::open`].
    pub async fn folders(&self) -> Result<SnapshotFolders> {
        let folders = SnapshotFolders::open(&self.snapshots, self.backups.as_deref()).await?;
        folders.ok_or_else(|| {
            Error::invalid_argument("no folder of snapshots is set; set --snapshots to its URL")
        })
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
    /// Opens the configured folders, and checks that this process can use them; `None` if no folder
    /// of snapshots is configured.
    ///
    /// # Errors
    /// As [`SnapshotSettings::open`], [`backup_store`] and [`SnapshotStore::check`].
    pub async fn open(settings: &SnapshotSettings, backups: Option<&str>) -> Result<Option<Self>> {
        let Some(snapshots) = settings.open()? else { return Ok(None) };
        snapshots.check().await?;
        let backups = backup_store(backups, settings.snapshots.as_deref())?;
        if let Some(backups) = &backups {
            backups.check().await?;
        }
        Ok(Some(Self { snapshots, backups }))
    }
}
