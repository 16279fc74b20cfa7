//! `forebay-snapshot`: builds snapshots of the partitions that the brokers assign to it, from the
//! shards of the replicators on the same brokers. Loopback only.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use forebay_core::Result;
use forebay_core::clock::SystemClock;
use forebay_core::entropy::{Entropy, SystemEntropy};
use forebay_core::limits::{
    ROLLBACK_WINDOW_S, SNAPSHOT_EVERY_S, SNAPSHOT_GRACE_MS, SNAPSHOT_MEMORY_MIB, SNAPSHOTS_KEPT,
};
use forebay_log::{CatalogFollower, ChangeLog, KafkaGroup, KafkaLog};
use forebay_serve::{KafkaSettings, Signals, bind, check_loopback, serve};
use forebay_snapshot::SnapshotStore;
use forebay_snapshot_service::{
    BackupParts, BackupService, PushParts, PushService, SnapshotOptions, SnapshotParts, Snapshots,
    backup_store,
};
use tonic::service::Routes;
use tracing_subscriber::EnvFilter;

const PROGRAM: &str = "forebay-snapshot";

/// Builds, verifies and retains snapshots, and trims the logs up to them; takes backups and pushes.
#[derive(Parser)]
#[command(name = PROGRAM, version)]
struct Settings {
    #[command(flatten)]
    kafka: KafkaSettings,
    /// Address to listen on, for health, backups and pushes; loopback only. Port 0 picks a free
    /// port.
    #[arg(long, env = "FOREBAY_LISTEN", default_value = "127.0.0.1:7073")]
    listen: SocketAddr,
    /// Folder for snapshots: file:///…, s3://…, az://… or gs://….
    #[arg(long, env = "FOREBAY_SNAPSHOTS", value_name = "URL")]
    snapshots: String,
    /// Folder for backups, separate from the snapshots; without it, backups and restores are
    /// disabled.
    #[arg(long, env = "FOREBAY_BACKUPS", value_name = "URL")]
    backups: Option<String>,
    /// Folder for images during a restore, and for the rows of a push, which resumes from them
    /// after an interruption [default: the system's temporary folder].
    #[arg(long, env = "FOREBAY_SCRATCH_DIR")]
    scratch_dir: Option<PathBuf>,
    /// Interval between two snapshots of a partition, in seconds.
    #[arg(long, env = "FOREBAY_SNAPSHOT_EVERY_S", default_value_t = SNAPSHOT_EVERY_S)]
    snapshot_every_s: u64,
    /// Number of retained snapshots of a partition.
    #[arg(long, env = "FOREBAY_SNAPSHOTS_KEPT", default_value_t = SNAPSHOTS_KEPT)]
    snapshots_kept: usize,
    /// Time for which expired snapshots stay readable, in seconds; twice the longest duration of a
    /// build.
    #[arg(long, env = "FOREBAY_SNAPSHOT_GRACE_S", default_value_t = SNAPSHOT_GRACE_MS / 1_000)]
    snapshot_grace_s: u64,
    /// Time to retain the previous version of a store for a rollback, in seconds.
    #[arg(long, env = "FOREBAY_ROLLBACK_WINDOW_S", default_value_t = ROLLBACK_WINDOW_S)]
    rollback_window_s: u64,
    /// Maximum memory for the image of one partition during a build, in MiB.
    #[arg(long, env = "FOREBAY_SNAPSHOT_MEMORY_MIB", default_value_t = SNAPSHOT_MEMORY_MIB)]
    snapshot_memory_mib: u64,
    /// Maximum number of bytes per second to request from replicators; 0: no limit.
    #[arg(long, env = "FOREBAY_COPY_BYTES_PER_SECOND", default_value_t = 0)]
    copy_bytes_per_second: u64,
}

impl Settings {
    fn options(&self) -> Result<SnapshotOptions> {
        let every = Duration::from_secs(self.snapshot_every_s);
        Ok(SnapshotOptions {
            grace: Duration::from_secs(self.snapshot_grace_s),
            rollback_window: Duration::from_secs(self.rollback_window_s),
            memory_bytes: self.snapshot_memory_mib << 20,
            bytes_per_second: self.copy_bytes_per_second,
            ..SnapshotOptions::new(every, self.snapshots_kept)?
        })
    }
}

async fn run(settings: Settings) -> Result<()> {
    check_loopback(PROGRAM, settings.listen)?;
    let options = settings.options()?;
    let snapshots = SnapshotStore::open(&settings.snapshots)?;
    snapshots.check().await?;
    let backups = backup_store(settings.backups.as_deref(), Some(&settings.snapshots))?;
    if let Some(backups) = &backups {
        backups.check().await?;
    }
    let (listener, address) = bind(settings.listen).await?;
    let kafka = settings.kafka.options()?;
    let log: Arc<dyn ChangeLog> = Arc::new(KafkaLog::open(kafka.clone()).await?);
    let entropy = Arc::new(SystemEntropy);
    // This process stores nothing that would justify keeping its partitions over a restart.
    let instance = format!("{:016x}", entropy.next_u64()?);
    let name = format!("{PROGRAM}@{address}");
    let membership = Arc::new(KafkaGroup::join(&kafka, "snapshots", &name, &instance)?);
    let replicators = Arc::new(membership.owners_of("replicators"));
    let catalog = Arc::new(CatalogFollower::start(Arc::clone(&log), entropy.clone()));
    let parts =
        SnapshotParts { log, catalog, entropy, membership, replicators, snapshots, options };
    let kept = Snapshots::keep(parts.clone());
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status("", tonic_health::ServingStatus::Serving).await;
    let scratch = settings.scratch_dir.unwrap_or_else(std::env::temp_dir);
    let clock = Arc::new(SystemClock);
    let pushes = PushParts { kept: parts.clone(), clock: clock.clone(), scratch: scratch.clone() };
    let mut routes = Routes::new(health).add_service(PushService::new(pushes).into_server());
    if let Some(backups) = backups {
        let parts = BackupParts { kept: parts, backups, clock, scratch };
        routes = routes.add_service(BackupService::new(parts).into_server());
    }
    let signals = Signals::listen()?;
    println!("{PROGRAM} ready http://{address}");
    let served = serve(listener, routes, signals.received(), || {}).await;
    drop(kept);
    served
}

fn main() -> ExitCode {
    let settings = Settings::parse();
    let filter = EnvFilter::try_from_env("FOREBAY_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter).init();
    match forebay_serve::run(run(settings)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{PROGRAM}: {error}");
            ExitCode::FAILURE
        }
    }
}
