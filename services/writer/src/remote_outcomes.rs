//! Outcomes of conditional changes as a replicator in another process knows them.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_core::id::{ClientId, PartitionRef, Position, Sequence};
use forebay_core::outcome::Verdict;
use forebay_core::{Error, Result};
use forebay_wire::outcome::ChangeResult;
use forebay_wire::v1;
use forebay_wire::v1::replicator_client::ReplicatorClient;
use tonic::transport::{Channel, Endpoint};
use tracing::debug;

use crate::outcome::Outcomes;

/// Time beside the wait that a call asks for.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// Asks a replicator.
pub struct RemoteOutcomes {
    rpc: ReplicatorClient<Channel>,
}

impl RemoteOutcomes {
    /// Outcomes as the replicator at `host:port` tells them; connects when it is first asked, and
    /// again after a failure.
    ///
    /// # Errors
    /// `InvalidArgument` for an address that is none.
    pub fn new(address: &str) -> Result<Self> {
        let url = match address.contains("://") {
            true => address.to_owned(),
            false => format!("http://{address}"),
        };
        let endpoint = Endpoint::from_shared(url).map_err(|_| {
            let message =
                format!("replicator `{address}` is no HOST:PORT; set it like 127.0.0.1:7072");
            Error::invalid_argument(message)
        })?;
        let endpoint = endpoint.connect_timeout(ANSWER_WAIT);
        Ok(Self { rpc: ReplicatorClient::new(endpoint.connect_lazy()) })
    }
}

#[async_trait]
impl Outcomes for RemoteOutcomes {
    async fn verdict(
        &self,
        at: PartitionRef,
        position: Position,
        (client, sequence): (ClientId, Sequence),
        wait_max: Duration,
    ) -> Option<Verdict> {
        let request = v1::OutcomeRequest {
            store_id: at.store.0,
            partition: at.partition.0,
            position: Some(position.into()),
            client_id: Bytes::copy_from_slice(&client.0.to_le_bytes()),
            sequence: sequence.0,
            wait_ms: u32::try_from(wait_max.as_millis()).unwrap_or(u32::MAX),
        };
        let mut rpc = self.rpc.clone();
        let answer = tokio::time::timeout(wait_max + ANSWER_WAIT, rpc.outcome(request)).await;
        match answer {
            Ok(Ok(answer)) => {
                let result = ChangeResult::try_from(answer.into_inner().result?).ok()?;
                result.verdict()
            }
            Ok(Err(status)) => {
                // The caller says that the outcome is unknown; a retry asks again.
                debug!(partition = %at, %status, "the replicator told no outcome");
                None
            }
            Err(_) => None,
        }
    }
}
