//! The simulated applications. Each writes keys of its own, one change after the other; lets two
//! clients race for keys without an owner; and reads through the shared readers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay::schema::DocumentVersion;
use forebay::writes::{Token, Write, WriteOutcome, WriteResult};
use forebay::{Client, Store};
use forebay_core::ErrorCode;
use forebay_core::clock::Timestamp;
use forebay_core::entropy::{Entropy, SeededEntropy};
use forebay_reader::Reader;

use super::acknowledgement::{ATTEMPTS_MAX, RETRY_WAIT, send_batch, send_until_acknowledged};
use super::expected_state::{ExpectedState, Fields, State};
use super::plant::Plant;
use super::readers::{AGE_MAX, SimReader, read_after, read_latest};
use super::store::STORE;
use super::world::World;

/// Number of keys that one application owns.
pub(crate) const KEYS: u64 = 4;
/// First of the keys whose documents expire; each application has one.
pub(crate) const EXPIRING_KEYS: i64 = 1_000;
/// Base of the raced keys; each is raced for once.
const RACED_KEYS: i64 = 10_000;
/// Longest time until a reader shows an acknowledged change; faults end long before.
const SHOWN_WITHIN: Duration = Duration::from_secs(90);

/// The state that the applications of one run share.
pub(crate) struct WorkloadState {
    pub(crate) world: World,
    pub(crate) expected: Mutex<ExpectedState>,
    pub(crate) readers: Mutex<Vec<SimReader>>,
    /// Token of everything acknowledged.
    pub(crate) token: Mutex<Option<Token>>,
    /// Number of races so far.
    pub(crate) races: Mutex<i64>,
}

/// Locks a mutex that only this thread ever locks.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WorkloadState {
    /// Notes that the newest changes of these keys are acknowledged.
    ///
    /// # Errors
    /// Returns an error if the token is of another log than earlier tokens.
    pub(crate) fn acknowledged(&self, keys: &[i64], token: &Token) -> Result<(), String> {
        let now = self.world.moment();
        let mut expected = lock(&self.expected);
        keys.iter().for_each(|key| expected.key(*key).acknowledge(now));
        let mut all = lock(&self.token);
        match all.as_mut() {
            Some(all) => all.merge(token).map_err(|error| error.to_string()),
            None => {
                *all = Some(token.clone());
                Ok(())
            }
        }
    }

    /// Notes that a change of this key is about to be sent.
    pub(crate) fn begin(&self, key: i64, state: State, ttl_us: Option<i64>) {
        let now = self.world.moment();
        lock(&self.expected).key(key).begin(state, ttl_us, now);
    }

    /// Returns a reader that follows a key's partition, and its index.
    pub(crate) fn reader_of(&self, key: i64, draw: u64) -> (usize, Reader) {
        let readers = lock(&self.readers);
        let places: Vec<_> =
            (0..readers.len()).filter(|place| readers[*place].follows(key)).collect();
        let place = places[draw as usize % places.len()];
        (place, readers[place].reader.clone())
    }
}

/// An application.
pub(crate) struct Application {
    pub(crate) shared: Arc<WorkloadState>,
    pub(crate) number: u64,
    entropy: SeededEntropy,
    client: Client,
    /// Second client, which races against the first.
    rival: Client,
    revision: i64,
}

impl Application {
    pub(crate) fn new(shared: Arc<WorkloadState>, seed: u64, number: u64) -> Result<Self, String> {
        let entropy = SeededEntropy::new(seed ^ ((16 + number) << 48));
        let client = || shared.world.client().map_err(|error| error.to_string());
        let (client, rival) = (client()?, client()?);
        Ok(Self { shared, number, entropy, client, rival, revision: 0 })
    }

    pub(crate) fn draw(&self, bound: u64) -> u64 {
        self.entropy.next_u64().unwrap_or_default() % bound.max(1)
    }

    pub(crate) fn note(&self, text: &str) {
        self.shared.world.note(format!("application {}: {text}", self.number));
    }

    pub(crate) fn count_event(&self, event: &'static str) {
        self.shared.world.trace.count_event(event, 1);
    }

    /// Returns a number of this application that no other change has.
    pub(crate) fn next_revision(&mut self) -> i64 {
        self.revision += 1;
        self.revision * 16 + self.number as i64
    }

