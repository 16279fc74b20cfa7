//! The store versions that a reader follows: the version that it answers from, the next one while
//! that catches up, and the previous one, so that a rollback is quick.
//!
//! The store's definition names the live version. The reader switches to it once its replicas of
//! that version are as far as the replicas that it answers from. An atomic store makes the switch,
//! so that all partitions switch at the same moment, and a call in progress ends with the version
//! that it started with.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use forebay_core::clock::Timestamp;
use forebay_core::id::{PartitionRef, StoreId};
use forebay_core::limits::{
    READER_COPY_POLL_INTERVAL_ACTIVE_MS, READER_COPY_POLL_INTERVAL_MS, READER_REPARTITIONED_MS,
    VERSION_CLOSE_WAIT_MS, VERSION_DETACH_WAIT_MS,
};
use forebay_core::versions::StoreVersion;
use forebay_core::{Error, Result};
use forebay_replica::{ReplicaContext, closed};
use forebay_tasks::block_in_place;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::followed_version::FollowedVersion;
use crate::local_open::named_by;
use crate::store_lookup::versions_of;
use crate::version_opener::VersionOpener;

/// All store versions that a reader follows.
pub(crate) struct Versions {
    current: ArcSwap<FollowedVersion>,
    others: Mutex<OtherVersions>,
    /// Memory bound of all versions together, in bytes.
    memory: Option<u64>,
    /// Time since when another version waits until the answering one is detached from shared
    /// records.
    waiting: Mutex<Option<Timestamp>>,
    /// Number of dropped versions whose files are not removed yet.
    leftovers: Arc<AtomicUsize>,
    /// Time of the last repartition.
    repartitioned_at: Mutex<Option<Timestamp>>,
}

#[derive(Default)]
struct OtherVersions {
    followed: Vec<Arc<FollowedVersion>>,
    is_closed: bool,
}

impl Versions {
    pub(crate) fn of(first: FollowedVersion) -> Self {
        let memory = first.index.memory().limit;
        let current = ArcSwap::from_pointee(first);
        let (waiting, leftovers, repartitioned_at) = Default::default();
        Self { current, others: Mutex::default(), memory, waiting, leftovers, repartitioned_at }
    }

    /// Returns whether the store was repartitioned within the longest time of a call that started
    /// before it.
    pub(crate) fn is_just_repartitioned(&self, now: Timestamp) -> bool {
        let age_us = self
            .repartitioned_at
            .lock()
            .map(|repartitioned| now.micros_since(repartitioned).unsigned_abs());
        age_us.is_some_and(|age_us| age_us < READER_REPARTITIONED_MS * 1_000)
    }

    /// Returns the version that the reader answers from.
    #[inline]
    pub(crate) fn current(&self) -> Guard<Arc<FollowedVersion>> {
        self.current.load()
    }

    fn all(&self) -> Vec<Arc<FollowedVersion>> {
        let mut all = vec![self.current.load_full()];
        all.extend(self.others.lock().followed.iter().cloned());
        all
    }

    pub(crate) fn begin_close(&self) {
        self.others.lock().is_closed = true;
        self.all().iter().for_each(|followed| followed.context.close_signal.close());
    }

