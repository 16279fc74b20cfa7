//! The view that one of several processes has of a test object store: its writes carry the date of
//! its own clock, its lists are delayed, and before each of its calls other tasks get turns.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use crate::objects::{TestObjects, others_turn};

/// A function that returns the delay before a call on a path: turns of other tasks, and time.
pub type Pause = Arc<dyn Fn(&Path) -> (u32, Duration) + Send + Sync>;

/// The view of one process.
#[derive(Clone)]
pub struct ObjectFront {
    /// Store behind the view.
    pub objects: Arc<TestObjects>,
    /// Amount by which the clock that dates its writes is ahead.
    pub ahead: Duration,
    /// Delay of its lists: younger objects are not in them.
    pub behind: Duration,
    /// Delay before each call.
    pub pause: Pause,
}

impl ObjectFront {
    async fn wait(&self, path: &Path) {
        let (turns, time) = (self.pause)(path);
        others_turn(turns).await;
        self.objects.pass(time);
    }
}

impl fmt::Debug for ObjectFront {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ObjectFront")
    }
}

impl fmt::Display for ObjectFront {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("front")
    }
}

#[async_trait]
impl ObjectStore for ObjectFront {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.wait(location).await;
        let result = self.objects.put_opts(location, payload, options).await?;
        self.objects.date_ahead(location, self.ahead);
        Ok(result)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.wait(location).await;
        self.objects.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let front = self.clone();
        let waited_locations = locations.then(move |path| {
            let front = front.clone();
            async move {
                if let Ok(path) = &path {
                    front.wait(path).await;
                }
                path
            }
        });
        self.objects.delete_stream(waited_locations.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (front, prefix) = (self.clone(), prefix.cloned());
        let listing = async move {
            front.wait(&prefix.clone().unwrap_or_default()).await;
            let shown_until = front.objects.now() - front.behind;
            let is_whole = front.behind.is_zero();
            let is_shown = move |meta: &Result<ObjectMeta>| {
                is_whole || meta.as_ref().is_ok_and(|meta| shown_until >= meta.last_modified.into())
            };
            let listing = front.objects.list(prefix.as_ref());
            listing.filter(move |meta| futures::future::ready(is_shown(meta)))
        };
        stream::once(listing).flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}
