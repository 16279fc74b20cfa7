//! Requests to the brokers: metadata, settings, bounds, creation and removal of topics.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Error, Result};
use rdkafka::TopicPartitionList;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::Client;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use tokio::sync::Semaphore;

use super::KafkaOptions;
use super::client::{Context, Ending, base_config, blocking, creation_error, unavailable};
use super::settings::Settings;
use super::topic_incarnations::TopicIncarnations;

/// Most requests that wait for an answer at the same time, each on a blocking thread.
const QUESTIONS_MAX: usize = 16;

/// The client for administration and requests.
pub(super) struct Admin {
    client: Arc<Ending<AdminClient<Context>>>,
    questions: Semaphore,
    timeout: Duration,
}

/// Metadata of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TopicMetadata {
    pub(super) partitions: u32,
    /// Replicas of the partition with the fewest replicas.
    pub(super) replicas: u32,
    /// Whether every partition has a leader.
    pub(super) is_ready: bool,
}

/// Running brokers, and the metadata of one topic.
pub(super) struct ClusterMetadata {
    pub(super) brokers: Vec<i32>,
    /// `None` if the topic does not exist.
    pub(super) topic: Option<TopicMetadata>,
}

impl Admin {
    pub(super) fn new(options: &KafkaOptions) -> Result<Self> {
        let mut config = base_config(options);
        // No code polls this client's log queue, so the log level must keep the queue empty.
        config.set_log_level(RDKafkaLogLevel::Emerg);
        let client = config
            .create_with_context(Context::new(TopicIncarnations::default()))
            .map_err(|error| creation_error("client", &error))?;
        Ok(Self {
            client: Arc::new(Ending::new(client)),
            questions: Semaphore::new(QUESTIONS_MAX),
            timeout: options.call_timeout,
        })
    }