    /// Closes the reader, and waits until all its tasks have ended.
    ///
    /// # Errors
    /// Returns `DeadlineExceeded` if the tasks have not ended within `timeout`.
    pub(crate) fn close(&self, timeout: Duration) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.begin_close();
            let closes = self
                .all()
                .into_iter()
                .map(|followed| async move { followed.context.shut_down(timeout).await });
            futures::future::try_join_all(closes).await.map(drop)
        })
    }

    fn get(&self, storage_id: StoreId) -> Option<Arc<FollowedVersion>> {
        self.all().into_iter().find(|followed| followed.context.store == storage_id)
    }

    /// Returns the memory that is left for another version, in bytes.
    fn memory_left(&self) -> Option<u64> {
        let used_bytes = || self.all().iter().map(|followed| followed.index.memory().used).sum();
        self.memory.map(|memory| memory.saturating_sub(used_bytes()))
    }

    /// Adds a followed version.
    ///
    /// # Errors
    /// Returns `Closed` after the close.
    fn add(&self, followed: FollowedVersion) -> Result<()> {
        let mut others = self.others.lock();
        if others.is_closed {
            followed.context.close_signal.close();
            return Err(closed());
        }
        others.followed.push(Arc::new(followed));
        Ok(())
    }

    /// Returns whether the answering version is about to be detached from shared records, after
    /// which another version may share them. For lack of memory that may never happen.
    fn waits_to_detach(&self, now: Timestamp) -> bool {
        let mut waiting = self.waiting.lock();
        if !self.current().index.shares_records() {
            *waiting = None;
            return false;
        }
        let waiting_since = *waiting.get_or_insert(now);
        now.micros_since(waiting_since).unsigned_abs() < VERSION_DETACH_WAIT_MS * 1_000
    }

    /// Switches to another version.
    fn change_to(&self, next: &Arc<FollowedVersion>) {
        let mut others = self.others.lock();
        let before = self.current.load_full();
        next.context.schema.continue_from(&before.context.schema);
        if next.context.logs != before.context.logs {
            *self.repartitioned_at.lock() = Some(next.context.parts.clock.now());
        }
        self.current.store(Arc::clone(next));
        others.followed.retain(|followed| !Arc::ptr_eq(followed, next));
        others.followed.push(before);
    }

    /// Drops the versions that are not to be kept, and returns them. Once the last older version is
    /// dropped, the answering version is to be detached from its records.
    fn drop_unneeded(&self, is_kept: impl Fn(StoreId) -> bool) -> Vec<Arc<FollowedVersion>> {
        let mut others = self.others.lock();
        let is_gone = |followed: &mut Arc<FollowedVersion>| !is_kept(followed.context.store);
        let dropped: Vec<_> = others.followed.extract_if(.., is_gone).collect();
        for followed in &dropped {
            followed.context.is_gone.store(true, Ordering::Relaxed);
            followed.context.close_signal.close();
        }
        let lends =
            |context: &ReplicaContext| self.current().context.options.beside == Some(context.store);
        if !others.followed.iter().any(|followed| lends(&followed.context)) {
            self.current().context.must_detach.store(true, Ordering::Relaxed);
        }
        if others.followed.is_empty()
            && let Some(memory) = self.memory
        {
            self.current().index.limit_memory(memory);
        }
        dropped
    }
}

/// Follows the versions that the definition names, and switches to the live one.
pub(crate) async fn change_versions(versions: Weak<Versions>, opener: VersionOpener) {
    let Some(home) = versions.upgrade().map(|versions| versions.current().context.home) else {
        return;
    };
    let mut last_error: Option<Error> = None;
    forget_dropped(&opener, home);
    loop {
        let changed = opener.parts.catalog.changes();
        let Some(versions) = versions.upgrade() else { return };
        let is_done = match follow(&versions, &opener, home).await {
            Ok(is_done) => {
                last_error = None;
                is_done
            }
            Err(error) => {
                let store = &opener.options.store;
                if last_error.as_ref() != Some(&error) {
                    tracing::warn!(%store, %error, "store version not followed yet");
                }
                last_error = Some(error);
                false
            }
        };
        let close_signal = Arc::clone(&versions.current().context.close_signal);
        drop(versions);
        let wait_ms = if last_error.is_some() {
            READER_COPY_POLL_INTERVAL_MS
        } else {
            READER_COPY_POLL_INTERVAL_ACTIVE_MS
        };
        tokio::select! {
            biased;
            () = close_signal.closed() => return,
            is_followed = changed => if !is_followed { return },
            () = tokio::time::sleep(Duration::from_millis(wait_ms)), if !is_done => {}
        }
    }
}

/// A dropped version whose files are not removed yet.
struct Leftover(Arc<AtomicUsize>);

impl Drop for Leftover {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Removes the files of dropped versions, once their tasks have ended.
fn forget(versions: &Versions, opener: &VersionOpener, dropped: Vec<Arc<FollowedVersion>>) {
    let Some(directory) = &opener.directory else { return };
    for followed in dropped {
        let (directory, leftovers) = (Arc::clone(directory), Arc::clone(&versions.leftovers));
        leftovers.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let _leftover = Leftover(leftovers);
            let wait_max = Duration::from_millis(VERSION_CLOSE_WAIT_MS);
            if let Err(error) = followed.context.shut_down(wait_max).await {
                tracing::debug!(%error, "files of a dropped version stay until the next open");
                return;
            }
            block_in_place(|| {
                followed.context.followed().for_each(|partition| directory.forget(partition.at));
            });
        });
    }
}

