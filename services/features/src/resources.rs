//! The views and streams that the reconciler opens and closes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_core::catalog::{Catalog, SchemaAt};
use forebay_core::id::{PartitionId, StoreId};
use forebay_log::PartitionAssignment;
use forebay_runtime::{OpenResources, ServiceResources, remove_dropped};
use tokio::sync::Notify;
use tracing::warn;

use crate::events::DerivedOffsets;
use crate::parts::FeatureParts;
use crate::streams::OpenStream;
use crate::views::{Assignment, OpenView};

/// The views and streams of this process, for the reconciler.
pub(crate) struct FeatureResources {
    pub(crate) parts: FeatureParts,
    pub(crate) views: OpenResources<OpenView>,
    pub(crate) streams: OpenResources<OpenStream>,
    /// Offsets up to which views have derived the events of streams, which may then be trimmed.
    pub(crate) derived: DerivedOffsets,
    /// Notified when a view or stream must be reopened.
    pub(crate) reopen: Arc<Notify>,
}

/// Definitions by store.
type Schemas = BTreeMap<StoreId, Arc<SchemaAt>>;

impl FeatureResources {
    fn open_streams(&self, streams: Schemas, own_partitions: &PartitionAssignment) -> bool {
        let mut complete = true;
        for (store, schema) in streams {
            if self.streams.lock().contains_key(&store) {
                continue;
            }
            let (assigned, shared) = (assigned_events(&schema, own_partitions), self.shared());
            match OpenStream::open(&self.parts, &schema, assigned, shared) {
                Ok(stream) => drop(self.streams.lock().insert(store, stream)),
                Err(error) => {
                    warn!(stream = %schema.definition.name, %error, "stream not opened yet");
                    complete = false;
                }
            }
        }
        complete
    }

    fn open_views(
        &self,
        views: Schemas,
        (catalog, own_partitions): (&Catalog, &PartitionAssignment),
    ) -> bool {
        let mut complete = true;
        for (store, schema) in views {
            if self.views.lock().contains_key(&store) {
                continue;
            }
            let (assigned, shared) = (assignment(&schema, catalog, own_partitions), self.shared());
            match OpenView::open(&self.parts, &schema, assigned, shared) {
                Ok(view) => drop(self.views.lock().insert(store, view)),
                Err(error) => {
                    warn!(view = %schema.definition.name, %error, "view not opened yet");
                    complete = false;
                }
            }
        }
        complete
    }

    fn shared(&self) -> (DerivedOffsets, Arc<Notify>) {
        (self.derived.clone(), Arc::clone(&self.reopen))
    }
}

impl ServiceResources for FeatureResources {
    fn logs(&self, catalog: &Catalog) -> BTreeSet<StoreId> {
        let (views, streams) = views_and_streams(catalog);
        let schemas = views.values().chain(streams.values());
        schemas.map(|schema| schema.definition.write_logs().store).collect()
    }

    async fn close_stale(&self, catalog: &Catalog, assigned: &PartitionAssignment) {
        let (views, streams) = views_and_streams(catalog);
        self.views.close_where(|store, _| !views.contains_key(&store)).await;
        self.streams.close_where(|store, _| !streams.contains_key(&store)).await;
        let stored = self.parts.shards.stores().unwrap_or_default();
        let is_active = |store| views.contains_key(&store) || streams.contains_key(&store);
        let shards = self.parts.shards.clone();
        remove_dropped(catalog, stored, is_active, move |store| shards.remove(store)).await;
        let is_stale = |store: StoreId, open: &OpenStream| {
            let schema = streams.get(&store);
            schema.is_some_and(|schema| !open.matches(schema, &assigned_events(schema, assigned)))
        };
        self.streams.close_where(is_stale).await;
        let is_stale = |store: StoreId, open: &OpenView| {
            let schema = views.get(&store);
            schema
                .is_some_and(|schema| !open.matches(schema, &assignment(schema, catalog, assigned)))
        };
        self.views.close_where(is_stale).await;
    }

    async fn open_missing(&self, catalog: &Catalog, assigned: &PartitionAssignment) -> bool {
        let (views, streams) = views_and_streams(catalog);
        let are_streams_open = self.open_streams(streams, assigned);
        self.open_views(views, (catalog, assigned)) && are_streams_open
    }
}

/// Returns the active views and the active streams that are no views.
fn views_and_streams(catalog: &Catalog) -> (Schemas, Schemas) {
    let streams = catalog.active_stores().filter(|schema| schema.definition.stream.is_some());
    let streams = streams.map(|schema| (schema.definition.store, Arc::clone(schema)));
    streams.partition(|(_, schema)| schema.definition.view().is_some())
}

/// Returns the partitions whose events are stored here.
fn assigned_events(
    schema: &SchemaAt,
    own_partitions: &PartitionAssignment,
) -> BTreeSet<PartitionId> {
    let logs = schema.definition.write_logs();
    own_partitions.of(logs.store, logs.partitions)
}

fn assignment(
    schema: &SchemaAt,
    catalog: &Catalog,
    own_partitions: &PartitionAssignment,
) -> Assignment {
    let source = schema.definition.view().and_then(|view| catalog.store(view.source));
    let source = source.and_then(|history| history.newest());
    let derived = source.map(|source| assigned_events(source, own_partitions));
    (assigned_events(schema, own_partitions), derived.unwrap_or_default())
}