    /// Sends a blocking request.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Client<Context>, Duration) -> KafkaResult<T> + Send + 'static,
    ) -> Result<KafkaResult<T>> {
        let turn = tokio::time::timeout(self.timeout, self.questions.acquire());
        let Ok(Ok(_turn)) = turn.await else {
            let message = "the brokers do not answer, and too many requests wait; try again";
            return Err(Error::unavailable(message));
        };
        let (client, timeout) = (self.client.clone(), self.timeout);
        blocking(move || question(client.inner(), timeout)).await
    }

    /// Fetches the running brokers and the metadata of a topic.
    pub(super) async fn look(&self, topic: &str) -> Result<ClusterMetadata> {
        let name = topic.to_owned();
        let metadata = self.ask(move |client, timeout| look(client, &name, timeout)).await?;
        metadata.map_err(|error| unavailable(&format!("look at topic {topic}"), &error))
    }

    /// Returns the first offset and the high watermark of a partition.
    pub(super) async fn watermarks(
        &self,
        topic: &str,
        partition: i32,
    ) -> Result<KafkaResult<(i64, i64)>> {
        let topic = topic.to_owned();
        self.ask(move |client, timeout| client.fetch_watermarks(&topic, partition, timeout)).await
    }

    pub(super) async fn topic_settings(&self, topic: &str) -> Result<Settings> {
        self.settings(ResourceSpecifier::Topic(topic), &format!("topic {topic}")).await
    }

    pub(super) async fn broker_settings(&self, broker: i32) -> Result<Settings> {
        self.settings(ResourceSpecifier::Broker(broker), &format!("broker {broker}")).await
    }

    async fn settings(
        &self,
        resource_specifier: ResourceSpecifier<'_>,
        resource_name: &str,
    ) -> Result<Settings> {
        let doing = format!("read the settings of {resource_name}");
        let resources =
            self.client.describe_configs([&resource_specifier], &self.admin_options()).await;
        let resources = resources.map_err(|error| unavailable(&doing, &error))?;
        let Some(Ok(resource)) = resources.into_iter().next() else {
            return Err(Error::unavailable(format!("could not {doing}; try again")));
        };
        if resource.entries.is_empty() {
            return Err(Error::unavailable(format!(
                "could not {doing}: the brokers returned no settings; try again"
            )));
        }
        let entries = resource.entries.into_iter();
        Ok(entries.filter_map(|entry| Some((entry.name, entry.value?))).collect())
    }

    /// Creates a topic; an existing topic stays unchanged.
    pub(super) async fn make_topic(
        &self,
        topic: &str,
        partitions: u32,
        replicas: u16,
        settings: &[(&'static str, String)],
    ) -> Result<()> {
        let replication = TopicReplication::Fixed(i32::from(replicas));
        let mut new_topic = NewTopic::new(topic, partitions as i32, replication);
        for (name, value) in settings {
            new_topic = new_topic.set(name, value);
        }
        let results = self.client.create_topics([&new_topic], &self.admin_options()).await;
        match outcome(results) {
            Ok(()) | Err(KafkaError::AdminOp(RDKafkaErrorCode::TopicAlreadyExists)) => Ok(()),
            Err(KafkaError::AdminOp(RDKafkaErrorCode::InvalidReplicationFactor)) => {
                Err(Error::unavailable(format!(
                    "topic {topic} needs {replicas} replicas and fewer brokers run; start more \
                     brokers, or open the log for development"
                )))
            }
            Err(error) => Err(unavailable(&format!("make topic {topic}"), &error)),
        }
    }

    /// Removes a topic; a missing topic is no error.
    pub(super) async fn remove_topic(&self, topic: &str) -> Result<()> {
        let results = self.client.delete_topics(&[topic], &self.admin_options()).await;
        match outcome(results) {
            Ok(()) | Err(KafkaError::AdminOp(RDKafkaErrorCode::UnknownTopicOrPartition)) => Ok(()),
            Err(error) => Err(unavailable(&format!("remove topic {topic}"), &error)),
        }
    }

    /// Removes a partition's records below an offset.
    pub(super) async fn trim(&self, topic: &str, partition: i32, before: i64) -> Result<()> {
        let doing = format!("trim topic {topic}");
        let mut list = TopicPartitionList::new();
        let trim = async {
            list.add_partition_offset(topic, partition, rdkafka::Offset::Offset(before))?;
            let answer = self.client.delete_records(&list, &self.admin_options()).await?;
            answer.elements().first().map_or(Ok(()), |element| element.error())
        };
        trim.await.map_err(|error| unavailable(&doing, &error))
    }

    fn admin_options(&self) -> AdminOptions {
        AdminOptions::new()
            .request_timeout(Some(self.timeout))
            .operation_timeout(Some(self.timeout / 2))
    }
}

fn look(client: &Client<Context>, topic: &str, timeout: Duration) -> KafkaResult<ClusterMetadata> {
    let metadata = client.fetch_metadata(Some(topic), timeout)?;
    let brokers = metadata.brokers().iter().map(|broker| broker.id()).collect();
    let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else {
        return Ok(ClusterMetadata { brokers, topic: None });
    };
    match found.error().map(RDKafkaErrorCode::from) {
        None | Some(RDKafkaErrorCode::LeaderNotAvailable) => {}
        Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
            return Ok(ClusterMetadata { brokers, topic: None });
        }
        Some(code) => return Err(KafkaError::MetadataFetch(code)),
    }
    let partitions = found.partitions();
    let replicas = partitions.iter().map(|partition| partition.replicas().len() as u32).min();
    let topic = TopicMetadata {
        partitions: partitions.len() as u32,
        replicas: replicas.unwrap_or(0),
        is_ready: !partitions.is_empty()
            && partitions.iter().all(|partition| partition.leader() >= 0),
    };
    Ok(ClusterMetadata { brokers, topic: Some(topic) })
}

/// Returns the only result of a request about one topic.
fn outcome(results: KafkaResult<Vec<rdkafka::admin::TopicResult>>) -> KafkaResult<()> {
    match results?.into_iter().next() {
        Some(Err((_, code))) => Err(KafkaError::AdminOp(code)),
        Some(Ok(_)) | None => Ok(()),
    }
}
