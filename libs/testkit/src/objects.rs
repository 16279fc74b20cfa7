//! An in-memory object store whose clock a test sets, and which fails, truncates or changes calls
//! on request.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use parking_lot::Mutex;

/// A fault of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectFault {
    /// A put or a get fails without effect.
    Refused,
    /// A put fails after it took effect.
    LostAnswer,
    /// A get returns fewer bytes.
    Cut,
    /// A get returns other bytes.
    Changed,
    /// A get returns after other tasks had turns.
    Late,
}

/// Turns of other tasks before a late response.
const LATE_TURNS: u32 = 8;

/// A function that decides the fault of a call, by its path and its number from 0.
pub type Decide = Arc<dyn Fn(&str, u64) -> Option<ObjectFault> + Send + Sync>;

/// A function that edits the result of a list.
pub type EditList = Arc<dyn Fn(Vec<ObjectMeta>) -> Vec<ObjectMeta> + Send + Sync>;

/// An object store for tests.
pub struct TestObjects {
    objects: InMemory,
    now: Mutex<SystemTime>,
    write_times: Mutex<HashMap<Path, SystemTime>>,
    decide: Mutex<Option<Decide>>,
    edit: Mutex<Option<EditList>>,
    calls: AtomicU64,
}

impl Default for TestObjects {
    fn default() -> Self {
        Self {
            objects: InMemory::new(),
            now: Mutex::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)),
            write_times: Mutex::default(),
            decide: Mutex::default(),
            edit: Mutex::default(),
            calls: AtomicU64::new(0),
        }
    }
}

impl TestObjects {
    /// Advances the store's clock.
    pub fn pass(&self, time: Duration) {
        *self.now.lock() += time;
    }

    /// Returns the time of the store's clock.
    pub fn now(&self) -> SystemTime {
        *self.now.lock()
    }

    /// Moves the date of an object just written ahead, as a fast clock would.
    pub fn date_ahead(&self, path: &Path, advance: Duration) {
        if let Some(write_time) = self.write_times.lock().get_mut(path) {
            *write_time += advance;
        }
    }

    /// Sets the store's clock back.
    pub fn go_back(&self, time: Duration) {
        *self.now.lock() -= time;
    }

    /// Sets the function that decides about all calls from now on; `None` lets them pass.
    pub fn decide(&self, decide: Option<Decide>) {
        self.calls.store(0, Ordering::Relaxed);
        *self.decide.lock() = decide;
    }

    /// Sets the function that edits all lists from now on; `None` leaves them unchanged.
    pub fn edit_lists(&self, edit: Option<EditList>) {
        *self.edit.lock() = edit;
    }

    /// Returns the number of puts and gets since the last [`TestObjects::decide`].
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Returns the names of all objects, in order.
    pub async fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self
            .objects
            .list(None)
            .map(|found| found.unwrap().location.to_string())
            .collect()
            .await;
        names.sort();
        names
    }

    /// Returns the bytes of an object.
    pub async fn bytes(&self, name: &str) -> Bytes {
        self.objects.get(&Path::from(name)).await.unwrap().bytes().await.unwrap()
    }

    /// Replaces the bytes of an object, as a faulty store may.
    pub async fn replace(&self, name: &str, bytes: Bytes) {
        self.objects.put(&Path::from(name), bytes.into()).await.unwrap();
    }

    /// Removes an object, as a faulty store may.
    pub async fn lose(&self, name: &str) {
        self.objects.delete(&Path::from(name)).await.unwrap();
    }

    fn fault(&self, path: &Path) -> Option<ObjectFault> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let decide = self.decide.lock().clone();
        decide.and_then(|decide| decide(path.as_ref(), number))
    }
}

/// Returns the metadata with the date of the test's clock.
fn with_test_date(write_times: &HashMap<Path, SystemTime>, mut meta: ObjectMeta) -> ObjectMeta {
    if let Some(write_time) = write_times.get(&meta.location) {
        meta.last_modified = (*write_time).into();
    }
    meta
}

/// Gives other tasks this many turns.
pub(crate) async fn others_turn(turns: u32) {
    let mut turns_left = turns;
    poll_fn(|context| {
        if turns_left == 0 {
            return Poll::Ready(());
        }
        turns_left -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn refusal_error(path: &Path) -> Error {
    Error::Generic { store: "test", source: format!("{path} was refused").into() }
}

impl fmt::Debug for TestObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestObjects")
    }
}

impl fmt::Display for TestObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("test")
    }
}

#[async_trait]
impl ObjectStore for TestObjects {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let fault = self.fault(location);
        if fault == Some(ObjectFault::Refused) {
            return Err(refusal_error(location));
        }
        let result = self.objects.put_opts(location, payload, options).await?;
        self.write_times.lock().insert(location.clone(), *self.now.lock());
        match fault {
            Some(ObjectFault::LostAnswer) => Err(refusal_error(location)),
            _ => Ok(result),
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(refusal_error(location))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let fault = self.fault(location);
        if fault == Some(ObjectFault::Refused) {
            return Err(refusal_error(location));
        }
        if fault == Some(ObjectFault::Late) {
            others_turn(LATE_TURNS).await;
        }
        let (is_head, mut result) = (options.head, self.objects.get_opts(location, options).await?);
        result.meta = with_test_date(&self.write_times.lock(), result.meta);
        if is_head || !matches!(fault, Some(ObjectFault::Cut | ObjectFault::Changed)) {
            return Ok(result);
        }
        let GetResult { meta, attributes, extensions, .. } = &result;
        let (meta, attributes, extensions) = (meta.clone(), attributes.clone(), extensions.clone());
        let mut bytes = result.bytes().await?.to_vec();
        match fault {
            Some(ObjectFault::Cut) => bytes.truncate(bytes.len() / 2),
            _ => {
                let middle = bytes.len() / 2;
                bytes.iter_mut().skip(middle).take(1).for_each(|byte| *byte ^= 1);
            }
        }
        let range: Range<u64> = 0..bytes.len() as u64;
        let payload = futures::stream::once(async move { Ok(bytes.into()) }).boxed();
        let payload = GetResultPayload::Stream(payload);
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.objects.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let write_times = self.write_times.lock().clone();
        let with_date =
            move |meta: Result<ObjectMeta>| meta.map(|meta| with_test_date(&write_times, meta));
        let listing = self.objects.list(prefix).map(with_date);
        let Some(edit) = self.edit.lock().clone() else { return listing.boxed() };
        let edited = async move {
            let edited = listing.try_collect().await.map(|listing: Vec<_>| edit(listing));
            match edited {
                Ok(edited) => edited.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            }
        };
        futures::stream::once(edited).flat_map(futures::stream::iter).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}
