//! Proves that the test brokers serve, and that kill, stop and restart work.
#![cfg(feature = "brokers")]

use std::net::TcpStream;

use forebay_testkit::brokers::Brokers;

fn serves(brokers: &Brokers, place: usize) -> bool {
    let bootstrap = brokers.bootstrap();
    TcpStream::connect(bootstrap.split(',').nth(place).unwrap()).is_ok()
}

#[test]
fn single_broker_serves_until_killed_and_after_its_restart() {
    let brokers = Brokers::start(1).unwrap();
    assert!(serves(&brokers, 0));
    brokers.kill(1).unwrap();
    assert!(!serves(&brokers, 0));
    brokers.restart(1).unwrap();
    assert!(serves(&brokers, 0));
    brokers.stop(1).unwrap();
    assert!(!serves(&brokers, 0));
    assert!(brokers.kill(2).unwrap_err().contains("no broker 2"));
}

#[test]
fn two_of_three_brokers_serve_while_one_is_down() {
    let brokers = Brokers::start(3).unwrap();
    brokers.kill(2).unwrap();
    assert!(serves(&brokers, 0) && !serves(&brokers, 1) && serves(&brokers, 2));
    brokers.restart(2).unwrap();
    assert!(serves(&brokers, 1));
}

#[test]
fn setting_refused_by_kafka_fails_the_start_with_kafkas_message() {
    let problem = Brokers::start_with(1, &[("log.cleanup.policy", "shred")]).err().unwrap();
    assert!(problem.contains("shred"), "{problem}");
}
