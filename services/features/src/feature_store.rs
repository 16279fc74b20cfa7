//! The features service without its sockets: the views and streams of this process, and their
//! answers.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::catalog::SchemaAt;
use forebay_core::clock::Timestamp;
use forebay_core::id::{FieldId, PartitionId, PartitionRef};
use forebay_core::partition::partition_of;
use forebay_core::schema::Definition;
use forebay_core::value::Value;
use forebay_core::{Error, Result};
use forebay_query::SqlOptions;
use forebay_replica::{ReadOptions, StoreReplica};
use forebay_runtime::{LowPriorityRuntime, OpenResources, Peers, Reconciler, StoreResource};
use forebay_shard_replica::await_all_closed;
use forebay_tasks::block_in_place;
use futures::future::{join, join_all};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::events::DerivedOffsets;
use crate::export::Exports;
use crate::fold::ViewShards;
use crate::parts::FeatureParts;
use crate::plan::Plan;
use crate::resources::FeatureResources;
use crate::streams::{OpenStream, Stream};
use crate::view_stats::ViewStats;
use crate::views::OpenView;

/// Longest wait until the catalog has folded the control log to its end.
const CATALOG_WAIT: Duration = Duration::from_secs(10);

/// The views and streams of this process. Dropping it ends them, and waits for at most a minute
/// until they have closed their files.
pub struct Features {
    views: OpenResources<OpenView>,
    streams: OpenResources<OpenStream>,
    parts: FeatureParts,
    peers: Peers,
    reconciler: Mutex<Option<JoinHandle<()>>>,
    /// Runtime of all tasks of the service.
    _background: LowPriorityRuntime,
}

/// Values of a group at one position of its partition.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupValues {
    /// Name and value of each output, in the order of the view; `None` if the aggregate has no
    /// value.
    pub values: Vec<(String, Option<Value>)>,
    /// The partition's time at which the windows end; [`Timestamp::MIN`] before its first entry.
    pub partition_time: Timestamp,
}

impl Features {
    /// Starts to maintain all views and streams, on separate threads.
    ///
    /// # Errors
    /// `Internal` if the threads cannot be started.
    pub fn start(parts: FeatureParts) -> Result<Self> {
        let background = LowPriorityRuntime::start("features")?;
        let (views, streams) = (OpenResources::default(), OpenResources::default());
        let (catalog, membership) =
            (Arc::clone(&parts.context.catalog), Arc::clone(&parts.context.membership));
        let (peers, reopen) = (Peers::new(Arc::clone(&membership)), Arc::<Notify>::default());
        let resources = FeatureResources {
            parts: parts.clone(),
            views: views.clone(),
            streams: streams.clone(),
            derived: DerivedOffsets::default(),
            reopen: Arc::clone(&reopen),
        };
        let reconciler = Reconciler { catalog, membership, reopen, resources };
        let reconciler = Mutex::new(Some(background.spawn(reconciler.run())));
        Ok(Self { views, streams, parts, peers, reconciler, _background: background })
    }

    /// Returns the limits of SQL statements.
    pub(crate) fn sql(&self) -> &SqlOptions {
        self.parts.shards.sql()
    }

    /// Returns the exports.
    ///
    /// # Errors
    /// `InvalidArgument` if no folder for exports is configured.
    pub(crate) fn exports(&self) -> Result<&Exports> {
        let advice = "the service has no folder for exports; start the service with --exports URL";
        self.parts.shards.exports().ok_or_else(|| Error::invalid_argument(advice))
    }

    /// Returns the dependencies of the service.
    pub(crate) fn parts(&self) -> &FeatureParts {
        &self.parts
    }

    /// Returns the other processes that share the partitions.
    pub(crate) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Returns the names of the streams that are open here, sorted.
    pub(crate) fn stream_names(&self) -> Vec<String> {
        let streams = self.streams.lock();
        let name = |open: &OpenStream| open.stream.schema.definition.name.clone();
        let mut names: Vec<_> = streams.values().map(name).collect();
        names.sort();
        names
    }

    /// Returns a stream that is open here, with the newest definition that this process knows.
    ///
    /// # Errors
    /// `Unavailable` if the stream is not open yet, `NotFound` if there is no such store,
    /// `InvalidArgument` if the store is not a stream or is a view.
    pub(crate) fn stream(&self, name: &str) -> Result<Stream> {
        let catalog = self.parts.context.catalog.catalog();
        let newest = catalog.store_by_name(name).map_err(|error| error.with_store(name))?;
        let definition = &newest.definition;
        let refused = |error: Error| Err(error.with_store(name));
        if definition.stream.is_none() {
            return refused(Error::invalid_argument("the store is no stream; name a stream"));
        }
        if definition.view().is_some() {
            return refused(Error::invalid_argument(
                "the stream belongs to a view; select the events of the view's stream",
            ));
        }
        match self.streams.lock().get(&definition.store) {
            Some(open) if open.stream.knows(definition.version) => Ok(open.stream.clone()),
            _ => refused(Error::unavailable("the stream is not open here yet; ask again")),
        }
    }

    /// Waits until the catalog has folded all records that the control log holds at the call.
    ///
    /// # Errors
    /// `Unavailable` if the log does not answer, or the catalog does not follow.
    pub(crate) async fn catch_up(&self) -> Result<()> {
        self.parts.context.catch_up(CATALOG_WAIT).await
    }

