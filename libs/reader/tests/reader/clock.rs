//! Proves the behaviour of reads when the reader's or the log's clock jumps, forward or back: their
//! age, expiry, and a served position that never falls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_core::change::Verb;
use forebay_core::clock::Clock;
use forebay_core::id::Position;
use forebay_core::{Error, ErrorCode};
use forebay_log::MemoryLog;
use forebay_reader::Reader;
use forebay_wire::token::Token;

use crate::world::checkpoints::{checkpointed, disk, end, open, status};
use crate::world::{SECOND, TokioClock, World, age, change};

const MINUTE: Duration = Duration::from_secs(60);

/// Returns a world whose log has a clock that the test may turn, as it may turn the reader's.
async fn world() -> (World, Arc<TokioClock>) {
    let log_clock = TokioClock::new();
    (World::over(Arc::new(MemoryLog::new(log_clock.clone())), 1).await, log_clock)
}

fn micros(duration: Duration) -> i64 {
    duration.as_micros() as i64
}

/// Appends a heartbeat and waits for it; after that no data is older than the heartbeat.
async fn beat(world: &World, reader: &Reader) {
    let appended = world.heartbeat(0).await;
    let token = crate::world::token(0, crate::world::LOG, appended.offset.0);
    reader.await_token(&token, 10 * SECOND).await.unwrap();
}

fn read_with_bound(reader: &Reader, bound: Duration) -> Result<(), Error> {
    reader.read_local(Some(bound), |view| view.get_document("ann")).map(drop)
}

/// Returns the reason of a stale read; empty for a read that is answered.
fn reason(reader: &Reader, bound: Duration) -> &'static str {
    match read_with_bound(reader, bound) {
        Ok(()) => "",
        Err(error) => {
            assert_eq!(error.code(), ErrorCode::Stale, "{error}");
            let reasons = ["reason clock", "reason age"];
            reasons.into_iter().find(|reason| error.message().contains(reason)).unwrap()
        }
    }
}

