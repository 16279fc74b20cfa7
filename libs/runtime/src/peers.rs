//! The other processes that share the partitions. A request about a partition of another process is
//! forwarded to that process, once.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::id::PartitionRef;
use forebay_core::{Error, Result};
use forebay_log::Membership;
use forebay_wire::endpoint::endpoint_of;
use parking_lot::Mutex;
use tonic::metadata::MetadataMap;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;

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
        self.channel(process_address(&name)).map(Owner::Peer)
    }

    fn channel(&self, address: &str) -> Result<Channel> {
        let mut channels = self.channels.lock();
        if let Some(channel) = channels.get(address) {
            return Ok(channel.clone());
        }
        let endpoint = endpoint_of(address).ok_or_else(|| {
            Error::internal(format!("another process has the invalid address `{address}`"))
        })?;
        let channel = endpoint.connect_timeout(CONNECT_WAIT).connect_lazy();
        channels.insert(address.to_owned(), channel.clone());
        Ok(channel)
    }
}

/// Returns the name of a process in its group, which has the address for the other processes.
pub(crate) fn process_name(program: &str, address: impl Display) -> String {
    format!("{program}@{address}")
}

/// Returns the address in the name of a process.
pub fn process_address(name: &str) -> &str {
    name.split_once('@').map_or(name, |(_, address)| address)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_process_has_its_address() {
        let name = process_name("forebay-replicator", "127.0.0.1:7072");
        assert_eq!(name, "forebay-replicator@127.0.0.1:7072");
        assert_eq!(process_address(&name), "127.0.0.1:7072");
    }
}
