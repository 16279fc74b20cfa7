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

use crate::feature_store::{Features, GroupValues};
use crate::view_stats::ViewStats;

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

    async fn answer(&self, request: v1::GetViewValuesRequest) -> Result<v1::GetViewValuesResponse> {
        let v1::GetViewValuesRequest { view, group } = request;
        let group: Vec<Value> = group.into_iter().map(TryInto::try_into).collect::<Result<_>>()?;
        let GroupValues { values, partition_time } = self.0.values(&view, &group).await?;
        let named = values.into_iter().map(|(name, value)| v1::get_view_values_response::Named {
            name,
            value: value.as_ref().map(Into::into),
        });
        let partition_time_us =
            (partition_time != Timestamp::MIN).then(|| partition_time.as_micros());
        Ok(v1::GetViewValuesResponse { values: named.collect(), partition_time_us })
    }
}

fn stats_message(stats: ViewStats) -> v1::GetViewStatsResponse {
    v1::GetViewStatsResponse {
        input_events: stats.input_events,
        filter_dropped: stats.filter_dropped,
        join_dropped: stats.join_dropped,
        oversized_dropped: stats.oversized_dropped,
        ungrouped_dropped: stats.ungrouped_dropped,
        folded_events: stats.folded_events,
        late_dropped: stats.late_dropped,
        future_dropped: stats.future_dropped,
        invalid_dropped: stats.invalid_dropped,
        materialized_documents: stats.materialized_documents,
        materialize_delay_p50_us: stats.materialize_delay_us[0],
        materialize_delay_p99_us: stats.materialize_delay_us[1],
        materialize_delay_max_us: stats.materialize_delay_us[2],
    }
}

fn to_status(error: Error) -> Status {
    status_of_error(&error)
}

#[tonic::async_trait]
impl Served for FeaturesService {
    async fn get_view_values(
        &self,
        request: Request<v1::GetViewValuesRequest>,
    ) -> Result<Response<v1::GetViewValuesResponse>, Status> {
        self.answer(request.into_inner()).await.map(Response::new).map_err(to_status)
    }

    async fn get_view_stats(
        &self,
        request: Request<v1::GetViewStatsRequest>,
    ) -> Result<Response<v1::GetViewStatsResponse>, Status> {
        let stats = self.0.stats(&request.into_inner().view).map_err(to_status)?;
        Ok(Response::new(stats_message(stats)))
    }
}
