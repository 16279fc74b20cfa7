//! The versions of a store's documents that a reader follows: one that it answers from, the next
//! one while that catches up, and the one before, so that going back is quick.
//!
//! Which one is live stands in the definition. The reader changes to it once its copies of it have
//! come as far as those that it answers from: with one store, so that all partitions change at the
//! same moment, and a call that has begun ends with what it began with.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use forebay_core::clock::Timestamp;
use forebay_core::id::{PartitionRef, SchemaVersion, StoreId};
use forebay_core::limits::{
    READER_COPY_LOOK_MS, READER_COPY_LOOK_SOON_MS, READER_LEAVE_WAIT_MS, READER_MOVED_MS,
};
use forebay_core::versions::StoreVersion;
use forebay_core::{Error, Result};
use forebay_index::Index;
use forebay_snapshot::in_place;
use parking_lot::Mutex;

use crate::begin::named_by;
use crate::closing::closed;
use crate::progress::Phase;
use crate::reader::{Opening, versions_of};
use crate::shared::Shared;

/// A version of the documents that is followed.
pub(crate) struct Followed {
    pub shared: Arc<Shared>,
    pub index: Index,
}

impl Followed {
    /// Whether each of its partitions answers and has come as far as another version's; it is live
    /// since this definition.
    fn has_passed(&self, before: &Self, live_since: SchemaVersion) -> bool {
        if self.shared.logs != before.shared.logs {
            // All that was written before stands in its logs ahead of where they say that it is
            // live.
            return self.shared.followed().all(|own| {
                let own = own.board.picture();
                own.phase == Phase::Serving && own.served.schema_version >= live_since
            });
        }
        self.shared.followed().zip(before.shared.followed()).all(|(own, other)| {
            let (own, other) = (own.board.picture(), other.board.picture());
            let is_behind = own.served.log_id == other.served.log_id
                && own.served.position < other.served.position;
            own.phase == Phase::Serving && !is_behind
        })
    }
}

/// All versions that a reader follows.
pub(crate) struct Versions {
    now: ArcSwap<Followed>,
    others: Mutex<Others>,
    /// Bytes of memory that they may take together.
    memory: Option<u64>,
    /// Since when another one waits until the one that is answered from has memory of its own.
    waiting: Mutex<Option<Timestamp>>,
    /// How many of those that are gone are still to be removed.
    leftovers: Arc<AtomicUsize>,
    /// When the documents have last moved to other partitions.
    moved: Mutex<Option<Timestamp>>,
}

#[derive(Default)]
struct Others {
    followed: Vec<Arc<Followed>>,
    is_closed: bool,
}

impl Versions {
    pub(crate) fn of(first: Followed) -> Self {
        let memory = first.index.memory().limit;
        let now = ArcSwap::from_pointee(first);
        let (waiting, leftovers, moved) = Default::default();
        Self { now, others: Mutex::default(), memory, waiting, leftovers, moved }
    }

    /// Whether the documents have moved to other partitions within the longest time that a call
    /// takes which knows them from before.
    pub(crate) fn has_just_moved(&self, now: Timestamp) -> bool {
        let age_us = self.moved.lock().map(|moved| now.micros_since(moved).unsigned_abs());
        age_us.is_some_and(|age_us| age_us < READER_MOVED_MS * 1_000)
    }

    /// The one that is answered from.
    #[inline]
    pub(crate) fn now(&self) -> Guard<Arc<Followed>> {
        self.now.load()
    }

    fn all(&self) -> Vec<Arc<Followed>> {
        let mut all = vec![self.now.load_full()];
        all.extend(self.others.lock().followed.iter().cloned());
        all
    }

    pub(crate) fn close(&self) {
        self.others.lock().is_closed = true;
        self.all().iter().for_each(|followed| followed.shared.closing.close());
    }

    /// Closes, and waits until all that follows has ended.
    ///
    /// # Errors
    /// `DeadlineExceeded` when it has not in this time.
    pub(crate) async fn shut_down(&self, timeout: Duration) -> Result<()> {
        self.close();
        let ends = self
            .all()
            .into_iter()
            .map(|followed| async move { followed.shared.shut_down(timeout).await });
        futures::future::try_join_all(ends).await.map(drop)
    }

