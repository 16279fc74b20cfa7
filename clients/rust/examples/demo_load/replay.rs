//! The replay: one change per rating and store, in time order per document, with figures.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay::{Acknowledgement, Client, Store, StreamOptions, Token, Write};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::demo::{Failure, Times, say};
use crate::ratings::Rating;

/// Changes in flight per store: enough to fill requests, few enough that none waits for long.
const IN_FLIGHT: usize = 2_048;
/// The last ratings, at most this many and at most a tenth, go as single writes.
const UNARY_MAX: usize = 1_000;
/// Single writes in flight per store; those of one document take one lane, so they keep their
/// order.
const LANES: i64 = 8;
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// Time that one write, or the end of a stream, may take.
const DEADLINE: Duration = Duration::from_secs(60);

/// One of the two stores, and what a rating means to it.
#[derive(Clone)]
struct Target {
    store: Store,
    key: fn(&Rating) -> i64,
    write: fn(&Rating, &Store) -> Write,
}

/// What was acknowledged so far, and how long it took.
struct Tally {
    total: u64,
    inner: Mutex<Inner>,
}

struct Inner {
    written: u64,
    /// Of the phase that runs.
    times: Times,
}

impl Tally {
    fn new(total: u64) -> Result<Arc<Self>, Failure> {
        let inner = Mutex::new(Inner { written: 0, times: Times::new()? });
        Ok(Arc::new(Self { total, inner }))
    }

    fn with<T>(&self, with: impl FnOnce(&mut Inner) -> T) -> T {
        with(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn acknowledged(&self, since: Instant) {
        let time = since.elapsed();
        self.with(|inner| {
            inner.written += 1;
            inner.times.record(time);
        });
    }

    /// Ends a phase that began then: its figures, and empty ones for the next.
    fn end_phase(&self, began: Instant) -> Result<Value, Failure> {
        let seconds = began.elapsed().as_secs_f64();
        let next = Times::new()?;
        let times = self.with(|inner| std::mem::replace(&mut inner.times, next));
        let mut figures = acknowledgement(&times);
        figures["writes"] = json!(times.count());
        figures["writes_per_s"] = json!(times.count() as f64 / seconds);
        Ok(figures)
    }
}

fn acknowledgement(times: &Times) -> Value {
    json!({ "ack_p50_us": times.micros(0.5), "ack_p99_us": times.micros(0.99) })
}

/// Replays the ratings and says the figures and the tokens of everything written.
pub async fn replay(client: &Client, ratings: Vec<Rating>, plant: bool) -> Result<(), Failure> {
    let movies = client.store("movies").await?;
    let users = client.store("users").await?;
    let by_movie: Target =
        Target { store: movies.clone(), key: |rating| rating.movie, write: Rating::of_movie };
    let by_user = Target { store: users, key: |rating| rating.user, write: Rating::of_user };
    let ratings: Arc<[Rating]> = ratings.into();
    let streamed = ratings.len() - UNARY_MAX.min(ratings.len() / 10);
    let tally = Tally::new(2 * ratings.len() as u64)?;
    let reporter = tokio::spawn(report(Arc::clone(&tally)));

    let began = Instant::now();
    let tasks = [&by_movie, &by_user]
        .map(|of| tokio::spawn(stream(of.clone(), Arc::clone(&ratings), streamed, tally.clone())));
    let [mut movies_token, mut users_token] = joined(tasks).await?;
    let stream = tally.end_phase(began)?;

    let began = Instant::now();
    let tasks = [&by_movie, &by_user]
        .map(|of| tokio::spawn(unary(of.clone(), Arc::clone(&ratings), streamed, tally.clone())));
    let [movies_unary, users_unary] = joined(tasks).await?;
    let unary = tally.end_phase(began)?;
    reporter.abort();
    movies_token.merge(&movies_unary)?;
    users_token.merge(&users_unary)?;

    if plant {
        let written = ratings[0].planted(&movies).send().await?;
        movies_token.merge(&written.token)?;
    }
    let tokens = json!({ "movies": hex(&movies_token), "users": hex(&users_token) });
    say("done", json!({ "tokens": tokens, "stream": stream, "unary": unary }))?;
    Ok(())
}

async fn joined<const N: usize>(
    tasks: [JoinHandle<Result<Token, Failure>>; N],
) -> Result<[Token; N], Failure> {
    let tokens = futures::future::try_join_all(tasks).await?;
    let tokens = tokens.into_iter().collect::<Result<Vec<_>, _>>()?;
    tokens.try_into().map_err(|_| "a task ended without its token".into())
}

/// Says the progress until it is aborted.
async fn report(tally: Arc<Tally>) -> std::io::Result<()> {
    let (mut last_at, mut last_written) = (Instant::now(), 0);
    loop {
        tokio::time::sleep(PROGRESS_INTERVAL).await;
        let at = Instant::now();
        let (written, mut progress) =
            tally.with(|inner| (inner.written, acknowledgement(&inner.times)));
        let seconds = (at - last_at).as_secs_f64();
        progress["written"] = json!(written);
        progress["total"] = json!(tally.total);
        progress["writes_per_s"] = json!((written - last_written) as f64 / seconds);
        say("progress", progress)?;
        (last_at, last_written) = (at, written);
    }
}

/// Sends the first ratings through a write stream, which keeps the order of each partition.
async fn stream(
    of: Target,
    ratings: Arc<[Rating]>,
    count: usize,
    tally: Arc<Tally>,
) -> Result<Token, Failure> {
    let options = StreamOptions { changes_max: IN_FLIGHT, ..StreamOptions::default() };
    let mut stream = of.store.write_stream(options)?.with_deadline(DEADLINE);
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    let collector = tokio::spawn(collect(receiver, tally));
    for rating in &ratings[..count] {
        let acknowledgement = stream.send((of.write)(rating, &of.store)).await?;
        if sender.send((Instant::now(), acknowledgement)).await.is_err() {
            break; // The collector has failed, and says why.
        }
    }
    drop(sender);
    collector.await??;
    let summary = stream.finish().await?;
    if summary.settled != count as u64 {
        return Err(format!("{} of {count} writes are settled", summary.settled).into());
    }
    Ok(summary.token)
}

/// Hears each acknowledgement as it comes, in whatever order.
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
    of: Target,
    ratings: Arc<[Rating]>,
    from: usize,
    tally: Arc<Tally>,
) -> Result<Token, Failure> {
    let lanes = (0..LANES).map(|lane| {
        let (of, ratings, tally) = (of.clone(), Arc::clone(&ratings), Arc::clone(&tally));
        tokio::spawn(async move {
            let mut token = Token::new(of.store.definition().store);
            let ours = |rating: &&Rating| (of.key)(rating).rem_euclid(LANES) == lane;
            for rating in ratings[from..].iter().filter(ours) {
                let at = Instant::now();
                let written = (of.write)(rating, &of.store).deadline(DEADLINE).send().await?;
                tally.acknowledged(at);
                token.merge(&written.token)?;
            }
            Ok::<_, Failure>(token)
        })
    });
    let mut token = Token::new(of.store.definition().store);
    for lane in futures::future::try_join_all(lanes).await? {
        token.merge(&lane?)?;
    }
    Ok(token)
}

fn hex(token: &Token) -> String {
    token.encode().iter().map(|byte| format!("{byte:02x}")).collect()
}
