//! Rows of a partition of another process.

use forebay_core::id::PartitionId;
use forebay_core::{Error, Result};
use forebay_query::{Batches, Wanted, rows_of_peer};
use forebay_serve::forwarded;
use futures::stream::StreamExt;
use tonic::transport::Channel;

use super::SCAN_TICKET;
use super::streams::StreamTable;

/// Requests the rows from the other process.
///
/// # Errors
/// As the other process; `Unavailable` if it cannot be reached, or has another definition.
pub(super) async fn rows(
    table: &StreamTable,
    peer: Channel,
    partition: PartitionId,
    wanted: &Wanted,
) -> Result<Batches> {
    let ticket = table.ticket(partition, wanted);
    let rows = rows_of_peer(peer, SCAN_TICKET, &ticket, forwarded).await?;
    let expected = table.projected(wanted)?;
    let rows = rows.map(move |batch| {
        let batch = batch?;
        if batch.schema() != expected {
            let message = "the stream is altered at the moment; ask again";
            return Err(Error::unavailable(message).with_partition(partition));
        }
        Ok(batch)
    });
    Ok(rows.boxed())
}