    fn get(&self, kept_as: StoreId) -> Option<Arc<Followed>> {
        self.all().into_iter().find(|followed| followed.shared.store == kept_as)
    }

    /// Bytes of memory that are left to one more.
    fn memory_left(&self) -> Option<u64> {
        let used = || self.all().iter().map(|followed| followed.index.memory().used).sum();
        self.memory.map(|memory| memory.saturating_sub(used()))
    }

    /// Follows one more.
    ///
    /// # Errors
    /// `Closed`.
    fn add(&self, followed: Followed) -> Result<()> {
        let mut others = self.others.lock();
        if others.is_closed {
            followed.shared.closing.close();
            return Err(closed());
        }
        others.followed.push(Arc::new(followed));
        Ok(())
    }

    /// Whether the one that is answered from is about to have memory of its own, of which another
    /// one may then use what both have. For want of room that may never come.
    fn waits_to_stand_alone(&self, now: Timestamp) -> bool {
        let mut waiting = self.waiting.lock();
        if !self.now().index.is_borrowing() {
            *waiting = None;
            return false;
        }
        let since = *waiting.get_or_insert(now);
        now.micros_since(since).unsigned_abs() < READER_LEAVE_WAIT_MS * 1_000
    }

    /// Answers from another one from now on.
    fn change_to(&self, next: &Arc<Followed>) {
        let mut others = self.others.lock();
        let before = self.now.load_full();
        next.shared.schema.go_on_from(&before.shared.schema);
        if next.shared.logs != before.shared.logs {
            *self.moved.lock() = Some(next.shared.parts.clock.now());
        }
        self.now.store(Arc::clone(next));
        others.followed.retain(|followed| !Arc::ptr_eq(followed, next));
        others.followed.push(before);
    }

    /// Follows those no more that are not to be kept; answers which those are. With the last older
    /// one the memory goes that the one which is answered from may have of it.
    fn let_go(&self, is_kept: impl Fn(StoreId) -> bool) -> Vec<Arc<Followed>> {
        let mut others = self.others.lock();
        let is_gone = |followed: &mut Arc<Followed>| !is_kept(followed.shared.store);
        let gone: Vec<_> = others.followed.extract_if(.., is_gone).collect();
        for followed in &gone {
            followed.shared.is_gone.store(true, Ordering::Relaxed);
            followed.shared.closing.close();
        }
        let lends = |shared: &Shared| self.now().shared.beside == Some(shared.store);
        if !others.followed.iter().any(|followed| lends(&followed.shared)) {
            self.now().shared.stands_alone.store(true, Ordering::Relaxed);
        }
        if others.followed.is_empty()
            && let Some(memory) = self.memory
        {
            self.now().index.limit_memory(memory);
        }
        gone
    }
}

/// Follows the versions that the definition names, and changes to the live one.
pub(crate) async fn change_versions(versions: Weak<Versions>, opening: Opening) {
    let Some(home) = versions.upgrade().map(|versions| versions.now().shared.home) else { return };
    let mut trouble: Option<Error> = None;
    forget_dropped(&opening, home);
    loop {
        let changed = opening.parts.catalog.changes();
        let Some(versions) = versions.upgrade() else { return };
        let is_done = match follow(&versions, &opening, home).await {
            Ok(is_done) => {
                trouble = None;
                is_done
            }
            Err(error) => {
                let store = &opening.options.store;
                if trouble.as_ref() != Some(&error) {
                    tracing::warn!(%store, %error, "another version is not followed yet");
                }
                trouble = Some(error);
                false
            }
        };
        let closing = Arc::clone(&versions.now().shared.closing);
        drop(versions);
        let wait_ms =
            if trouble.is_some() { READER_COPY_LOOK_MS } else { READER_COPY_LOOK_SOON_MS };
        tokio::select! {
            biased;
            () = closing.closed() => return,
            is_followed = changed => if !is_followed { return },
            () = tokio::time::sleep(Duration::from_millis(wait_ms)), if !is_done => {}
        }
    }
}

/// A version that is gone and still to be removed.
struct Leftover(Arc<AtomicUsize>);

