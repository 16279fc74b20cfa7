//! gRPC interface of exports: takes an export and streams its progress.

use std::sync::Arc;

use forebay_core::{Error, ErrorCode, Result};
use forebay_wire::status::status_of_error;
use forebay_wire::v1;
use forebay_wire::v1::exports_server::{Exports as Served, ExportsServer};
use tokio::sync::Semaphore;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::run::{Export, ExportProgress};
use crate::feature_store::Features;
use crate::progress_stream::{ProgressSender, stream_progress};
use crate::sql::StreamTable;

/// Exports as a gRPC service. A process takes one export at a time.
#[derive(Clone)]
pub struct ExportsService {
    features: Arc<Features>,
    turn: Arc<Semaphore>,
}

impl ExportsService {
    /// Creates the service over the streams of these features.
    pub fn new(features: Arc<Features>) -> Self {
        Self { features, turn: Arc::new(Semaphore::new(1)) }
    }

    /// Returns the service for a server.
    pub fn into_server(self) -> ExportsServer<Self> {
        ExportsServer::new(self)
    }
}

type ExportSender = ProgressSender<v1::ExportEventsResponse>;

async fn export(features: &Arc<Features>, stream: &str, sender: &ExportSender) -> Result<()> {
    let exports = features.exports()?;
    let table = StreamTable::new(Arc::clone(features), features.stream(stream)?);
    let (clock, entropy) = (&features.parts().context.clock, &features.parts().context.entropy);
    let export = Export { exports, table: &table, clock, entropy };
    let mut last = ExportProgress::default();
    let number = export.run(|progress| {
        last = progress;
        // A slow client misses progress messages.
        drop(sender.try_send(Ok(message(progress))));
    });
    let number = number.await?;
    let ended = v1::ExportEventsResponse { is_done: true, number, ..message(last) };
    drop(sender.send(Ok(ended)).await);
    Ok(())
}

fn message(progress: ExportProgress) -> v1::ExportEventsResponse {
    v1::ExportEventsResponse {
        events: progress.events,
        bytes: progress.bytes,
        files: progress.files,
        partitions: progress.partitions,
        is_done: false,
        number: None,
    }
}

#[tonic::async_trait]
impl Served for ExportsService {
    type ExportEventsStream = ReceiverStream<Result<v1::ExportEventsResponse, Status>>;

    async fn export_events(
        &self,
        request: Request<v1::ExportEventsRequest>,
    ) -> Result<Response<Self::ExportEventsStream>, Status> {
        let v1::ExportEventsRequest { stream } = request.into_inner();
        let busy = || {
            let message =
                "another export of the stream runs here at the moment; try again after its end";
            status_of_error(&Error::new(ErrorCode::Unavailable, message))
        };
        let turn = Arc::clone(&self.turn).try_acquire_owned().map_err(|_| busy())?;
        let features = Arc::clone(&self.features);
        Ok(stream_progress(turn, |sender| async move {
            let exported = export(&features, &stream, &sender).await;
            exported.map_err(|error| error.with_store(&stream))
        }))
    }
}