    /// Executes this many operations.
    ///
    /// # Errors
    /// Returns the broken rule.
    pub(crate) async fn run(mut self, operations: usize) -> Result<(), String> {
        let store = self.open_store(&self.client).await?;
        let rival = self.open_store(&self.rival).await?;
        for _ in 0..operations {
            self.pause().await;
            match self.draw(20) {
                0..6 => self.write_one(&store).await,
                6 | 7 => self.write_batch(&store).await,
                8 | 9 => self.write_conditional(&store).await,
                10 => self.write_expiring(&store).await,
                11 => self.race(&store, &rival).await,
                12 => self.read_latest().await,
                13 | 14 => self.read_expiring(),
                15..17 => self.read_bounded(),
                _ => self.read_any(),
            }?;
        }
        Ok(())
    }

    /// Waits as long as an application does between two operations.
    pub(crate) async fn pause(&self) {
        tokio::time::sleep(Duration::from_micros(500 + self.draw(9_500))).await;
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) async fn open_store(&self, client: &Client) -> Result<Store, String> {
        for _ in 0..ATTEMPTS_MAX {
            match client.store(STORE).await {
                Ok(store) => return Ok(store),
                Err(error) => self.note(&format!("the store does not open: {error}")),
            }
            tokio::time::sleep(RETRY_WAIT).await;
        }
        Err("the store never opened".to_owned())
    }

    pub(crate) fn own_key(&self, number: u64) -> i64 {
        (self.number * KEYS + number) as i64
    }

    fn any_own_key(&self) -> i64 {
        self.own_key(self.draw(KEYS))
    }

    /// Returns a random change of a key, and the key's state after it.
    fn change(&mut self, store: &Store, key: i64) -> (Write, State) {
        let revision = self.next_revision();
        let present = lock(&self.shared.expected).key(key).newest();
        let increment = 1 + self.draw(5) as i64;
        match self.draw(10) {
            0 => (store.delete(key), None),
            1 | 2 => {
                let note = format!("note {revision}");
                let write = store.put(key).set("revision", revision).set("note", note.as_str());
                let fields = Fields { revision, note: Some(note), ..Fields::default() };
                (write, Some(fields))
            }
            3 => {
                let fields = Fields { revision, note: None, ..present.unwrap_or_default() };
                (store.upsert(key).set("revision", revision).remove_field("note"), Some(fields))
            }
            _ => {
                let before = present.unwrap_or_default();
                let fields = Fields { revision, total: before.total + increment, ..before };
                let write =
                    store.upsert(key).set("revision", revision).increment("total", increment);
                (write, Some(fields))
            }
        }
    }

    async fn write_one(&mut self, store: &Store) -> Result<(), String> {
        let key = self.any_own_key();
        let (write, next) = self.change(store, key);
        let token = self.write(key, write, next, None, WriteResult::Appended).await?;
        if self.draw(2) == 0 {
            self.read_newest(key, &token).await?;
        }
        Ok(())
    }

    /// Sends one change, which must lead to the state `next`.
    pub(crate) async fn write(
        &self,
        key: i64,
        write: Write,
        next: State,
        ttl_us: Option<i64>,
        comes_out: WriteResult,
    ) -> Result<Token, String> {
        self.note(&format!("writes key {key}: {next:?}"));
        self.shared.begin(key, next, ttl_us);
        let outcome: WriteOutcome =
            send_until_acknowledged(&self.shared.world, || write.clone().send()).await?;
        let is_believed = self.shared.world.plant() == Some(Plant::TakesUnknownForDone);
        if outcome.result != comes_out && !is_believed {
            let result = outcome.result;
            return Err(format!("key {key}: a write came out as {result:?}, not {comes_out:?}"));
        }
        self.shared.acknowledged(&[key], &outcome.token)?;
        self.note("is acknowledged");
        Ok(outcome.token)
    }

    async fn write_batch(&mut self, store: &Store) -> Result<(), String> {
        let keys: Vec<i64> = (0..1 + self.draw(KEYS)).map(|number| self.own_key(number)).collect();
        let mut writes = Vec::new();
        for key in &keys {
            let (write, next) = self.change(store, *key);
            self.note(&format!("writes key {key} in a batch: {next:?}"));
            self.shared.begin(*key, next, None);
            writes.push(write);
        }
        let token = send_batch(&self.shared.world, store, writes).await?;
        self.shared.acknowledged(&keys, &token)?;
        self.note("is acknowledged");
        let key = keys[self.draw(keys.len() as u64) as usize];
        self.read_newest(key, &token).await
    }

