//! SQL over the streams. Each stream is a table of its retained events in the schema `events`,
//! whichever process has the partitions, and a table of its exports in the schema `exports`.

mod partition_rows;
mod stream_columns;
mod stream_table;

use std::sync::Arc;

use forebay_core::{Error, Result};
use forebay_query::{FlightSql, Rows, Scans, SqlEngine, Tables};
use forebay_wire::v1;
use prost::Message;
use tonic::async_trait;
use tonic::metadata::MetadataMap;

use self::stream_columns::SCAN_TICKET;
pub(crate) use self::stream_table::StreamTable;
use self::stream_table::StreamTables;
use crate::export::ExportTables;
use crate::feature_store::Features;

/// Name of the schema of streams.
const EVENTS: &str = "events";
/// Name of the schema of exports.
const EXPORTS: &str = "exports";

/// Creates the Flight SQL service over the streams of these features.
///
/// # Errors
/// `Unavailable` if the machine provides no threads, or the disk refuses.
pub fn service(features: &Arc<Features>) -> Result<FlightSql> {
    let streams: Arc<dyn Tables> = Arc::new(StreamTables::new(Arc::clone(features)));
    let exports: Arc<dyn Tables> = Arc::new(ExportTables::new(Arc::clone(features)));
    let engine =
        SqlEngine::start(vec![(EVENTS, streams), (EXPORTS, exports)], features.sql().clone())?;
    Ok(FlightSql::new(engine, Arc::new(OwnScans(Arc::clone(features)))))
}

/// Scans of local partitions.
struct OwnScans(Arc<Features>);

#[async_trait]
impl Scans for OwnScans {
    async fn scan(&self, type_url: &str, ticket: &[u8], came_with: &MetadataMap) -> Result<Rows> {
        if type_url != SCAN_TICKET {
            let message = "the ticket is not a ticket of this service; send the statement again \
                for another ticket";
            return Err(Error::invalid_argument(message));
        }
        let damaged = |_| Error::invalid_argument("the bytes are not the ticket of a scan");
        let ticket = v1::ScanTicket::decode(ticket).map_err(damaged)?;
        let stream = self.0.stream(&ticket.stream)?;
        let table = StreamTable::new(Arc::clone(&self.0), stream);
        table.scan(&ticket, came_with)
    }
}
