//! The simulated applications: each writes keys of its own, one change after the other, and reads
//! through the shared readers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay::{BatchOutcome, Client, PendingWrite, Store, Token, Write, WriteError, WriteOutcome};
use forebay_core::ErrorCode;
use forebay_core::entropy::{Entropy, SeededEntropy};
use forebay_reader::Reader;

use super::expected::{Expected, Fields, State};
use super::readers::{SimReader, read_after, read_local};
use super::world::{Plant, STORE, World};

/// Keys that one application owns.
const KEYS: u64 = 4;
/// Attempts to settle one change; more would mean that a fault has not been healed.
const ATTEMPTS_MAX: usize = 200;
const RETRY_WAIT: Duration = Duration::from_millis(200);

/// What the applications of one run share.
pub(crate) struct Shared {
    pub(crate) world: World,
    pub(crate) expected: Mutex<Expected>,
    pub(crate) readers: Mutex<Vec<SimReader>>,
    /// The token of everything acknowledged.
    pub(crate) token: Mutex<Option<Token>>,
}

/// Locks what no thread but this one ever holds.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One application.
pub(crate) struct Application {
    shared: Arc<Shared>,
    number: u64,
    entropy: SeededEntropy,
    client: Client,
    revision: i64,
}

impl Application {
    pub(crate) fn new(shared: Arc<Shared>, seed: u64, number: u64) -> Result<Self, String> {
        let entropy = SeededEntropy::new(seed ^ ((16 + number) << 48));
        let client = shared.world.client().map_err(|error| error.to_string())?;
        Ok(Self { shared, number, entropy, client, revision: 0 })
    }

    fn draw(&self, bound: u64) -> u64 {
        self.entropy.next_u64().unwrap_or_default() % bound.max(1)
    }

    fn note(&self, what: &str) {
        self.shared.world.note(format!("application {}: {what}", self.number));
    }

    /// Makes this many operations.
    ///
    /// # Errors
    /// What broke a rule.
    pub(crate) async fn run(mut self, operations: usize) -> Result<(), String> {
        let store = self.open_store().await?;
        for _ in 0..operations {
            tokio::time::sleep(Duration::from_micros(500 + self.draw(9_500))).await;
            match self.draw(10) {
                0..6 => self.write_one(&store).await,
                6 => self.write_batch(&store).await,
                _ => self.read(),
            }?;
        }
        Ok(())
    }

    async fn open_store(&self) -> Result<Store, String> {
        for _ in 0..ATTEMPTS_MAX {
            match self.client.store(STORE).await {
                Ok(store) => return Ok(store),
                Err(error) => self.note(&format!("the store does not open: {error}")),
            }
            tokio::time::sleep(RETRY_WAIT).await;
        }
        Err("the store never opened".to_owned())
    }

    fn own_key(&self) -> i64 {
        (self.number * KEYS + self.draw(KEYS)) as i64
    }

    /// A random change of a key, and what it makes of the key's newest state.
    fn change(&mut self, store: &Store, key: i64) -> (Write, State) {
        self.revision += 1;
        let revision = self.revision * 16 + self.number as i64;
        let present = lock(&self.shared.expected).key(key).newest().clone();
        let by = 1 + self.draw(5) as i64;
        match self.draw(10) {
            0 => (store.delete(key), None),
            1 | 2 => {
                let note = format!("note {revision}");
                let write = store.put(key).set("revision", revision).set("note", note.as_str());
                (write, Some(Fields { revision, total: 0, note: Some(note) }))
            }
            3 => {
                let fields = Fields { revision, note: None, ..present.unwrap_or_default() };
                (store.upsert(key).set("revision", revision).remove_field("note"), Some(fields))
            }
            _ => {
                let before = present.unwrap_or_default();
                let fields = Fields { revision, total: before.total + by, ..before };
                let write = store.upsert(key).set("revision", revision).increment("total", by);
                (write, Some(fields))
            }
        }
    }

    async fn write_one(&mut self, store: &Store) -> Result<(), String> {
        let key = self.own_key();
        let (write, next) = self.change(store, key);
        self.note(&format!("writes key {key}: {next:?}"));
        lock(&self.shared.expected).key(key).begin(next);
        let outcome: WriteOutcome = self.settle(|| write.clone().send()).await?;
        let mut token = outcome.token;
        if self.shared.world.plant() == Some(Plant::SendsTwice) && self.draw(20) == 0 {
            let again: WriteOutcome = self.settle(|| write.clone().send()).await?;
            token = again.token;
        }
        self.acknowledged(&[key], &token)?;
        if self.draw(2) == 0 {
            self.read_newest(key, &token).await?;
        }
        Ok(())
    }