#[tokio::test(start_paused = true)]
async fn reader_with_a_jumped_clock_is_stale_until_the_clocks_agree() {
    for jump_us in [micros(20 * SECOND), -micros(20 * SECOND)] {
        let (world, _) = world().await;
        world.put("ann", 1).await;
        let reader = world.caught_up().await;
        beat(&world, &reader).await;
        assert_eq!(reason(&reader, 5 * SECOND), "");
        world.clock.jump_micros(jump_us);
        // A clock that is ahead overstates the age at once; the next measurement finds one that is
        // late.
        if jump_us > 0 {
            assert_eq!(reason(&reader, 5 * SECOND), "reason age");
        }
        tokio::time::sleep(MINUTE + SECOND).await;
        beat(&world, &reader).await;
        for (bound, expected) in [(5, "reason clock"), (39, "reason clock"), (60, "")] {
            assert_eq!(reason(&reader, bound * SECOND), expected, "{jump_us} {bound}");
        }
        let error = status(&reader).clock_error.unwrap();
        assert!(error >= 20 * SECOND && error < 21 * SECOND, "{error:?}");
        assert!(reader.get_document("ann").is_ok());

        world.clock.jump_micros(-jump_us);
        tokio::time::sleep(MINUTE + SECOND).await;
        beat(&world, &reader).await;
        assert_eq!(reason(&reader, 5 * SECOND), "");
        assert_eq!(status(&reader).counts.rebuilds, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn jumped_clock_of_the_log_is_distinguished_from_a_late_log() {
    for jump_us in [micros(20 * SECOND), -micros(20 * SECOND)] {
        let (world, log_clock) = world().await;
        world.put("ann", 1).await;
        let reader = world.caught_up().await;
        log_clock.jump_micros(jump_us);
        // The next measurement finds the jump.
        tokio::time::sleep(MINUTE + SECOND).await;
        beat(&world, &reader).await;
        assert_eq!(reason(&reader, 5 * SECOND), "reason clock");
        assert_eq!(reason(&reader, MINUTE), "");
        log_clock.jump_micros(-jump_us);
        tokio::time::sleep(MINUTE + SECOND).await;
        beat(&world, &reader).await;
        assert_eq!(reason(&reader, 5 * SECOND), "");
    }
}

/// Puts a document with this time to live; returns its token.
async fn put_for(world: &World, key: &str, ttl: Duration) -> Token {
    let mut put_change = change(key, Verb::Put, &[("age", 1)]);
    put_change.ttl_us = Some(micros(ttl));
    world.write(put_change).await
}

#[tokio::test(start_paused = true)]
async fn value_expires_by_the_later_of_two_clocks_to_the_microsecond() {
    let (world, log_clock) = world().await;
    let reader = world.caught_up().await;
    let token = put_for(&world, "ann", 10 * SECOND).await;
    reader.await_token(&token, SECOND).await.unwrap();
    let expires = status(&reader).age.unwrap();
    assert!(expires < SECOND, "{expires:?}");

    // The reader's clock advances to the last microsecond before the expiry, past it, and back.
    world.clock.jump_micros(micros(10 * SECOND) - 1 - passed_since_put(&world, &log_clock));
    assert_eq!(age(&reader, "ann").unwrap(), Some(1));
    world.clock.jump_micros(1);
    assert_eq!(age(&reader, "ann").unwrap(), None);
    world.clock.jump_micros(-micros(MINUTE));
    assert_eq!(age(&reader, "ann").unwrap(), Some(1), "neither clock has come to its end");

    // The log's clock passes the expiry: from then on no reader's clock brings the document back.
    log_clock.jump_micros(micros(11 * SECOND));
    beat(&world, &reader).await;
    assert_eq!(age(&reader, "ann").unwrap(), None);
    log_clock.jump_micros(-micros(2 * MINUTE));
    beat(&world, &reader).await;
    assert_eq!(age(&reader, "ann").unwrap(), None, "partition time never falls");

    // A time to live starts at partition time, although the log's clock went back.
    let token = put_for(&world, "bob", 5 * SECOND).await;
    reader.await_token(&token, SECOND).await.unwrap();
    assert_eq!(age(&reader, "bob").unwrap(), Some(1));
    let reader_at_head = world.caught_up().await;
    assert_eq!(
        (age(&reader_at_head, "ann").unwrap(), age(&reader_at_head, "bob").unwrap()),
        (None, Some(1))
    );
    log_clock.jump_micros(micros(2 * MINUTE + 5 * SECOND));
    beat(&world, &reader).await;
    assert_eq!(age(&reader, "bob").unwrap(), None);
}

/// Returns the microseconds between the log's clock, which has not moved since the put, and the
/// reader's.
fn passed_since_put(world: &World, log_clock: &TokioClock) -> i64 {
    world.clock.now().micros_since(log_clock.now())
}

#[tokio::test(start_paused = true)]
async fn positions_never_decrease_during_clock_jumps_and_restarts() {
    let (world, log_clock) = world().await;
    let world = Arc::new(world);
    let disk = disk();
    let mut served_position: Option<Position> = None;
    let mut last = 0;
    for round in 0..12_i64 {
        let reader = open(&world, &disk).await;
        let stop = Arc::new(AtomicBool::new(false));
        let watching = tokio::spawn(watch(reader.clone(), stop.clone(), served_position));
        for step in 0..4 {
            let jump_us =
                micros(SECOND) * (1 + round) * if (round + step) % 2 == 0 { 7 } else { -7 };
            world.clock.jump_micros(jump_us);
            log_clock.jump_micros(-jump_us / 2);
            last = 4 * round + step;
            let put_token = world.put("ann", last).await;
            reader.await_token(&put_token, 30 * SECOND).await.unwrap();
            assert_eq!(age(&reader, "ann").unwrap(), Some(last));
        }
        checkpointed(&reader).await;
        stop.store(true, Ordering::SeqCst);
        served_position = watching.await.unwrap();
        assert_eq!(status(&reader).counts.rebuilds, 0);
        end(reader).await;
    }
    assert_eq!(last, 47);
    assert_eq!(served_position.unwrap().offset.0, 48, "behind the log header entry, one put each");
}

/// Polls the position until `stop`; returns the last one.
async fn watch(
    reader: Reader,
    stop: Arc<AtomicBool>,
    mut before: Option<Position>,
) -> Option<Position> {
    while !stop.load(Ordering::SeqCst) {
        let position = status(&reader).position;
        // There is no position before the checkpoint is opened.
        if position.is_some() {
            assert!(position >= before, "{position:?} behind {before:?}");
            before = position;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    before
}