/// Removes files that a killed reader left of versions that the store no longer has.
fn forget_dropped(opener: &VersionOpener, home: StoreId) {
    let Some(directory) = &opener.directory else { return };
    let catalog = opener.parts.catalog.catalog();
    let newest = catalog.store(home).and_then(|history| history.newest());
    let Some(definition) = newest.map(|schema| &schema.definition) else { return };
    let partitions = |store: StoreId| {
        let newest = catalog.store(store).and_then(|history| history.newest());
        newest.map_or(definition.partitions, |schema| schema.definition.partitions)
    };
    // The removal stays on this thread: on another one it would end at a moment that the
    // simulator's seed does not determine.
    block_in_place(|| {
        for store in directory.stores() {
            let is_of_store = catalog.home_by_storage_id(store) == home;
            if is_of_store && definition.versions.by_storage_id(store).is_none() {
                let partitions = partitions(store).partitions();
                partitions.for_each(|id| directory.forget(PartitionRef { store, partition: id }));
            }
        }
    });
}

/// Compares the followed versions with the definition once; returns whether nothing is left to wait
/// for.
async fn follow(versions: &Versions, opener: &VersionOpener, home: StoreId) -> Result<bool> {
    let catalog = opener.parts.catalog.catalog();
    let Some(history) = catalog.store(home) else { return Ok(true) };
    let Some(schema) = history.newest() else { return Ok(true) };
    let versions_of_store = &schema.definition.versions;
    let live = versions_of_store.live();
    // The reader wants the live version, and later ones, which were pushed and may become live
    // soon.
    let is_wanted = |version: &&StoreVersion| version.number >= live.number;
    let mut missing = versions_of_store.all().iter().filter(is_wanted);
    let is_newer = missing.any(|version| versions.get(version.storage_id).is_none());
    // Older versions are kept until a newer one is opened.
    let is_kept = |store: StoreId| {
        let version = versions_of_store.all().iter().find(|version| version.storage_id == store);
        // A rollback never returns to other logs.
        let may_return = |version: &StoreVersion| version.logs == live.logs && !is_newer;
        version.is_some_and(|version| may_return(version) || is_wanted(&version))
    };
    forget(versions, opener, versions.drop_unneeded(is_kept));
    // A rollback may need one of the dropped versions again.
    let is_clean = || versions.leftovers.load(Ordering::Relaxed) == 0;
    let is_alone = || !versions.waits_to_detach(opener.parts.clock.now());
    if is_newer && !(is_clean() && is_alone()) {
        return Ok(false);
    }
    for version in versions_of_store.all().iter().filter(is_wanted) {
        if versions.get(version.storage_id).is_none() {
            let definitions = versions_of(&opener.parts, version.storage_id);
            let memory_left = versions.memory_left();
            // A version with other logs has no records in common with this one.
            let beside = versions.current();
            let beside = (beside.context.logs == version.logs).then_some(beside.context.store);
            versions.add(opener.open(definitions, None, memory_left, beside).await?)?;
        }
    }
    let before = versions.current.load_full();
    if before.context.store == live.storage_id {
        return Ok(true);
    }
    let Some(next) = versions.get(live.storage_id) else { return Ok(false) };
    let live_since = history.live_since().unwrap_or_default();
    if !next.has_passed(&before, live_since) {
        return Ok(false);
    }
    versions.change_to(&next);
    let store = &opener.options.store;
    tracing::info!(%store, version = %live.number, "live version changed");
    if let Some(directory) = opener.directory.clone() {
        let (name, named) =
            (opener.options.store.clone(), named_by(&versions_of(&opener.parts, live.storage_id))?);
        drop(tokio::task::spawn_blocking(move || directory.note_store(&name, named)));
    }
    // The previous version may no longer be kept.
    forget(versions, opener, versions.drop_unneeded(is_kept));
    Ok(true)
}
