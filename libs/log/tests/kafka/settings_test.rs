//! Proves that brokers and topics with wrong settings are refused, and that the error names the
//! setting.

use forebay_core::ErrorCode;
use forebay_core::id::PartitionCount;
use forebay_log::{ChangeLog, KafkaLog, KafkaOptions};
use forebay_testkit::brokers::Brokers;

use crate::support::{AT, Admin, STORE, TOPIC_SETTINGS, at_once, entry, fixture, options, store};

const WRONG: [(&str, &str); 7] = [
    ("cleanup.policy", "compact"),
    ("retention.ms", "604800000"),
    ("retention.bytes", "1073741824"),
    ("unclean.leader.election.enable", "true"),
    ("message.timestamp.type", "CreateTime"),
    ("max.message.bytes", "1048588"),
    ("compression.type", "producer"),
];

#[tokio::test]
async fn topic_with_a_wrong_setting_is_refused_by_name() {
    let admin = Admin::new();
    for (name, value) in WRONG {
        let fixture = fixture().await;
        let topic = format!("{}.store-7", fixture.options.topic_prefix);
        admin.make(&topic, &[(name, value)]).await;
        let log = &fixture.log;
        for error in [
            log.append(AT, entry(1)).await.unwrap_err(),
            log.read(AT, forebay_core::id::Offset(0), at_once()).await.unwrap_err(),
            log.bounds(AT).await.unwrap_err(),
            log.create(STORE, PartitionCount(1)).await.unwrap_err(),
        ] {
            assert_eq!(error.code(), ErrorCode::Unsupported, "{name}: {error}");
            let message = error.message();
            assert!(message.contains(&format!("{topic} has {name}={value}")), "{message}");
            assert!(message.contains(&format!("--add-config {name}=")), "{message}");
        }
    }
}

#[tokio::test]
async fn log_with_a_wrong_control_topic_does_not_open() {
    let (admin, options) = (Admin::new(), options());
    let topic = format!("{}.control", options.topic_prefix);
    admin.make(&topic, &[("cleanup.policy", "compact")]).await;
    let error = KafkaLog::open(options).await.err().unwrap();
    assert_eq!(error.code(), ErrorCode::Unsupported);
    assert!(error.message().contains("cleanup.policy=compact"), "{error}");
}

#[tokio::test]
async fn open_refuses_one_replica_outside_development_mode() {
    let (admin, dev) = (Admin::new(), options());
    let KafkaOptions { bootstrap_servers, topic_prefix, .. } = dev;
    let options = KafkaOptions::new(bootstrap_servers, topic_prefix);
    let too_few = KafkaLog::open(options.clone()).await.err().unwrap();
    assert_eq!(too_few.code(), ErrorCode::Unavailable, "{too_few}");
    assert!(too_few.message().contains("3 replicas"), "{too_few}");
    let topic = format!("{}.control", options.topic_prefix);
    admin.make(&topic, &[]).await;
    let error = KafkaLog::open(options.clone()).await.err().unwrap();
    assert_eq!(error.code(), ErrorCode::Unsupported);
    assert!(error.message().contains("min.insync.replicas=1"), "{error}");
    admin.remove(&topic).await;
    admin.make(&topic, &[("min.insync.replicas", "2")]).await;
    let error = KafkaLog::open(options).await.err().unwrap();
    assert_eq!(error.code(), ErrorCode::Unsupported);
    assert!(error.message().contains("replication factor of 1"), "{error}");
}

#[tokio::test]
async fn valid_topic_is_accepted_whoever_created_it() {
    let fixture = fixture().await;
    let topic = format!("{}.store-7", fixture.options.topic_prefix);
    Admin::new().make(&topic, &[]).await;
    assert_eq!(fixture.log.append(AT, entry(1)).await.unwrap().offset.0, 0);
    assert_eq!(TOPIC_SETTINGS.len(), WRONG.len() + 1, "each setting has its wrong value here");
}

#[tokio::test]
async fn broker_with_a_wrong_setting_is_refused_by_name() {
    for (name, value) in [
        ("auto.create.topics.enable", "true"),
        ("message.max.bytes", "1048588"),
        ("socket.request.max.bytes", "10485760"),
    ] {
        let brokers = tokio::task::spawn_blocking(move || Brokers::start_with(1, &[(name, value)]));
        let brokers = brokers.await.unwrap().unwrap();
        let error = KafkaLog::open(KafkaOptions::dev(brokers.bootstrap(), "a")).await.err();
        let error = error.unwrap();
        assert_eq!(error.code(), ErrorCode::Unsupported);
        let message = error.message();
        assert!(message.contains(&format!("broker 1 has {name}={value}")), "{message}");
    }
}

#[tokio::test]
async fn wrongly_recreated_topic_is_refused_when_the_log_reopens() {
    let (fixture, topic) = store().await;
    fixture.log.append(AT, entry(1)).await.unwrap();
    let admin = Admin::new();
    admin.remove(&topic).await;
    admin.make(&topic, &[("message.timestamp.type", "CreateTime")]).await;
    let reopened = KafkaLog::open(fixture.options.clone()).await.unwrap();
    let error = reopened.append(AT, entry(2)).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unsupported, "{error}");
}
