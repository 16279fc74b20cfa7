//! Source of the outcomes of conditional changes: a replica decides them, never the writer.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::id::{ClientId, PartitionRef, Position, Sequence};
use forebay_core::outcome::ConditionOutcome;
use forebay_core::{Error, Result};
use forebay_wire::endpoint::endpoint_of;
use forebay_wire::outcome::ChangeResult;
use forebay_wire::v1;
use forebay_wire::v1::replicator_client::ReplicatorClient;
use tonic::transport::Channel;
use tracing::debug;

/// Time for an answer in addition to the wait that a call requests.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// A replica's knowledge of the outcomes of conditional changes.
#[async_trait]
pub trait Outcomes: Send + Sync + 'static {
    /// Returns the outcome of this client's conditional change, which the log holds at `position`;
    /// waits until the replica has applied it. `None` if no replica answers in time, or the outcome
    /// is no longer retained.
    async fn condition_outcome(
        &self,
        at: PartitionRef,
        position: Position,
        change: (ClientId, Sequence),
        wait_max: Duration,
    ) -> Option<ConditionOutcome>;
}

/// Outcomes of a writer that reaches no replica: every conditional change ends as an unknown
/// outcome.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoOutcomes;

#[async_trait]
impl Outcomes for NoOutcomes {
    async fn condition_outcome(
        &self,
        _at: PartitionRef,
        _position: Position,
        _change: (ClientId, Sequence),
        _wait_max: Duration,
    ) -> Option<ConditionOutcome> {
        None
    }
}

/// Client of a replicator's outcomes.
pub(crate) struct RemoteOutcomes {
    rpc: ReplicatorClient<Channel>,
}

impl RemoteOutcomes {
    /// Creates a client of the replicator at `host:port`; connects at the first query, and again
    /// after a failure.
    ///
    /// # Errors
    /// `InvalidArgument` if the address is invalid.
    pub(crate) fn new(address: &str) -> Result<Self> {
        let endpoint = endpoint_of(address).ok_or_else(|| {
            let message = format!(
                "the replicator `{address}` is not of the form HOST:PORT; write an address such as \
                 127.0.0.1:7072"
            );
            Error::invalid_argument(message)
        })?;
        let endpoint = endpoint.connect_timeout(ANSWER_WAIT);
        Ok(Self { rpc: ReplicatorClient::new(endpoint.connect_lazy()) })
    }
}

#[async_trait]
impl Outcomes for RemoteOutcomes {
    async fn condition_outcome(
        &self,
        at: PartitionRef,
        position: Position,
        (client, sequence): (ClientId, Sequence),
        wait_max: Duration,
    ) -> Option<ConditionOutcome> {
        let request = v1::GetOutcomeRequest {
            store_id: at.store.0,
            partition: at.partition.0,
            position: Some(position.into()),
            client_id: Bytes::copy_from_slice(&client.0.to_le_bytes()),
            sequence: sequence.0,
            wait_ms: u32::try_from(wait_max.as_millis()).unwrap_or(u32::MAX),
        };
        let mut rpc = self.rpc.clone();
        let answer = tokio::time::timeout(wait_max + ANSWER_WAIT, rpc.get_outcome(request)).await;
        match answer {
            Ok(Ok(answer)) => {
                let result = ChangeResult::try_from(answer.into_inner().result?).ok()?;
                result.condition_outcome()
            }
            Ok(Err(status)) => {
                // The caller reports the outcome as unknown; a retry queries again.
                debug!(partition = %at, %status, "the replicator returned no outcome");
                None
            }
            Err(_) => None,
        }
    }
}
