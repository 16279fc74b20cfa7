//! The settings of a process whose change log is Kafka.

use forebay_core::{Error, Result};
use forebay_log::kafka::KafkaOptions;

/// Kafka permits 249 bytes for a topic name; the longest suffix is a store id of 20 digits.
const TOPIC_PREFIX_BYTES_MAX: usize = 200;
/// Default of the prefix of the topics.
const DEFAULT_TOPIC_PREFIX: &str = "forebay";

/// Addresses of the brokers, and the prefix of their topics.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct KafkaSettings {
    /// Addresses of some of Kafka's brokers, separated by commas; clients discover the others.
    #[arg(long, env = "FOREBAY_BROKERS", value_delimiter = ',', value_name = "HOST:PORT")]
    pub brokers: Vec<String>,
    /// Prefix of every topic: `PREFIX.control`, `PREFIX.store-7`.
    #[arg(
        long,
        env = "FOREBAY_TOPIC_PREFIX",
        value_name = "PREFIX",
        default_value = DEFAULT_TOPIC_PREFIX,
    )]
    pub topic_prefix: String,
}

impl Default for KafkaSettings {
    fn default() -> Self {
        Self { brokers: Vec::new(), topic_prefix: DEFAULT_TOPIC_PREFIX.to_owned() }
    }
}

impl KafkaSettings {
    /// Returns the options of the log if the settings are valid.
    ///
    /// # Errors
    /// `InvalidArgument`, with the setting to change.
    pub fn options(&self) -> Result<KafkaOptions> {
        self.check()?;
        Ok(KafkaOptions::new(self.brokers.join(","), &self.topic_prefix))
    }

    /// Returns the options of the log for development: one broker is enough, so its loss may lose
    /// an acknowledged write.
    ///
    /// # Errors
    /// As [`Self::options`].
    pub fn dev_options(&self) -> Result<KafkaOptions> {
        self.check()?;
        Ok(KafkaOptions::dev(self.brokers.join(","), &self.topic_prefix))
    }

    fn check(&self) -> Result<()> {
        if self.brokers.is_empty() {
            let message = "the change log is Kafka, but no brokers are set; set --brokers \
                (FOREBAY_BROKERS) to HOST:PORT of one of them, such as 127.0.0.1:9092 \
                (infra/kafka shows how to start one)";
            return Err(Error::invalid_argument(message));
        }
        if let Some(broker) = self.brokers.iter().find(|broker| !is_address(broker)) {
            let message = format!(
                "broker `{broker}` is not an address; give HOST:PORT, such as 127.0.0.1:9092"
            );
            return Err(Error::invalid_argument(message));
        }
        if !is_topic_prefix(&self.topic_prefix) {
            let message = format!(
                "topic prefix `{}` cannot begin the name of a Kafka topic; use 1 to \
                 {TOPIC_PREFIX_BYTES_MAX} letters, digits, dots, dashes and underscores",
                self.topic_prefix
            );
            return Err(Error::invalid_argument(message));
        }
        Ok(())
    }
}

/// Returns whether a text is `HOST:PORT`; the host is a name or an address, in brackets for IPv6.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_one_word = !host.is_empty() && !host.contains([',', ' ', '/']);
    is_one_word && port.parse::<u16>().is_ok_and(|port| port > 0)
}

fn is_topic_prefix(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=TOPIC_PREFIX_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(broker: &str, topic_prefix: &str) -> KafkaSettings {
        let brokers = vec!["127.0.0.1:9092".to_owned(), broker.to_owned()];
        KafkaSettings { brokers, topic_prefix: topic_prefix.to_owned() }
    }

    #[test]
    fn invalid_settings_are_refused_by_name() {
        let good = settings("[::1]:9092", "a.b-c_9").options().unwrap();
        assert_eq!(good.bootstrap_servers, "127.0.0.1:9092,[::1]:9092");
        for (broker, prefix, quoted_value) in [
            ("host", "forebay", "`host`"),
            (":9092", "forebay", "`:9092`"),
            ("host:0", "forebay", "`host:0`"),
            ("http://host:9092", "forebay", "`http://host:9092`"),
            ("a:1,b:2", "forebay", "`a:1,b:2`"),
            ("host:9092", "", "``"),
            ("host:9092", "a b", "`a b`"),
        ] {
            let error = settings(broker, prefix).options().unwrap_err();
            assert!(error.to_string().contains(quoted_value), "{error}");
        }
    }

    #[test]
    fn missing_brokers_are_refused_with_the_setting_to_use() {
        let error = KafkaSettings::default().options().unwrap_err();
        assert!(error.to_string().contains("set --brokers (FOREBAY_BROKERS) to"), "{error}");
    }
}
