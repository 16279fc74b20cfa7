//! The gRPC services over the views and streams of this process.

use std::sync::Arc;

use forebay_core::Result;
use forebay_query::FlightSql;
use forebay_runtime::RoleServices;
use tonic::service::Routes;

use crate::events::service::EventsService;
use crate::export::service::ExportsService;
use crate::feature_store::Features;
use crate::parts::FeatureParts;
use crate::service::FeaturesService;
use crate::sql;
use crate::training::service::TrainingService;

/// The services of a running features service.
pub struct FeatureServices {
    features: Arc<Features>,
    sql: FlightSql,
}

impl FeatureServices {
    /// Starts to maintain all views and streams, on separate threads.
    ///
    /// # Errors
    /// `Internal` if the threads cannot be started.
    pub fn start(parts: FeatureParts) -> Result<Self> {
        let features = Arc::new(Features::start(parts)?);
        let sql = sql::service(&features)?;
        Ok(Self { features, sql })
    }
}

impl RoleServices for FeatureServices {
    fn add_to(&self, routes: Routes) -> Routes {
        let features = || Arc::clone(&self.features);
        routes
            .add_service(FeaturesService::new(features()).into_server())
            .add_service(EventsService::new(features()).into_server())
            .add_service(ExportsService::new(features()).into_server())
            .add_service(TrainingService::new(features()).into_server())
            .add_service(self.sql.clone().into_server())
    }

    async fn stop(&self) {
        self.features.stop().await;
    }
}