    /// Sends a conditional change with a known outcome: the key has no other writer.
    async fn write_conditional(&mut self, store: &Store) -> Result<(), String> {
        let key = self.any_own_key();
        let present = lock(&self.shared.expected).key(key).newest();
        let token = lock(&self.shared.token).clone();
        let (Some(fields), Some(token)) = (present, token) else {
            return self.write_if_absent(store, key).await;
        };
        let (state, version) = self.read_newest_version(key, &token).await?;
        let Some(version) = version else {
            return Err(format!("key {key}: {state:?} has no version"));
        };
        let revision = self.next_revision();
        let write = store.upsert(key).set("revision", revision);
        let next = Some(Fields { revision, ..fields.clone() });
        match self.draw(5) {
            0 => {
                let token =
                    self.write(key, write.if_version(version), next, None, WriteResult::Applied);
                let token = token.await?;
                self.read_newest(key, &token).await
            }
            1 => {
                let other = DocumentVersion(version.0 ^ 1);
                self.send_refused(key, write.if_version(other), version).await
            }
            2 => self.send_refused(key, write.if_absent(), version).await,
            3 => {
                let write = write.if_newer("revision");
                self.write(key, write, next, None, WriteResult::Applied).await.map(|_| ())
            }
            _ => {
                let older = store.upsert(key).set("revision", fields.revision).if_newer("revision");
                self.send_refused(key, older, version).await
            }
        }
    }

    async fn write_if_absent(&mut self, store: &Store, key: i64) -> Result<(), String> {
        let revision = self.next_revision();
        let next = Some(Fields { revision, ..Fields::default() });
        let write = store.put(key).set("revision", revision).if_absent();
        self.write(key, write, next, None, WriteResult::Applied).await.map(|_| ())
    }

    /// Sends a change whose condition does not hold.
    async fn send_refused(
        &self,
        key: i64,
        write: Write,
        version: DocumentVersion,
    ) -> Result<(), String> {
        self.note(&format!("writes key {key} under a condition that does not hold"));
        let outcome: WriteOutcome =
            send_until_acknowledged(&self.shared.world, || write.clone().send()).await?;
        self.count_event("condition failed");
        if outcome.result == WriteResult::ConditionFailed(Some(version)) {
            return self.read_newest(key, &outcome.token).await;
        }
        let result = outcome.result;
        Err(format!("key {key}: {result:?} of a condition that does not hold at {version:?}"))
    }

    async fn write_expiring(&mut self, store: &Store) -> Result<(), String> {
        let key = EXPIRING_KEYS + self.number as i64;
        let revision = self.next_revision();
        let ttl = Duration::from_millis(20 + self.draw(600));
        let next = Some(Fields { revision, ..Fields::default() });
        let write = store.put(key).set("revision", revision).ttl(ttl);
        let ttl_us = ttl.as_micros() as i64;
        self.write(key, write, next, Some(ttl_us), WriteResult::Appended).await.map(|_| ())
    }

    /// Lets two clients insert one key at once; exactly one succeeds, and both learn which.
    async fn race(&mut self, store: &Store, rival: &Store) -> Result<(), String> {
        let key = {
            let mut races = lock(&self.shared.races);
            *races += 1;
            RACED_KEYS + *races
        };
        let revisions = [self.next_revision(), self.next_revision()];
        self.note(&format!("races for key {key}: {revisions:?}"));
        let delay_us = self.draw(20_000);
        let first = self.race_one(store, key, revisions[0], 0);
        let second = self.race_one(rival, key, revisions[1], delay_us);
        let (first, second) = tokio::join!(biased; first, second);
        let (first, second) = (first?, second?);
        let has_won = |outcome: &WriteOutcome| outcome.result == WriteResult::Applied;
        let winner = match (has_won(&first), has_won(&second)) {
            (true, false) => 0,
            (false, true) => 1,
            _ => {
                let results = (first.result, second.result);
                return Err(format!("key {key}: a race came out as {results:?}"));
            }
        };
        let next = Some(Fields { revision: revisions[winner], ..Fields::default() });
        self.shared.begin(key, next, None);
        let mut token = first.token;
        token.merge(&second.token).map_err(|error| error.to_string())?;
        self.shared.acknowledged(&[key], &token)?;
        self.count_event("race for a key");
        self.read_newest(key, &token).await
    }

    async fn race_one(
        &self,
        store: &Store,
        key: i64,
        revision: i64,
        after_us: u64,
    ) -> Result<WriteOutcome, String> {
        tokio::time::sleep(Duration::from_micros(after_us)).await;
        let write = store.put(key).set("revision", revision);
        if self.shared.world.plant() != Some(Plant::ConditionAtWriter) {
            return send_until_acknowledged(&self.shared.world, || {
                write.clone().if_absent().send()
            })
            .await;
        }
        let (place, _) = self.shared.reader_of(key, 0);
        let read = lock(&self.shared.readers)[place].read_local(&self.shared.world, key, None);
        let is_absent = !matches!(read, Ok(Some(_)));
        let write = if is_absent { write } else { write.if_absent() };
        let mut outcome: WriteOutcome =
            send_until_acknowledged(&self.shared.world, || write.clone().send()).await?;
        if is_absent {
            outcome.result = WriteResult::Applied;
        }
        Ok(outcome)
    }

