//! The change log of `forebayd dev`: opened, watched and closed.

use std::sync::Arc;

use forebay_core::clock::SystemClock;
use forebay_core::{Error, Result};
use forebay_log::ChangeLog;
use forebay_log::disk::RealDisk;
use forebay_log::embedded_log::{EmbeddedLog, EmbeddedOptions};
use forebay_log::kafka::KafkaLog;
use forebayd::config::{DevSettings, Durability, LogKind};

/// An open log.
pub(crate) enum OpenLog {
    Embedded(Arc<EmbeddedLog>),
    Kafka(Arc<KafkaLog>),
}

impl OpenLog {
    /// Opens the configured log.
    ///
    /// # Errors
    /// Returns an error that says what to do if the log cannot be opened. Attempts to reach Kafka
    /// brokers end within the time that [`KafkaOptions`](forebay_log::kafka::KafkaOptions) bounds.
    pub(crate) async fn open(settings: &DevSettings) -> Result<Self> {
        match settings.change_log {
            LogKind::Embedded => {
                let mut options = EmbeddedOptions::new(&settings.data.data_dir);
                options.durability = match settings.durability {
                    Durability::Fsync => forebay_log::embedded_log::Durability::Fsync,
                    Durability::Buffered => forebay_log::embedded_log::Durability::Buffered,
                };
                let (disk, clock) = (Arc::new(RealDisk), Arc::new(SystemClock));
                let log = EmbeddedLog::open(disk, clock, options).await?;
                Ok(Self::Embedded(Arc::new(log)))
            }
            LogKind::Kafka => {
                let options = settings.kafka.dev_options()?;
                Ok(Self::Kafka(Arc::new(KafkaLog::open(options).await?)))
            }
        }
    }

    /// Returns the log as a node needs it.
    pub(crate) fn log(&self) -> Arc<dyn ChangeLog> {
        match self {
            Self::Embedded(log) => Arc::clone(log) as Arc<dyn ChangeLog>,
            Self::Kafka(log) => Arc::clone(log) as Arc<dyn ChangeLog>,
        }
    }

    /// Waits until the log has failed permanently. A Kafka log never does: while the brokers are
    /// unreachable, every call returns an error.
    pub(crate) async fn failed(&self) -> Error {
        match self {
            Self::Embedded(log) => log.failed().await,
            Self::Kafka(_) => std::future::pending().await,
        }
    }

    /// Closes the log, after the last call.
    pub(crate) async fn close(self) {
        match self {
            Self::Embedded(log) => log.close().await,
            Self::Kafka(log) => drop(log),
        }
    }
}

/// Describes the location of the log and the durability of an acknowledgement.
pub(crate) fn describe(settings: &DevSettings) -> String {
    match (settings.change_log, settings.durability) {
        (LogKind::Kafka, _) => format!(
            "Kafka on {}, topics {}.* (every write is held by the brokers before it is \
             acknowledged)",
            settings.kafka.brokers.join(","),
            settings.kafka.topic_prefix
        ),
        (LogKind::Embedded, Durability::Fsync) => format!(
            "{} (every write is synced to disk before it is acknowledged)",
            settings.data.data_dir.display()
        ),
        (LogKind::Embedded, Durability::Buffered) => format!(
            "{} (every write is acknowledged before it is synced: a power cut may lose it)",
            settings.data.data_dir.display()
        ),
    }
}
