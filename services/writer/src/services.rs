//! The gRPC service over one writer.

use std::sync::Arc;

use forebay_core::Result;
use forebay_runtime::RoleServices;
use tonic::service::Routes;

use crate::service::WriterService;
use crate::writer::Writer;

/// The services of a running writer.
pub struct WriterServices {
    writer: WriterService,
}

impl WriterServices {
    /// Starts the repairs of this writer, on the current runtime.
    ///
    /// # Errors
    /// As [`Writer::start_repairs`].
    pub async fn start(writer: Arc<Writer>) -> Result<Self> {
        writer.start_repairs().await?;
        Ok(Self { writer: WriterService::new(writer) })
    }
}

impl RoleServices for WriterServices {
    fn add_to(&self, routes: Routes) -> Routes {
        routes.add_service(self.writer.clone().into_server())
    }

    fn drain(&self) {
        self.writer.end_streams();
    }
}
