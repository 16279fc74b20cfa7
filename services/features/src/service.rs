//! gRPC interface of the features service: translates requests, queries the views, translates the
//! answers.

use std::sync::Arc;

use forebay_core::clock::Timestamp;
use forebay_core::value::Value;
use forebay_core::{Error, Result};
use forebay_wire::status::status_of_error;
use forebay_wire::v1;
use forebay_wire::v1::features_server::{Features as Served, FeaturesServer};
use tonic::{Request, Response, Status};

use crate::counts::ViewCounts;
use crate::feature_store::{Features, GroupValues};

/// The features service as a gRPC service.
#[derive(Clone)]
pub struct FeaturesService(Arc<Features>);

impl FeaturesService {
    /// Creates the service over these features.
    pub fn new(features: Arc<Features>) -> Self {
        Self(features)
    }

    /// Returns the service for a server.
    pub fn into_server(self) -> FeaturesServer<Self> {
        FeaturesServer::new(self)
    }

    async fn answer(&self, request: v1::ViewValuesRequest) -> Result<v1::ViewValuesResponse> {
        let v1::ViewValuesRequest { view, group } = request;
        let group: Vec<Value> = group.into_iter().map(TryInto::try_into).collect::<Result<_>>()?;
        let GroupValues { values, partition_time } = self.0.values(&view, &group).await?;
        let named = values.into_iter().map(|(name, value)| v1::view_values_response::Named {
            name,
            value: value.as_ref().map(Into::into),
        });
        let partition_time_us =
            (partition_time != Timestamp::MIN).then(|| partition_time.as_micros());
        Ok(v1::ViewValuesResponse { values: named.collect(), partition_time_us })
    }
}

fn counts_message(counts: ViewCounts) -> v1::ViewCountsResponse {
    v1::ViewCountsResponse {
        seen: counts.seen,
        filtered: counts.filtered,
        not_found: counts.not_found,
        oversized: counts.oversized,
        ungrouped: counts.ungrouped,
        folded: counts.folded,
        late: counts.late,
        ahead: counts.ahead,
        refused: counts.refused,
        emitted: counts.emitted,
        emitted_p50_us: counts.emitted_after_us[0],
        emitted_p99_us: counts.emitted_after_us[1],
        emitted_max_us: counts.emitted_after_us[2],
    }
}

fn told(error: Error) -> Status {
    status_of_error(&error)
}

#[tonic::async_trait]
impl Served for FeaturesService {
    async fn values(
        &self,
        request: Request<v1::ViewValuesRequest>,
    ) -> Result<Response<v1::ViewValuesResponse>, Status> {
        self.answer(request.into_inner()).await.map(Response::new).map_err(told)
    }

    async fn counts(
        &self,
        request: Request<v1::ViewCountsRequest>,
    ) -> Result<Response<v1::ViewCountsResponse>, Status> {
        let counts = self.0.counts(&request.into_inner().view).map_err(told)?;
        Ok(Response::new(counts_message(counts)))
    }
}
