//! A service as a separate process over Kafka, from its settings to its end.

use std::net::SocketAddr;
use std::sync::Arc;

use forebay_core::Result;
use forebay_core::clock::SystemClock;
use forebay_core::entropy::SystemEntropy;
use forebay_log::{KafkaGroup, KafkaLog, KafkaOptions};
use tokio::net::TcpListener;
use tonic::service::Routes;

use crate::context::ServiceContext;
use crate::kafka::KafkaSettings;
use crate::peers::process_name;
use crate::program::print_ready;
use crate::server::{RoleServices, Signals, bind, check_loopback, serve};
use crate::settings::ListenSettings;

/// The settings of every service that is a separate process.
#[derive(Clone, Debug, clap::Args)]
pub struct ProcessSettings {
    #[command(flatten)]
    kafka: KafkaSettings,
    /// Development mode: one broker is enough, so its loss may lose an acknowledged write.
    #[arg(long, env = "FOREBAY_DEV")]
    dev: bool,
    #[command(flatten)]
    listen: ListenSettings,
}

/// A process that listens, but does not serve yet: early connections wait.
pub struct Process {
    program: &'static str,
    kafka: KafkaOptions,
    listener: TcpListener,
    address: SocketAddr,
    context: ServiceContext,
}

impl Process {
    /// Listens, opens the log, and starts to follow the control log.
    ///
    /// # Errors
    /// `InvalidArgument` for a setting that cannot be; `Unavailable` if the address is taken or no
    /// broker answers.
    pub async fn start(program: &'static str, settings: &ProcessSettings) -> Result<Self> {
        check_loopback(program, settings.listen.listen)?;
        let kafka = match settings.dev {
            true => settings.kafka.dev_options()?,
            false => settings.kafka.options()?,
        };
        let (listener, address) = bind(settings.listen.listen).await?;
        let log = Arc::new(KafkaLog::open(kafka.clone()).await?);
        let context = ServiceContext::start(log, Arc::new(SystemClock), Arc::new(SystemEntropy));
        Ok(Self { program, kafka, listener, address, context })
    }

    /// Joins a consumer group, which assigns partitions to this process. The group recognises the
    /// process by `instance` after a restart.
    ///
    /// # Errors
    /// As [`KafkaGroup::join`].
    pub fn join(&mut self, group: &str, instance: &str) -> Result<Arc<KafkaGroup>> {
        let name = process_name(self.program, self.address);
        let membership = Arc::new(KafkaGroup::join(&self.kafka, group, &name, instance)?);
        self.context.membership = Arc::<KafkaGroup>::clone(&membership);
        Ok(membership)
    }

    /// Returns the dependencies of the service.
    pub fn context(&self) -> ServiceContext {
        self.context.clone()
    }

    /// Prints the ready line, serves these services next to `routes` until SIGTERM or SIGINT, and
    /// stops the services.
    ///
    /// # Errors
    /// `Internal` if the signal handlers cannot be installed.
    pub async fn run(self, routes: Routes, services: &impl RoleServices) -> Result<()> {
        let result = self.serve(services.add_to(routes), || services.drain()).await;
        services.stop().await;
        result
    }

    async fn serve(self, routes: Routes, drain: impl FnOnce()) -> Result<()> {
        let signals = Signals::listen()?;
        print_ready(self.program, self.address);
        serve(self.listener, routes, signals.received(), drain).await
    }
}
