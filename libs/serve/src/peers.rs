//! The other processes that share the partitions: what is asked of this one about a partition that
//! another has is asked there, once.

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

/// Says that a request comes from another process of the group, which is not asked back.
const FORWARDED: &str = "forebay-forwarded";
/// Longest wait for a connection to another process.
const CONNECT_WAIT: Duration = Duration::from_secs(2);

/// Where a partition is read.
pub enum Owner {
    /// Here.
    Here,
    /// In another process, over this connection.
    Peer(Channel),
}

/// Finds the processes that have partitions.
pub struct Peers {
    membership: Arc<dyn Membership>,
    channels: Mutex<BTreeMap<String, Channel>>,
}

impl Peers {
    /// Those that share the partitions of this membership.
    pub fn new(membership: Arc<dyn Membership>) -> Self {
        Self { membership, channels: Mutex::default() }
    }

    /// Who is to be asked about a partition. A request that was forwarded is answered here.
    ///
    /// # Errors
    /// `Unavailable` where nobody has it now, or when that cannot be known.
    pub async fn owner(&self, at: PartitionRef, came_with: &MetadataMap) -> Result<Owner> {
        let is_ours = self.membership.assigned().borrow().has(at);
        if is_ours || is_forwarded(came_with) {
            return Ok(Owner::Here);
        }
        let Some(name) = self.membership.owner(at).await? else {
            let message = "no process has the partition at the moment; try again";
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
            Error::internal(format!("another process says that it is at `{address}`"))
        })?;
        let channel = endpoint.connect_timeout(CONNECT_WAIT).connect_lazy();
        channels.insert(address.to_owned(), channel.clone());
        Ok(channel)
    }
}

/// Whether a request comes from another process of the group.
pub fn is_forwarded(came_with: &MetadataMap) -> bool {
    came_with.contains_key(FORWARDED)
}

/// A request to another process, which answers it itself.
pub fn forwarded<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert(FORWARDED, MetadataValue::from_static("1"));
    request
}
