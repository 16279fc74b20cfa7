//! A node: everything that one process serves, without sockets and signals.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_core::Result;
use forebay_core::clock::Clock;
use forebay_core::entropy::Entropy;
use forebay_core::id::{ClientId, PartitionRef, Position, Sequence};
use forebay_core::limits::MESSAGE_BYTES_MAX;
use forebay_core::outcome::Verdict;
use forebay_log::{CatalogFollower, ChangeLog};
use forebay_replicator_service::{ChangeStreamService, change_stream};
use forebay_wire::v1::writer_server::WriterServer;
use forebay_writer_service::service::WriterService;
use forebay_writer_service::{Outcomes, Writer, WriterParts};
use tonic::service::Routes;

use crate::replicas::Replicas;

/// What a node is built from; the simulator brings its own.
#[derive(Clone)]
pub struct NodeParts {
    /// The change log.
    pub log: Arc<dyn ChangeLog>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness: ids, and the jitter of back-offs.
    pub entropy: Arc<dyn Entropy>,
}

/// A running node. Dropping it stops its tasks.
pub struct Node {
    writer: WriterService,
    change_stream: ChangeStreamService,
    replicas: Arc<Replicas>,
}

impl Node {
    /// Starts a node: opens the control log when nobody has, finishes what a writer that died may
    /// have left, and begins to follow every store.
    ///
    /// # Errors
    /// As the log's reads and appends.
    pub async fn start(parts: NodeParts) -> Result<Self> {
        let (log, entropy) = (Arc::clone(&parts.log), Arc::clone(&parts.entropy));
        let catalog = Arc::new(CatalogFollower::start(Arc::clone(&log), Arc::clone(&entropy)));
        let replicas = Arc::new(Replicas::new());
        let outcomes = Arc::new(ReplicaOutcomes(Arc::clone(&replicas)));
        let catalog_parts = Arc::clone(&catalog);
        let writer = WriterParts { log, catalog: catalog_parts, entropy, outcomes };
        let writer = Arc::new(Writer::new(writer));
        writer.repair().await?;
        replicas.follow(&parts, catalog, Arc::clone(&writer));
        let change_stream = ChangeStreamService::new(parts.log, parts.clock);
        Ok(Self { writer: WriterService::new(writer), change_stream, replicas })
    }

    /// The gRPC services of this node.
    pub fn routes(&self) -> Routes {
        let writer = WriterServer::new(self.writer.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        Routes::new(writer).add_service(change_stream(self.change_stream.clone()))
    }

    /// Ends all streams, which never end by themselves; calls in flight go on.
    pub fn drain(&self) {
        self.writer.end_streams();
        self.change_stream.end_streams();
    }

    /// Stops following; what was acknowledged is in the log.
    pub fn stop(&self) {
        self.replicas.stop();
    }
}

/// Outcomes as the node's own replicas know them.
struct ReplicaOutcomes(Arc<Replicas>);

#[async_trait]
impl Outcomes for ReplicaOutcomes {
    async fn verdict(
        &self,
        at: PartitionRef,
        position: Position,
        (client, sequence): (ClientId, Sequence),
        wait_max: Duration,
    ) -> Option<Verdict> {
        let reader = self.0.reader(at.store)?;
        reader.wait_applied(at.partition, position, wait_max).await.ok()?;
        reader.outcome(at.partition, client, sequence).ok()?.map(|outcome| outcome.verdict)
    }
}
