//! The versions of a store's documents that a reader follows: one that it answers from, the next
//! one while that catches up, and the one before, so that going back is quick.
//!
//! Which one is live stands in the definition. The reader changes to it once its copies of it have
//! come as far as those that it answers from: with one store, so that all partitions change at the
//! same moment, and a call that has begun ends with what it began with.

use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use forebay_core::id::StoreId;
use forebay_core::limits::{READER_COPY_LOOK_MS, READER_COPY_LOOK_SOON_MS};
use forebay_core::versions::StoreVersions;
use forebay_core::{Error, Result};
use forebay_index::Index;
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
    /// Whether each of its partitions answers and has come as far as another version's.
    fn has_passed(&self, before: &Self) -> bool {
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
}

#[derive(Default)]
struct Others {
    followed: Vec<Arc<Followed>>,
    is_closed: bool,
}

impl Versions {
    pub(crate) fn of(first: Followed) -> Self {
        let memory = first.index.memory().limit;
        Self { now: ArcSwap::from_pointee(first), others: Mutex::default(), memory }
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

    /// Answers from another one from now on.
    fn change_to(&self, next: &Arc<Followed>) {
        let mut others = self.others.lock();
        let before = self.now.load_full();
        next.shared.schema.go_on_from(&before.shared.schema);
        self.now.store(Arc::clone(next));
        others.followed.retain(|followed| !Arc::ptr_eq(followed, next));
        others.followed.push(before);
    }

    /// Follows those no more that the store has no longer.
    fn let_go(&self, versions: &StoreVersions) {
        let mut others = self.others.lock();
        others.followed.retain(|followed| {
            let is_kept = versions.kept_as(followed.shared.store).is_some();
            if !is_kept {
                followed.shared.closing.close();
            }
            is_kept
        });
        if others.followed.is_empty()
            && let Some(memory) = self.memory
        {
            self.now().index.limit_memory(memory);
        }
    }
}

/// Follows the versions that the definition names, and changes to the live one.
pub(crate) async fn change_versions(versions: Weak<Versions>, opening: Opening) {
    let Some(home) = versions.upgrade().map(|versions| versions.now().shared.home) else { return };
    let mut trouble: Option<Error> = None;
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

/// One look at the definition; answers whether there is nothing to wait for.
async fn follow(versions: &Versions, opening: &Opening, home: StoreId) -> Result<bool> {
    let catalog = opening.parts.catalog.catalog();
    let newest = catalog.store(home).and_then(|history| history.newest());
    let Some(wanted) = newest.map(|schema| &schema.definition.versions) else { return Ok(true) };
    versions.let_go(wanted);
    let live = wanted.live();
    // The live one, and what was pushed since and may be live soon.
    for version in wanted.all().iter().filter(|version| version.number >= live.number) {
        if versions.get(version.kept_as).is_none() {
            let definitions = versions_of(&opening.parts, version.kept_as);
            let left = versions.memory_left();
            versions.add(opening.open(definitions, None, left).await?)?;
        }
    }
    let before = versions.now.load_full();
    if before.shared.store == live.kept_as {
        return Ok(true);
    }
    let Some(next) = versions.get(live.kept_as) else { return Ok(false) };
    if !next.has_passed(&before) {
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
    versions.let_go(wanted);
    Ok(true)
}