    /// Checks that a read after the token shows exactly the newest state: the key has no other
    /// writer.
    pub(crate) async fn read_newest(&self, key: i64, token: &Token) -> Result<(), String> {
        self.read_newest_version(key, token).await.map(|_| ())
    }

    async fn read_newest_version(
        &self,
        key: i64,
        token: &Token,
    ) -> Result<(State, Option<DocumentVersion>), String> {
        self.checked(key, Some(token)).await
    }

    async fn read_latest(&self) -> Result<(), String> {
        self.checked(self.any_own_key(), None).await.map(|_| ())
    }

    /// Reads after a token, or without one the latest, until a reader answers, and compares the
    /// answer with the newest state.
    async fn checked(
        &self,
        key: i64,
        token: Option<&Token>,
    ) -> Result<(State, Option<DocumentVersion>), String> {
        let world = &self.shared.world;
        let read_kind = if token.is_some() { "read after token" } else { "read of the latest" };
        let deadline = tokio::time::Instant::now() + SHOWN_WITHIN;
        while tokio::time::Instant::now() < deadline {
            let (place, reader) = self.shared.reader_of(key, self.draw(64));
            let read = match token {
                Some(token) => read_after(world, &reader, key, token).await,
                None => read_latest(world, &reader, key).await,
            };
            match read {
                Ok((state, version)) => {
                    self.count_event(read_kind);
                    let shown_history = &mut lock(&self.shared.readers)[place].shown_history;
                    let mut expected = lock(&self.shared.expected);
                    let checked = expected.check_newest(key, &state, shown_history, world.moment());
                    return checked
                        .map(|()| (state, version))
                        .map_err(|w| format!("{read_kind}: {w}"));
                }
                Err(error) => match error.code() {
                    ErrorCode::Unavailable | ErrorCode::DeadlineExceeded | ErrorCode::Closed => {
                        self.count_event("read that did not come in time");
                    }
                    // A barrier needs space on the node's disk.
                    ErrorCode::LimitExceeded if token.is_none() => {
                        self.count_event("barrier refused")
                    }
                    _ => return Err(format!("key {key}: {read_kind} failed: {error}")),
                },
            }
            tokio::time::sleep(RETRY_WAIT).await;
        }
        Err(format!("key {key}: {read_kind}: no reader ever showed the newest change"))
    }

    /// Reads a key of any application locally.
    fn read_any(&self) -> Result<(), String> {
        let key = self.draw((self.number + 1) * KEYS) as i64;
        self.read_local(key, None)
    }

    fn read_expiring(&self) -> Result<(), String> {
        self.read_local(EXPIRING_KEYS + self.draw(self.number + 1) as i64, None)
    }

    fn read_bounded(&self) -> Result<(), String> {
        self.read_local(self.any_own_key(), Some(AGE_MAX))
    }

    fn read_local(&self, key: i64, max_staleness: Option<Duration>) -> Result<(), String> {
        let world = &self.shared.world;
        let mut readers = lock(&self.shared.readers);
        let place = self.draw(readers.len() as u64) as usize;
        let reader = &mut readers[place];
        reader.check_positions()?;
        let now = world.moment();
        match reader.read_local(world, key, max_staleness) {
            Ok(_) if !reader.follows(key) => {
                Err(format!("key {key}: a reader that does not follow its partition answered"))
            }
            Ok(state) => {
                self.count_event(if max_staleness.is_some() {
                    "read within its age"
                } else {
                    "local read"
                });
                let no_older = max_staleness.map(|bound| before(now.now, bound));
                let mut expected = lock(&self.shared.expected);
                expected.check_local(key, &state, &mut reader.shown_history, no_older, now)
            }
            Err(error) => match error.code() {
                ErrorCode::InvalidArgument if !reader.follows(key) => {
                    self.count_event("partition not followed");
                    Ok(())
                }
                ErrorCode::Stale if max_staleness.is_some() => {
                    self.count_event("read refused as stale");
                    Ok(())
                }
                ErrorCode::Unavailable => {
                    self.count_event("read refused while bootstrapping");
                    Ok(())
                }
                ErrorCode::Closed => Ok(()),
                _ => Err(format!("a local read failed: {error}")),
            },
        }
    }
}

fn before(now: Timestamp, bound: Duration) -> Timestamp {
    now.plus_micros(-(bound.as_micros() as i64))
}
