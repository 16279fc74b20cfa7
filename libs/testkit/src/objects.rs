//! An object store in memory whose clock is set by the test, and that fails, cuts or changes what
//! it is asked for when it is told to.

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

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectFault {
    /// A put or a get fails, and has done nothing.
    Refused,
    /// A put fails, and has done its work.
    LostAnswer,
    /// A get answers fewer bytes.
    Cut,
    /// A get answers other bytes.
    Changed,
    /// A get answers once other tasks had their turn.
    Late,
}

/// Turns of other tasks before a late answer.
const LATE_TURNS: u32 = 8;

/// Decides what happens to the calls on a path, by their number from 0.
pub type Decide = Arc<dyn Fn(&str, u64) -> Option<ObjectFault> + Send + Sync>;

/// What a list answers in the place of what there is.
pub type EditList = Arc<dyn Fn(Vec<ObjectMeta>) -> Vec<ObjectMeta> + Send + Sync>;

/// An object store for tests.
pub struct TestObjects {
    objects: InMemory,
    now: Mutex<SystemTime>,
    written: Mutex<HashMap<Path, SystemTime>>,
    decide: Mutex<Option<Decide>>,
    edit: Mutex<Option<EditList>>,
    calls: AtomicU64,
}

impl Default for TestObjects {
    fn default() -> Self {
        Self {
            objects: InMemory::new(),
            now: Mutex::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)),
            written: Mutex::default(),
            decide: Mutex::default(),
            edit: Mutex::default(),
            calls: AtomicU64::new(0),
        }
    }
}

impl TestObjects {
    /// Lets time pass at the store.
    pub fn pass(&self, time: Duration) {
        *self.now.lock() += time;
    }

    /// What time it is at the store.
    pub fn now(&self) -> SystemTime {
        *self.now.lock()
    }

    /// Dates what was written just now by a clock that is ahead.
    pub fn date_ahead(&self, path: &Path, by: Duration) {
        if let Some(written) = self.written.lock().get_mut(path) {
            *written += by;
        }
    }

    /// Sets the store's clock back.
    pub fn go_back(&self, time: Duration) {
        *self.now.lock() -= time;
    }

    /// Decides about all calls from now on; `None` lets them through.
    pub fn decide(&self, decide: Option<Decide>) {
        self.calls.store(0, Ordering::Relaxed);
        *self.decide.lock() = decide;
    }

    /// Edits all lists from now on; `None` leaves them as they are.
    pub fn edit_lists(&self, edit: Option<EditList>) {
        *self.edit.lock() = edit;
    }

    /// Calls of puts and gets since it was last decided about them.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Names of all objects, in their order.
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

    /// The bytes of an object.
    pub async fn bytes(&self, name: &str) -> Bytes {
        self.objects.get(&Path::from(name)).await.unwrap().bytes().await.unwrap()
    }

    /// Puts other bytes in an object's place, as a store may that goes wrong.
    pub async fn replace(&self, name: &str, bytes: Bytes) {
        self.objects.put(&Path::from(name), bytes.into()).await.unwrap();
    }

    /// Takes an object away.
    pub async fn lose(&self, name: &str) {
        self.objects.delete(&Path::from(name)).await.unwrap();
    }

    fn fault(&self, path: &Path) -> Option<ObjectFault> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let decide = self.decide.lock().clone();
        decide.and_then(|decide| decide(path.as_ref(), number))
    }
}

/// An object as the test's clock has it.
fn told(written: &HashMap<Path, SystemTime>, mut meta: ObjectMeta) -> ObjectMeta {
    if let Some(written) = written.get(&meta.location) {
        meta.last_modified = (*written).into();
    }
    meta
}

/// Lets other tasks have so many turns.
pub(crate) async fn others_turn(turns: u32) {
    let mut left = turns;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn refused(path: &Path) -> Error {
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
            return Err(refused(location));
        }
        let put = self.objects.put_opts(location, payload, options).await?;
        self.written.lock().insert(location.clone(), *self.now.lock());
        match fault {
            Some(ObjectFault::LostAnswer) => Err(refused(location)),
            _ => Ok(put),
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(refused(location))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let fault = self.fault(location);
        if fault == Some(ObjectFault::Refused) {
            return Err(refused(location));
        }
        if fault == Some(ObjectFault::Late) {
            others_turn(LATE_TURNS).await;
        }
        let (is_head, mut got) = (options.head, self.objects.get_opts(location, options).await?);
        got.meta = told(&self.written.lock(), got.meta);
        if is_head || !matches!(fault, Some(ObjectFault::Cut | ObjectFault::Changed)) {
            return Ok(got);
        }
        let GetResult { meta, attributes, extensions, .. } = &got;
        let (meta, attributes, extensions) = (meta.clone(), attributes.clone(), extensions.clone());
        let mut bytes = got.bytes().await?.to_vec();
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
        let written = self.written.lock().clone();
        let told = move |meta: Result<ObjectMeta>| meta.map(|meta| told(&written, meta));
        let listed = self.objects.list(prefix).map(told);
        let Some(edit) = self.edit.lock().clone() else { return listed.boxed() };
        let edited = async move {
            let edited = listed.try_collect().await.map(|listed: Vec<_>| edit(listed));
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
