//! The streams that are open here, as SQL tables of their events.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use forebay_core::id::PartitionId;
use forebay_core::schema::Definition;
use forebay_core::{Error, ErrorCode, Result};
use forebay_query::{Batches, Rows, Table, TableScan, Tables};
use forebay_runtime::Owner;
use forebay_wire::v1;
use futures::TryStreamExt;
use tonic::async_trait;
use tonic::metadata::MetadataMap;

use super::partition_rows::{local_rows, peer_rows};
use super::stream_columns::StreamColumns;
use crate::feature_store::Features;
use crate::streams::Stream;

/// The streams that are open here.
pub(super) struct StreamTables(Arc<Features>);

impl StreamTables {
    pub(super) fn new(features: Arc<Features>) -> Self {
        Self(features)
    }
}

impl fmt::Debug for StreamTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

#[async_trait]
impl Tables for StreamTables {
    fn names(&self) -> Vec<String> {
        self.0.stream_names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn Table>>> {
        match self.0.stream(name) {
            Ok(stream) => Ok(Some(Arc::new(StreamTable::new(Arc::clone(&self.0), stream)))),
            Err(error) => match error.code() {
                // The name is not a stream.
                ErrorCode::NotFound | ErrorCode::InvalidArgument => Ok(None),
                _ => Err(error),
            },
        }
    }
}

/// The table of one stream. Each process serves its own partitions and asks others for theirs.
#[derive(Clone)]
pub(crate) struct StreamTable {
    features: Arc<Features>,
    columns: StreamColumns,
}

impl fmt::Debug for StreamTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StreamTable").field(&self.definition().name).finish()
    }
}

impl StreamTable {
    pub(crate) fn new(features: Arc<Features>, stream: Stream) -> Self {
        Self { features, columns: StreamColumns::new(stream) }
    }

    pub(crate) fn definition(&self) -> &Definition {
        self.columns.definition()
    }

    /// Returns the index of the column with the event time.
    ///
    /// # Errors
    /// `InvalidArgument` if another column hides it.
    pub(crate) fn time_index(&self) -> Result<usize> {
        self.columns.time_index()
    }

    /// Returns the index of the column with the offset.
    ///
    /// # Errors
    /// As [`StreamTable::time_index`].
    pub(crate) fn offset_index(&self) -> Result<usize> {
        self.columns.offset_index()
    }

    /// Returns the rows of a ticket.
    ///
    /// # Errors
    /// `InvalidArgument` for a partition or column that the stream does not have.
    pub(super) fn scan(&self, ticket: &v1::ScanTicket, came_with: &MetadataMap) -> Result<Rows> {
        let partition = PartitionId(ticket.partition);
        if partition.0 >= self.definition().write_logs().partitions.0 {
            let error = Error::invalid_argument("the stream has no such partition");
            return Err(error.with_partition(partition));
        }
        let scan = self.columns.scan_of_ticket(ticket)?;
        let schema = self.columns.projected_schema(&scan)?;
        // A ticket that was not forwarded is answered from the process that has the partition.
        let batches = match forebay_runtime::is_forwarded(came_with) {
            true => local_rows(&self.columns, partition, scan),
            false => self.rows(partition.0 as usize, &scan),
        };
        Ok(Rows { schema, batches })
    }
}

impl Table for StreamTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.columns.schema)
    }

    fn parts(&self) -> usize {
        self.definition().write_logs().partitions.0 as usize
    }

    fn rows(&self, part: usize, scan: &TableScan) -> Batches {
        let (table, scan) = (self.clone(), scan.clone());
        let partition = PartitionId(part as u32);
        let begun = async move {
            let at = table.definition().write_logs().at(partition);
            let owner = table.features.peers().owner(at, &MetadataMap::new()).await?;
            match owner {
                Owner::Here => Ok(local_rows(&table.columns, partition, scan)),
                Owner::Peer(peer) => peer_rows(&table.columns, peer, partition, &scan).await,
            }
        };
        Box::pin(futures::stream::once(begun).try_flatten())
    }
}
