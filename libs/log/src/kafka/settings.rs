//! Requirements of the change log on brokers and topics, checked before the first use.
//!
//! With other settings Kafka would silently lose, reorder or hide acknowledged entries. The log
//! therefore refuses such brokers; the error names the setting, its value, and the fix.

use std::collections::BTreeMap;

use forebay_core::{Error, Result};
use forebay_wire::entry::ENTRY_FRAME_BYTES_MAX;

use super::KafkaOptions;
use super::client::BATCH_BYTES_MAX;

/// Most bytes that Kafka adds to an entry.
const BATCH_OVERHEAD_BYTES: usize = 64 * 1024;
/// Largest entry, including the bytes that Kafka adds.
const BATCH_BYTES_NEEDED: u64 = (ENTRY_FRAME_BYTES_MAX + BATCH_OVERHEAD_BYTES) as u64;
const _: () = assert!(BATCH_BYTES_NEEDED <= BATCH_BYTES_MAX as u64);
/// Fewest replicas with which an acknowledged entry survives the loss of a zone.
const REPLICAS_MIN: u32 = 3;

/// Settings of a broker or topic by name.
pub(super) type Settings = BTreeMap<String, String>;

/// Requirement on one setting.
#[derive(Clone, Copy)]
enum Need {
    Is(&'static str),
    AtLeast(u64),
}

const OF_TOPICS: [(&str, Need); 7] = [
    ("cleanup.policy", Need::Is("delete")),
    ("retention.ms", Need::Is("-1")),
    ("retention.bytes", Need::Is("-1")),
    ("unclean.leader.election.enable", Need::Is("false")),
    ("message.timestamp.type", Need::Is("LogAppendTime")),
    ("max.message.bytes", Need::AtLeast(BATCH_BYTES_NEEDED)),
    // A record that another producer compressed with an unsupported codec would stop every reader.
    ("compression.type", Need::Is("uncompressed")),
];

const OF_BROKERS: [(&str, Need); 3] = [
    ("auto.create.topics.enable", Need::Is("false")),
    ("message.max.bytes", Need::AtLeast(BATCH_BYTES_NEEDED)),
    ("socket.request.max.bytes", Need::AtLeast(BATCH_BYTES_NEEDED)),
];

/// Returns the settings of a new topic, all set explicitly.
pub(super) fn of_new_topic(options: &KafkaOptions) -> Vec<(&'static str, String)> {
    let mut settings: Vec<_> = OF_TOPICS
        .iter()
        .map(|(name, need)| match need {
            Need::Is(value) => (*name, (*value).to_owned()),
            Need::AtLeast(_) => (*name, BATCH_BYTES_MAX.to_string()),
        })
        .collect();
    settings.push(("min.insync.replicas", options.in_sync_min().to_string()));
    settings
}

/// Refuses a topic that could lose, reorder or hide acknowledged entries.
///
/// # Errors
/// `Unsupported`, with the setting, its value, and the fix.
pub(super) fn check_topic(
    topic: &str,
    replicas: u32,
    settings: &Settings,
    options: &KafkaOptions,
) -> Result<()> {
    let in_sync = ("min.insync.replicas", Need::AtLeast(u64::from(options.in_sync_min())));
    for (name, need) in OF_TOPICS.into_iter().chain([in_sync]) {
        let found = settings.get(name).map_or("", String::as_str);
        if let Some(required) = unmet_value(need, found) {
            return Err(Error::unsupported(format!(
                "topic {topic} has {name}={found}, and the change log needs {required}; run: \
                 kafka-configs.sh --bootstrap-server {} --alter --entity-type topics \
                 --entity-name {topic} --add-config {name}={}",
                options.bootstrap_servers,
                fix(need),
            )));
        }
    }
    if replicas < REPLICAS_MIN && !options.dev {
        return Err(Error::unsupported(format!(
            "topic {topic} has a replication factor of {replicas}, and the change log needs \
             {REPLICAS_MIN}; reassign it with kafka-reassign-partitions.sh (development mode \
             accepts fewer)"
        )));
    }
    Ok(())
}

/// Refuses a broker that rejects entries of the largest size, or that creates topics on its own.
///
/// # Errors
/// `Unsupported`, with the setting, its value, and the fix.
pub(super) fn check_broker(broker: i32, settings: &Settings) -> Result<()> {
    for (name, need) in OF_BROKERS {
        let found = settings.get(name).map_or("", String::as_str);
        if let Some(required) = unmet_value(need, found) {
            return Err(Error::unsupported(format!(
                "broker {broker} has {name}={found}, and the change log needs {required}; set \
                 {name}={} in its server.properties (infra/kafka has all needed settings) and \
                 restart the broker",
                fix(need),
            )));
        }
    }
    Ok(())
}

/// Returns the required value if the found value does not meet it.
fn unmet_value(need: Need, found: &str) -> Option<String> {
    match need {
        Need::Is(value) => (found != value).then(|| value.to_owned()),
        Need::AtLeast(minimum) => {
            let is_met = found.parse::<u64>().is_ok_and(|found| found >= minimum);
            (!is_met).then(|| format!("{minimum} or more"))
        }
    }
}

fn fix(need: Need) -> String {
    match need {
        Need::Is(value) => value.to_owned(),
        Need::AtLeast(BATCH_BYTES_NEEDED) => BATCH_BYTES_MAX.to_string(),
        Need::AtLeast(minimum) => minimum.to_string(),
    }
}
