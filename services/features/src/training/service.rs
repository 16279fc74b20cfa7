//! gRPC interface of training sets.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::id::PartitionId;
use forebay_core::{Error, Result};
use forebay_query::{FileStorage, StoredFile};
use forebay_snapshot::SnapshotStore;
use forebay_wire::status::status_of_error;
use forebay_wire::v1;
use forebay_wire::v1::training_server::{Training as Served, TrainingServer};
use futures::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::comparison::{ViewComparison, compare};
use super::join::{Join, TrainingProgress};
use super::labels::Labels;
use crate::feature_store::Features;
use crate::plan::Plan;
use crate::progress_stream::{ProgressSender, stream_progress};

/// Default number of groups to compare per partition.
const COMPARED: u32 = 1_000;

/// Training sets as a gRPC service. A process builds one training set at a time.
#[derive(Clone)]
pub struct TrainingService {
    features: Arc<Features>,
    turn: Arc<Semaphore>,
}

impl TrainingService {
    /// Creates the service over the views of these features.
    pub fn new(features: Arc<Features>) -> Self {
        Self { features, turn: Arc::new(Semaphore::new(1)) }
    }

    /// Returns the service for a server.
    pub fn into_server(self) -> TrainingServer<Self> {
        TrainingServer::new(self)
    }

    async fn compare_view(&self, request: &v1::VerifyViewRequest) -> Result<ViewComparison> {
        let (schema, shards) = self
            .features
            .find(&request.view, |open| (Arc::clone(&open.schema), open.shards.clone()))?;
        let groups_max = if request.groups == 0 { COMPARED } else { request.groups };
        let mut all = ViewComparison::default();
        for shard in shards.replicas().open_shards() {
            let partition: PartitionId = shard.partition().partition;
            let (parts, definition) = (self.features.parts(), &*schema.definition);
            let of_partition =
                compare(parts, definition, &shards, (partition, groups_max as usize)).await;
            let of_partition = of_partition.map_err(|error| error.with_partition(partition))?;
            all.groups += of_partition.groups;
            all.values += of_partition.values;
            all.differing.extend(of_partition.differing);
        }
        if all.groups == 0 {
            let message = "this process aggregates no group of the view; ask the process that does";
            return Err(Error::unavailable(message));
        }
        Ok(all)
    }
}

type TrainingSender = ProgressSender<v1::CreateTrainingSetResponse>;

async fn join(
    features: &Features,
    request: &v1::CreateTrainingSetRequest,
    sender: &TrainingSender,
) -> Result<()> {
    let schema = features.view_definition(&request.view)?;
    let definition = &*schema.definition;
    let plan = Plan::of(definition)?;
    let to = SnapshotStore::open(&request.to)?;
    let files = label_files(&request.labels).await?;
    let labels = Labels::read(files, (definition, &plan), &request.time_column).await?;
    let join = Join { parts: features.parts(), definition, plan: &plan, to: &to };
    // A slow client misses progress messages.
    let progress =
        join.run(&labels, |progress| drop(sender.try_send(Ok(message(progress))))).await?;
    drop(
        sender.send(Ok(v1::CreateTrainingSetResponse { is_done: true, ..message(progress) })).await,
    );
    Ok(())
}

fn message(progress: TrainingProgress) -> v1::CreateTrainingSetResponse {
    v1::CreateTrainingSetResponse {
        rows: progress.rows,
        files: progress.files,
        bytes: progress.bytes,
        is_done: false,
    }
}

/// Returns the files of this URL, which is a file or a folder of files.
async fn label_files(url: &str) -> Result<Vec<StoredFile>> {
    let store = SnapshotStore::open(url)?;
    let files = store.files().await?;
    let storage: Arc<dyn FileStorage> = Arc::new(LabelStore(store));
    let file = |found: forebay_snapshot::FoundFile| {
        let (name, bytes) = (found.name().to_owned(), found.bytes);
        StoredFile { storage: Arc::clone(&storage), name, bytes }
    };
    Ok(files.into_iter().map(file).collect())
}

/// Storage of the labels.
#[derive(Debug)]
struct LabelStore(SnapshotStore);

impl FileStorage for LabelStore {
    fn range(&self, name: &str, range: std::ops::Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        let name = name.to_owned();
        Box::pin(async move { self.0.found_range(&name, range).await })
    }
}

#[tonic::async_trait]
impl Served for TrainingService {
    type CreateTrainingSetStream = ReceiverStream<Result<v1::CreateTrainingSetResponse, Status>>;

    async fn create_training_set(
        &self,
        request: Request<v1::CreateTrainingSetRequest>,
    ) -> Result<Response<Self::CreateTrainingSetStream>, Status> {
        let request = request.into_inner();
        let busy = || Error::unavailable("another training set is being built here; try again");
        let turn = Arc::clone(&self.turn).try_acquire_owned();
        let turn = turn.map_err(|_| status_of_error(&busy()))?;
        let features = Arc::clone(&self.features);
        Ok(stream_progress(turn, |sender| async move {
            let joined = join(&features, &request, &sender).await;
            joined.map_err(|error| error.with_store(&request.view))
        }))
    }

    async fn verify_view(
        &self,
        request: Request<v1::VerifyViewRequest>,
    ) -> Result<Response<v1::VerifyViewResponse>, Status> {
        let request = request.into_inner();
        let comparison = self.compare_view(&request).await;
        let comparison = comparison.map_err(|error| error.with_store(&request.view));
        let ViewComparison { groups, values, differing } =
            comparison.map_err(|error| status_of_error(&error))?;
        Ok(Response::new(v1::VerifyViewResponse { groups, values, differing }))
    }
}