    /// Returns the values of one group of a view, named by a value for each column of `entity`; a
    /// group without events has the values of an empty aggregate.
    ///
    /// The method reads all tiles of the group, and merges those of each window.
    ///
    /// # Errors
    /// - `NotFound` if the view is not open here.
    /// - `InvalidArgument` for values that do not fit the columns.
    /// - `Unavailable` if another process, which the error names, folds the group; while the
    ///   group's events are folded again; and if the disk refuses.
    pub async fn values(&self, view: &str, group: &[Value]) -> Result<GroupValues> {
        let (definition, follower, shards) = self.find(view, |open| {
            let definition = open.schema.definition.clone();
            (definition, open.follower.clone(), open.shards.clone())
        })?;
        let read = async {
            let (partition, name) = named_group(&definition, shards.plan(), group)?;
            if !follower.follows(partition) {
                return Err(self.other_owner_error(definition.write_logs().at(partition)).await);
            }
            read(&follower, &shards, partition, name).await
        };
        read.await.map_err(|error: Error| error.with_store(view))
    }

    async fn other_owner_error(&self, at: PartitionRef) -> Error {
        let message = match self.parts.context.membership.owner(at).await {
            Ok(Some(owner)) => {
                format!("the process {owner} aggregates the group; ask that process")
            }
            _ => "another process aggregates the group, or none yet; ask again".to_owned(),
        };
        Error::unavailable(message).with_partition(at.partition)
    }

    /// Returns this process's counters of a view's events.
    ///
    /// # Errors
    /// `NotFound` if the view is not open here.
    pub fn stats(&self, view: &str) -> Result<ViewStats> {
        self.find(view, |open| open.counters.stats())
    }

    /// Returns the catalog's definition of a view, or of another store.
    ///
    /// # Errors
    /// `NotFound` if there is none of this name.
    pub(crate) fn view_definition(&self, view: &str) -> Result<Arc<SchemaAt>> {
        let catalog = self.parts.context.catalog.catalog();
        let schema = catalog.store_by_name(view).map_err(|error| error.with_store(view))?;
        Ok(Arc::clone(schema))
    }

    /// Returns a part of an open view.
    ///
    /// # Errors
    /// `NotFound` if the view is not open here.
    pub(crate) fn find<T>(&self, name: &str, take: impl FnOnce(&OpenView) -> T) -> Result<T> {
        let views = self.views.lock();
        let found = views.values().find(|open| open.schema.definition.name == name);
        let message = "this view is not open here; apply its declaration, or ask again";
        found.map(take).ok_or_else(|| Error::not_found(message).with_store(name))
    }

    /// Ends all views and streams. Their shards are closed on return. A view, a stream or a read in
    /// flight that does not end in time is logged.
    pub async fn stop(&self) {
        let reconciler = self.reconciler.lock().take();
        if let Some(reconciler) = reconciler {
            reconciler.abort();
            let _ = reconciler.await;
        }
        let streams = self.streams.take_all().into_iter().map(StoreResource::shut_down);
        let views = self.views.take_all().into_iter().map(StoreResource::shut_down);
        join(join_all(streams), join_all(views)).await;
        await_all_closed(self.parts.shards.resources()).await;
    }
}

impl Drop for Features {
    fn drop(&mut self) {
        self.reconciler.lock().iter().for_each(JoinHandle::abort);
        self.streams.lock().values().for_each(|open| open.stream.follower.close());
        self.views.lock().values().for_each(|open| open.follower.close());
    }
}

/// Returns a group's partition, and its name there.
///
/// # Errors
/// `InvalidArgument` for values that do not fit the columns.
pub(crate) fn named_group(
    definition: &Definition,
    plan: &Plan,
    group: &[Value],
) -> Result<(PartitionId, Vec<u8>)> {
    let view = &plan.view;
    if group.len() != view.entity.len() {
        let message = format!(
            "the group needs a value for each of {} columns; give all of them",
            view.entity.len()
        );
        return Err(Error::invalid_argument(message));
    }
    for (column, value) in view.entity.iter().zip(group) {
        let Some(column) = definition.field_by_id(*column) else { continue };
        value.check(column.field_type).map_err(|error| error.with_field(&column.name))?;
    }
    let value = |column: FieldId| plan.group_value(group, column);
    let missing = || Error::internal("a group lacks a value");
    let name = view.group_key(&value).ok_or_else(missing)?;
    let key = view.partition_key(&value).ok_or_else(missing)?;
    Ok((partition_of(&key, definition.write_logs().partitions), name))
}

async fn read(
    follower: &StoreReplica,
    shards: &ViewShards,
    partition: PartitionId,
    name: Vec<u8>,
) -> Result<GroupValues> {
    follower.await_readable(&ReadOptions::local(), &[partition]).await?;
    block_in_place(|| {
        let (tiles, partition_time) = shards.group(partition, &name)?;
        let plan = shards.plan();
        let values = plan.values(&tiles, partition_time)?;
        let names = plan.view.outputs().into_iter().map(|output| output.name);
        Ok(GroupValues { values: names.zip(values).collect(), partition_time })
    })
}
