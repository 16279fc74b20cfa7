//! The replay: one event per rating, in time order per user, and one document per movie; then the
//! wait until the views' values cover all events. Measures each phase.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay::writes::{Acknowledgement, StreamOptions, Token, Write};
use forebay::{Client, Store};
use forebay_demo::{Failure, Times, say};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::features::Features;
use crate::pulse::Pulse;
use crate::ratings::Rating;

/// Changes in flight per store: enough to fill requests, few enough that none waits for long.
const IN_FLIGHT: usize = 2_048;
/// Upper bound of the last ratings that go as single writes; at most a tenth of all.
const UNARY_MAX: usize = 1_000;
/// Single writes in flight per store; the writes of one key take one lane, so they keep their
/// order.
const LANES: i64 = 8;
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// Time limit of one write, and of the end of a stream.
const DEADLINE: Duration = Duration::from_secs(60);

/// The stream of ratings or the store of movies, and what to write there for a rating.
#[derive(Clone)]
struct Target {
    store: Store,
    is_of: fn(&Rating) -> bool,
    key: fn(&Rating) -> i64,
    write: fn(&Rating, &Store) -> Write,
}

/// Counts and times of the writes acknowledged so far.
struct Tally {
    total: u64,
    inner: Mutex<Inner>,
}

struct Inner {
    written: u64,
    /// Times of the current phase.
    times: Times,
}

impl Tally {
    fn new(total: u64) -> Result<Arc<Self>, Failure> {
        let inner = Mutex::new(Inner { written: 0, times: Times::new()? });
        Ok(Arc::new(Self { total, inner }))
    }