impl Drop for Leftover {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Removes what is kept of versions that are followed no more, once what follows them has ended.
fn forget(versions: &Versions, opening: &Opening, gone: Vec<Arc<Followed>>) {
    let Some(directory) = &opening.directory else { return };
    for followed in gone {
        let (directory, leftovers) = (Arc::clone(directory), Arc::clone(&versions.leftovers));
        leftovers.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let _leftover = Leftover(leftovers);
            let wait_max = Duration::from_millis(READER_LEAVE_WAIT_MS);
            if let Err(error) = followed.shared.shut_down(wait_max).await {
                tracing::debug!(%error, "a version's copies stay until a reader is opened");
                return;
            }
            in_place(|| {
                followed.shared.followed().for_each(|partition| directory.forget(partition.at));
            });
        });
    }
}

/// Removes what a reader that was killed has left of versions that the store has no longer.
fn forget_dropped(opening: &Opening, home: StoreId) {
    let Some(directory) = &opening.directory else { return };
    let catalog = opening.parts.catalog.catalog();
    let newest = catalog.store(home).and_then(|history| history.newest());
    let Some(definition) = newest.map(|schema| &schema.definition) else { return };
    let partitions = |store: StoreId| {
        let newest = catalog.store(store).and_then(|history| history.newest());
        newest.map_or(definition.partitions, |schema| schema.definition.partitions)
    };
    // On a thread beside it would end at a moment that no seed of the simulator tells.
    in_place(|| {
        for store in directory.stores() {
            let is_of_store = catalog.home_of(store) == home;
            if is_of_store && definition.versions.kept_as(store).is_none() {
                let partitions = partitions(store).partitions();
                partitions.for_each(|id| directory.forget(PartitionRef { store, partition: id }));
            }
        }
    });
}

/// One look at the definition; answers whether there is nothing to wait for.
async fn follow(versions: &Versions, opening: &Opening, home: StoreId) -> Result<bool> {
    let catalog = opening.parts.catalog.catalog();
    let Some(history) = catalog.store(home) else { return Ok(true) };
    let Some(schema) = history.newest() else { return Ok(true) };
    let wanted = &schema.definition.versions;
    let live = wanted.live();
    // The live one, and what was pushed since and may be live soon.
    let is_wanted = |version: &&StoreVersion| version.number >= live.number;
    let mut missing = wanted.all().iter().filter(is_wanted);
    let is_newer = missing.any(|version| versions.get(version.kept_as).is_none());
    // Until there is another one, those from before too.
    let is_kept = |store: StoreId| {
        let version = wanted.all().iter().find(|version| version.kept_as == store);
        // Nobody goes back to other logs.
        let may_return = |version: &StoreVersion| version.logs == live.logs && !is_newer;
        version.is_some_and(|version| may_return(version) || is_wanted(&version))
    };
    forget(versions, opening, versions.let_go(is_kept));
    // One of those may be wanted again, by a roll-back.
    let is_clean = || versions.leftovers.load(Ordering::Relaxed) == 0;
    let is_alone = || !versions.waits_to_stand_alone(opening.parts.clock.now());
    if is_newer && !(is_clean() && is_alone()) {
        return Ok(false);
    }
    for version in wanted.all().iter().filter(is_wanted) {
        if versions.get(version.kept_as).is_none() {
            let definitions = versions_of(&opening.parts, version.kept_as);
            let left = versions.memory_left();
            // Documents of other partitions are elsewhere.
            let beside = versions.now();
            let beside = (beside.shared.logs == version.logs).then_some(beside.shared.store);
            versions.add(opening.open(definitions, None, left, beside).await?)?;
        }
    }
    let before = versions.now.load_full();
    if before.shared.store == live.kept_as {
        return Ok(true);
    }
    let Some(next) = versions.get(live.kept_as) else { return Ok(false) };
    let live_since = history.live_since().unwrap_or_default();
    if !next.has_passed(&before, live_since) {
        return Ok(false);
    }
    versions.change_to(&next);
    let store = &opening.options.store;
    tracing::info!(%store, version = %live.number, "another version answers");
    if let Some(directory) = opening.directory.clone() {
        let (name, named) =
            (opening.options.store.clone(), named_by(&versions_of(&opening.parts, live.kept_as))?);
        drop(tokio::task::spawn_blocking(move || directory.note_store(&name, named)));
    }
    // The one before may be no longer kept.
    forget(versions, opening, versions.let_go(is_kept));
    Ok(true)
}