    async fn write_batch(&mut self, store: &Store) -> Result<(), String> {
        let first = self.number * KEYS;
        let keys: Vec<i64> = (first..first + 1 + self.draw(KEYS)).map(|key| key as i64).collect();
        let mut writes = Vec::new();
        for key in &keys {
            let (write, next) = self.change(store, *key);
            self.note(&format!("writes key {key} in a batch: {next:?}"));
            lock(&self.shared.expected).key(*key).begin(next);
            writes.push(write);
        }
        let mut all: Option<Token> = None;
        // What the writer surely refused, and only that, is sent anew.
        for _ in 0..ATTEMPTS_MAX {
            let send = || async {
                let mut batch = store.batch();
                for write in &writes {
                    batch.add(write.clone())?;
                }
                batch.send().await
            };
            let outcome: BatchOutcome = self.settle(send).await?;
            match all.as_mut() {
                Some(all) => all.merge(&outcome.token).map_err(|error| error.to_string())?,
                None => all = Some(outcome.token),
            }
            let results = outcome.results.into_iter();
            writes =
                writes.into_iter().zip(results).filter(|(_, r)| r.is_err()).map(|w| w.0).collect();
            if writes.is_empty() {
                break;
            }
            tokio::time::sleep(RETRY_WAIT).await;
        }
        match all {
            Some(token) if writes.is_empty() => self.acknowledged(&keys, &token),
            _ => Err("a batch never settled".to_owned()),
        }
    }

    /// Sends until the change is acknowledged: the same write where there is one to retry.
    async fn settle<T, F>(&self, send: impl Fn() -> F) -> Result<T, String>
    where
        F: Future<Output = Result<T, WriteError>>,
        T: Settled,
    {
        let mut pending = None;
        for _ in 0..ATTEMPTS_MAX {
            let result = match pending.take() {
                Some(pending) => T::retry(pending).await,
                None => send().await,
            };
            let error = match result {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            };
            let code = error.code();
            self.note(&format!("is not settled: {code:?}"));
            self.shared.world.trace.fired(unsettled(code), 1);
            if matches!(code, ErrorCode::InvalidArgument | ErrorCode::NotFound) {
                return Err(format!("a write was refused: {error}"));
            }
            pending = error.into_pending();
            tokio::time::sleep(RETRY_WAIT).await;
        }
        Err("a change never settled".to_owned())
    }

    fn acknowledged(&self, keys: &[i64], token: &Token) -> Result<(), String> {
        let mut expected = lock(&self.shared.expected);
        keys.iter().for_each(|key| expected.key(*key).settle());
        let mut all = lock(&self.shared.token);
        match all.as_mut() {
            Some(all) => all.merge(token).map_err(|error| error.to_string())?,
            None => *all = Some(token.clone()),
        }
        self.note("is acknowledged");
        Ok(())
    }

    fn any_reader(&self) -> Reader {
        let readers = lock(&self.shared.readers);
        readers[self.draw(readers.len() as u64) as usize].reader.clone()
    }

    /// After the token the reader shows the newest state, exactly: nobody else writes the key.
    async fn read_newest(&self, key: i64, token: &Token) -> Result<(), String> {
        for _ in 0..ATTEMPTS_MAX {
            match read_after(&self.any_reader(), key, token).await {
                Ok(shown) => {
                    self.shared.world.trace.fired("read after token", 1);
                    return lock(&self.shared.expected).check_newest(key, &shown);
                }
                Err(error) => match error.code() {
                    ErrorCode::Unavailable | ErrorCode::DeadlineExceeded | ErrorCode::Closed => {}
                    _ => return Err(format!("a read after a token failed: {error}")),
                },
            }
            tokio::time::sleep(RETRY_WAIT).await;
        }
        Err(format!("key {key}: its token was never applied"))
    }

    /// A local read of anybody's key.
    fn read(&self) -> Result<(), String> {
        let mut readers = lock(&self.shared.readers);
        let chosen = self.draw(readers.len() as u64) as usize;
        let SimReader { reader, shown } = &mut readers[chosen];
        let key = self.draw((self.number + 1) * KEYS) as i64;
        let fired = |what| self.shared.world.trace.fired(what, 1);
        match read_local(reader, key) {
            Ok(state) => {
                fired("local read");
                lock(&self.shared.expected).check_local(key, &state, shown)
            }
            Err(error) if error.code() == ErrorCode::Unavailable => {
                fired("unavailable while bootstrapping");
                Ok(())
            }
            Err(error) => Err(format!("a local read failed: {error}")),
        }
    }
}

/// A result that a retried write can end with.
trait Settled: Sized {
    fn retry(pending: PendingWrite) -> impl Future<Output = Result<Self, WriteError>> + Send;
}

impl Settled for WriteOutcome {
    async fn retry(pending: PendingWrite) -> Result<Self, WriteError> {
        let outcome = pending.retry().await?.into_complete()?;
        let result = outcome.results.into_iter().flatten().next();
        let result = result.ok_or_else(|| forebay::Error::internal("no result"))?;
        Ok(Self { token: outcome.token, result })
    }
}

impl Settled for BatchOutcome {
    async fn retry(pending: PendingWrite) -> Result<Self, WriteError> {
        pending.retry().await
    }
}

fn unsettled(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::UnknownOutcome => "write of unknown outcome",
        ErrorCode::LimitExceeded => "write pushed back",
        _ => "write unavailable",
    }
}
