//! Health and readiness over gRPC's own health service (`grpc.health.v1`).

use std::sync::Arc;
use std::time::Duration;

use forebay_core::Result;
use forebay_core::limits::READER_READY_CHECK_MS;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::server::{HealthReporter, health_reporter};
use tracing::{debug, info};

use crate::parts::ReplicatorParts;
use crate::replicas::Replicas;

/// Service name of readiness; the empty name is the health of the process.
const READY: &str = "forebay.v1.Shards";
/// Longest wait for the catalog, before the next attempt.
const FOLD_WAIT: Duration = Duration::from_secs(5);

/// Returns the health service of a process with these replicas. The process is healthy while it
/// answers, and ready while all of its partitions answer within the readiness bound.
pub fn health(parts: ReplicatorParts, replicas: &Arc<Replicas>) -> HealthServer<impl Health> {
    let (reporter, server) = health_reporter();
    let replicas = Arc::downgrade(replicas);
    tokio::spawn(async move {
        set(&reporter, false).await;
        while let Err(error) = has_catalog(&parts).await {
            debug!(%error, "catalog not available yet");
        }
        let mut was_ready = false;
        while let Some(replicas) = replicas.upgrade() {
            let is_ready = replicas.are_ready(&parts);
            drop(replicas);
            if is_ready != was_ready {
                info!(is_ready, "readiness changed");
                set(&reporter, is_ready).await;
                was_ready = is_ready;
            }
            tokio::time::sleep(Duration::from_millis(READER_READY_CHECK_MS)).await;
        }
    });
    server
}

/// Waits until the catalog has all stores that exist at the call.
async fn has_catalog(parts: &ReplicatorParts) -> Result<()> {
    let ended = parts.context.catch_up(FOLD_WAIT).await;
    if ended.is_err() {
        tokio::time::sleep(Duration::from_millis(READER_READY_CHECK_MS)).await;
    }
    ended
}

async fn set(reporter: &HealthReporter, is_ready: bool) {
    use tonic_health::ServingStatus::{NotServing, Serving};
    reporter.set_service_status(READY, if is_ready { Serving } else { NotServing }).await;
}