    fn with_inner<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        change(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn acknowledged(&self, sent_at: Instant) {
        let time = sent_at.elapsed();
        self.with_inner(|inner| {
            inner.written += 1;
            inner.times.record(time);
        });
    }

    /// Ends the phase that began at `began`: returns its figures, and resets the times for the
    /// next.
    fn end_phase(&self, began: Instant) -> Result<Value, Failure> {
        let seconds = began.elapsed().as_secs_f64();
        let next = Times::new()?;
        let times = self.with_inner(|inner| std::mem::replace(&mut inner.times, next));
        let mut figures = acknowledgement(&times);
        figures["writes"] = json!(times.count());
        figures["writes_per_s"] = json!(times.count() as f64 / seconds);
        Ok(figures)
    }
}

fn acknowledgement(times: &Times) -> Value {
    json!({ "ack_p50_us": times.micros(0.5), "ack_p99_us": times.micros(0.99) })
}

/// Replays the ratings, waits for the views' values, and prints the figures and the tokens that
/// readers must reach.
pub async fn replay(client: &Client, ratings: Vec<Rating>, plant: bool) -> Result<(), Failure> {
    let (is_of, key, write) = (|_: &_| true, |rating: &Rating| rating.user, Rating::event);
    let events = Target { store: client.store("ratings").await?, is_of, key, write };
    let (is_of, key, write) =
        (|rating: &Rating| rating.is_first, |rating: &Rating| rating.movie, Rating::movie);
    let movies = Target { store: client.store("movies").await?, is_of, key, write };
    let movie_features = Features::open(client, "movies", "rating_count").await?;
    let user_features = Features::open(client, "users", "rating_count").await?;
    let (stop, stop_receiver) = oneshot::channel();
    let pulse = tokio::spawn(Pulse::open(client).await?.run(stop_receiver));
    let (movie_keys, user_keys): (BTreeSet<_>, BTreeSet<_>) =
        ratings.iter().map(|rating| (rating.movie, rating.user)).unzip();
    let ratings: Arc<[Rating]> = ratings.into();
    let tally = Tally::new((ratings.len() + movie_keys.len()) as u64)?;
    let reporter = tokio::spawn(report(Arc::clone(&tally)));

    let (movies_token, mut figures) = write_all([&events, &movies], &ratings, &tally).await?;
    let mut inserted = ratings.len() as i64;
    if plant {
        ratings[0].event(&events.store).send().await?;
        inserted += 1;
    }
    drop(stop);
    let sample_times = pulse.await??;
    movie_features.await_events(&movie_keys, inserted).await?;
    user_features.await_events(&user_keys, inserted).await?;
    reporter.abort();

    let mut movies_all = movie_features.token()?;
    movies_all.merge(&movies_token)?;
    let users_all = user_features.token()?;
    figures["tokens"] = json!({
        "movies": hex::encode(movies_all.encode()), "users": hex::encode(users_all.encode()),
    });
    figures["features"] = json!({
        "samples": sample_times.count(),
        "p50_us": sample_times.micros(0.5),
        "p99_us": sample_times.micros(0.99),
    });
    say("done", figures)?;
    Ok(())
}

/// Writes everything; returns the token of the movies, and the figures of both phases.
async fn write_all(
    targets: [&Target; 2],
    ratings: &Arc<[Rating]>,
    tally: &Arc<Tally>,
) -> Result<(Token, Value), Failure> {
    let streamed = ratings.len() - UNARY_MAX.min(ratings.len() / 10);
    let began = Instant::now();
    let tasks = targets.map(|target| {
        tokio::spawn(stream(target.clone(), Arc::clone(ratings), streamed, tally.clone()))
    });
    let [_, mut token] = joined(tasks).await?;
    let stream = tally.end_phase(began)?;

    let began = Instant::now();
    let tasks = targets.map(|target| {
        tokio::spawn(unary(target.clone(), Arc::clone(ratings), streamed, tally.clone()))
    });
    let [_, last] = joined(tasks).await?;
    let unary = tally.end_phase(began)?;
    token.merge(&last)?;
    Ok((token, json!({ "stream": stream, "unary": unary })))
}

async fn joined<const N: usize>(
    tasks: [JoinHandle<Result<Token, Failure>>; N],
) -> Result<[Token; N], Failure> {
    let tokens = futures::future::try_join_all(tasks).await?;
    let tokens = tokens.into_iter().collect::<Result<Vec<_>, _>>()?;
    tokens.try_into().map_err(|_| "a task ended without its token".into())
}

/// Prints the progress until the task is aborted.
async fn report(tally: Arc<Tally>) -> std::io::Result<()> {
    let (mut last_at, mut last_written) = (Instant::now(), 0);
    loop {
        tokio::time::sleep(PROGRESS_INTERVAL).await;
        let now = Instant::now();
        let (written, mut progress) =
            tally.with_inner(|inner| (inner.written, acknowledgement(&inner.times)));
        let seconds = (now - last_at).as_secs_f64();
        progress["written"] = json!(written);
        progress["total"] = json!(tally.total);
        progress["writes_per_s"] = json!((written - last_written) as f64 / seconds);
        say("progress", progress)?;
        (last_at, last_written) = (now, written);
    }
}

/// Sends the first ratings through a write stream, which keeps the order of each partition.
async fn stream(
    target: Target,
    ratings: Arc<[Rating]>,
    count: usize,
    tally: Arc<Tally>,
) -> Result<Token, Failure> {
    let options = StreamOptions::default().changes_max(IN_FLIGHT);
    let mut stream = target.store.write_stream(options)?.deadline(DEADLINE);
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    let collector = tokio::spawn(collect(receiver, tally));
    let mut sent = 0;
    for rating in ratings[..count].iter().filter(|rating| (target.is_of)(rating)) {
        let acknowledgement = stream.send((target.write)(rating, &target.store)).await?;
        if sender.send((Instant::now(), acknowledgement)).await.is_err() {
            break; // The collector has failed, and its result says why.
        }
        sent += 1;
    }
    drop(sender);
    collector.await??;
    let summary = stream.close().await?;
    if summary.resolved != sent {
        return Err(format!("{} of {sent} writes are resolved", summary.resolved).into());
    }
    Ok(summary.token)
}

/// Receives each acknowledgement as it arrives, in any order.
async fn collect(
    mut sent: mpsc::Receiver<(Instant, Acknowledgement)>,
    tally: Arc<Tally>,
) -> Result<(), Failure> {
    let mut pending = FuturesUnordered::new();
    let mut is_open = true;
    loop {
        tokio::select! {
            next = sent.recv(), if is_open => match next {
                Some((at, acknowledgement)) => {
                    pending.push(async move { acknowledgement.await.map(|_| at) });
                }
                None => is_open = false,
            },
            Some(heard) = pending.next() => tally.acknowledged(heard?),
            else => return Ok(()),
        }
    }
}

/// Sends the other ratings as single writes, several at a time.
async fn unary(
    target: Target,
    ratings: Arc<[Rating]>,
    from: usize,
    tally: Arc<Tally>,
) -> Result<Token, Failure> {
    let lanes = (0..LANES).map(|lane| {
        let (target, ratings, tally) = (target.clone(), Arc::clone(&ratings), Arc::clone(&tally));
        tokio::spawn(async move {
            let mut token = Token::new(target.store.definition().store);
            let is_of_lane = |rating: &&Rating| {
                (target.is_of)(rating) && (target.key)(rating).rem_euclid(LANES) == lane
            };
            for rating in ratings[from..].iter().filter(is_of_lane) {
                let sent_at = Instant::now();
                let outcome =
                    (target.write)(rating, &target.store).deadline(DEADLINE).send().await?;
                tally.acknowledged(sent_at);
                token.merge(&outcome.token)?;
            }
            Ok::<_, Failure>(token)
        })
    });
    let mut token = Token::new(target.store.definition().store);
    for lane in futures::future::try_join_all(lanes).await? {
        token.merge(&lane?)?;
    }
    Ok(token)
}
