//! `forebay-snapshot`: builds snapshots of the partitions that the brokers assign to it, from the
//! shards of the replicators on the same brokers. Loopback only.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use bytesize::ByteSize;
use clap::Parser;
use forebay_core::{Error, Result};
use forebay_runtime::{
    CopySettings, Process, ProcessSettings, SnapshotSchedule, SnapshotSettings, parse_size,
};
use forebay_snapshot_service::{
    BackupParts, BackupService, PushParts, PushService, SnapshotOptions, SnapshotParts, Snapshots,
    backup_store,
};
use tikv_jemallocator::Jemalloc;
use tonic::service::Routes;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

const PROGRAM: &str = "forebay-snapshot";

/// Builds, verifies and retains snapshots, and trims the logs up to them; takes backups and pushes.
#[derive(Parser)]
#[command(name = PROGRAM, version)]
#[command(mut_arg("listen", |arg| arg.default_value("127.0.0.1:7073")))]
struct Settings {
    #[command(flatten)]
    process: ProcessSettings,
    #[command(flatten)]
    snapshots: SnapshotSettings,
    #[command(flatten)]
    schedule: SnapshotSchedule,
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

impl Settings {
    fn options(&self) -> Result<SnapshotOptions> {
        Ok(SnapshotOptions {
            grace: *self.snapshot_grace,
            memory_bytes: self.snapshot_memory.as_u64(),
            bytes_per_second: self.copies.bytes_per_second(),
            ..SnapshotOptions::with_schedule(&self.schedule)?
        })
    }
}

async fn serve(settings: Settings) -> Result<()> {
    let options = settings.options()?;
    let snapshots = settings.snapshots.open()?.ok_or_else(|| {
        Error::invalid_argument("no folder of snapshots is set; set --snapshots to its URL")
    })?;
    snapshots.check().await?;
    let url = settings.snapshots.snapshots.as_deref();
    let backups = backup_store(settings.backups.as_deref(), url)?;
    if let Some(backups) = &backups {
        backups.check().await?;
    }
    let mut process = Process::start(PROGRAM, &settings.process).await?;
    // This process stores nothing that would justify keeping its partitions over a restart.
    let instance = format!("{:016x}", process.context().entropy.next_u64()?);
    let group = process.join("snapshots", &instance)?;
    let (context, replicators) = (process.context(), Arc::new(group.owners_of("replicators")));
    let parts = SnapshotParts { context, replicators, snapshots, options };
    let maintenance = Snapshots::keep(parts.clone());
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status("", tonic_health::ServingStatus::Serving).await;
    let scratch = settings.scratch_dir.unwrap_or_else(std::env::temp_dir);
    let pushes = PushParts { kept: parts.clone(), scratch: scratch.clone() };
    let mut routes = Routes::new(health).add_service(PushService::new(pushes).into_server());
    if let Some(backups) = backups {
        let parts = BackupParts { kept: parts, backups, scratch };
        routes = routes.add_service(BackupService::new(parts).into_server());
    }
    let served = process.serve(routes, || {}).await;
    drop(maintenance);
    served
}

fn main() -> ExitCode {
    forebay_runtime::main(PROGRAM, |settings| forebay_runtime::run(serve(settings)))
}
