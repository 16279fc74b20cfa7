//! The other processes that share the partitions. A request about a partition of another process is
//! forwarded to that process, once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::id::PartitionRef;
use forebay_core::{Error, Result};
use forebay_log::Membership;
use parking_lot::Mutex;
use tonic::metadata::MetadataMap;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};

/// Metadata key of a request that another process of the group has forwarded, and that must not be
/// forwarded again.
const FORWARDED: &str = "forebay-forwarded";
/// Longest wait for a connection to another process.
const CONNECT_WAIT: Duration = Duration::from_secs(2);

/// Process that serves a partition.
pub enum Owner {
    /// This process.
    Here,
    /// Another process, over this connection.
    Peer(Channel),
}

/// A client that finds the owners of partitions and connects to them.
pub struct Peers {
    membership: Arc<dyn Membership>,
    channels: Mutex<BTreeMap<String, Channel>>,
}

impl Peers {
    /// Returns the peers of this membership.
    pub fn new(membership: Arc<dyn Membership>) -> Self {
        Self { membership, channels: Mutex::default() }
    }

    /// Returns the owner of a partition for a request. This process serves every forwarded request
    /// itself.
    ///
    /// # Errors
    /// `Unavailable` if the partition has no owner now, or the owner cannot be determined.
    pub async fn owner(&self, at: PartitionRef, came_with: &MetadataMap) -> Result<Owner> {
        let is_ours = self.membership.assignment().borrow().has(at);
        if is_ours || is_forwarded(came_with) {
            return Ok(Owner::Here);
        }
        let Some(name) = self.membership.owner(at).await? else {
            let message = "no process owns the partition at the moment; try again";
            return Err(Error::unavailable(message).with_partition(at.partition));
        };
        let address = name.split_once('@').map_or(name.as_str(), |(_, address)| address);
        self.channel(address).map(Owner::Peer)
    }

    fn channel(&self, address: &str) -> Result<Channel> {
        let mut channels = self.channels.lock();
        if let Some(channel) = channels.get(address) {
            return Ok(channel.clone());
        }
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|_| {
            Error::internal(format!("another process has the invalid address `{address}`"))
        })?;
        let channel = endpoint.connect_timeout(CONNECT_WAIT).connect_lazy();
        channels.insert(address.to_owned(), channel.clone());
        Ok(channel)
    }
}

/// Returns whether another process of the group has forwarded a request.
pub fn is_forwarded(came_with: &MetadataMap) -> bool {
    came_with.contains_key(FORWARDED)
}

/// Returns a request that the receiving process must serve itself.
pub fn forwarded<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert(FORWARDED, MetadataValue::from_static("1"));
    request
}
