//! The gRPC services of a replicator, over one set of replicas.

use std::sync::Arc;

use forebay_log::change_stream_service::ChangeStreamService;
use forebay_runtime::RoleServices;
use forebay_shard_replica::await_all_closed;
use tonic::service::Routes;

use crate::copies::{CopySource, ReplicaShards};
use crate::health::health;
use crate::ordered_reads::ShardService;
use crate::parts::ReplicatorParts;
use crate::replicas::Replicas;
use crate::service::ReplicatorService;

/// The services of a running replicator. Dropping them ends the duties of the replicas.
pub struct ReplicatorServices {
    parts: ReplicatorParts,
    replicas: Arc<Replicas>,
    change_stream: ChangeStreamService,
    replicator: ReplicatorService,
    ordered: ShardService,
    /// Source of shard copies; `None` without shards.
    copies: Option<CopySource>,
}

impl ReplicatorServices {
    /// Starts to follow every store, on the current runtime. All copies of shards together send
    /// this many bytes per second at most; 0: no limit.
    pub fn start(parts: ReplicatorParts, copy_bytes_per_second: u64) -> Self {
        let (log, clock) = (Arc::clone(&parts.context.log), Arc::clone(&parts.context.clock));
        let change_stream = ChangeStreamService::new(log, clock);
        let replicas = Arc::new(Replicas::follow(parts.clone()));
        let copies = parts.shards.as_ref().map(|directory| {
            let shards = Arc::new(ReplicaShards::new(parts.clone(), Arc::clone(&replicas)));
            let entropy = Arc::clone(&parts.context.entropy);
            CopySource::start(shards, directory.exports(), entropy, copy_bytes_per_second)
        });
        let ordered = ShardService::new(parts.clone(), Arc::clone(&replicas));
        let replicator = ReplicatorService::new(parts.clone(), Arc::clone(&replicas));
        Self { parts, replicas, change_stream, replicator, ordered, copies }
    }

    /// Returns the replicas.
    pub fn replicas(&self) -> &Arc<Replicas> {
        &self.replicas
    }
}

impl RoleServices for ReplicatorServices {
    fn add_to(&self, routes: Routes) -> Routes {
        let routes = routes
            .add_service(self.replicator.clone().into_server())
            .add_service(self.ordered.clone().into_server())
            .add_service(health(self.parts.clone(), &self.replicas))
            .add_service(self.change_stream.clone().into_server());
        match &self.copies {
            Some(copies) => routes.add_service(copies.clone().into_server()),
            None => routes,
        }
    }

    fn drain(&self) {
        self.change_stream.end_streams();
    }

    async fn stop(&self) {
        self.replicas.stop().await;
        if let Some(directory) = &self.parts.shards {
            await_all_closed(directory.resources()).await;
        }
    }
}
