//! The lookup of a store by its name: the control log's answer, and local files that are opened
//! during the query.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use forebay_core::catalog::SchemaAt;
use forebay_core::id::{PartitionRef, StoreId};
use forebay_core::limits::{READER_LOG_TIMEOUT_MS, SPECULATIVE_OPEN_MS_MAX};
use forebay_core::{Error, Result};
use forebay_log::disk::Disk;
use forebay_replica::replica_backoff;
use futures::future::BoxFuture;
use tokio::task::JoinSet;

use crate::local_open::SpeculativeOpen;
use crate::options::{ReaderOptions, ReaderParts};

/// The facts about the store that are known before it is opened.
pub(crate) struct StoreFacts {
    pub parts: ReaderParts,
    pub versions: Vec<Arc<SchemaAt>>,
    pub speculative_open: Option<SpeculativeOpen>,
}

/// Queries the store that the name stands for. While the query, or the connection that it needs, is
/// in progress, opens local files of the store that last had the name.
pub(crate) async fn find_store(
    options: &ReaderOptions,
    disk: Option<Arc<dyn Disk>>,
    parts: BoxFuture<'static, Result<ReaderParts>>,
) -> Result<StoreFacts> {
    let (name, open_timeout) = (options.store.clone(), options.open_timeout);
    let mut asking = Box::pin(async move {
        let parts = parts.await?;
        let versions =
            tokio::time::timeout(open_timeout, ask_for_store(&name, &parts, open_timeout)).await;
        let versions = versions.unwrap_or_else(|_| {
            let message = "the control log was not read in time; check that the log is reachable";
            Err(Error::unavailable(message))
        });
        Ok::<_, Error>((parts, versions.map_err(|error| error.with_store(&name))?))
    });
    let answer = futures::poll!(asking.as_mut());
    // The query is in progress, and continues in a task of its own, which ends with this call.
    let mut query_tasks = JoinSet::new();
    if answer.is_pending() {
        query_tasks.spawn(asking);
    }
    let mut speculative_open = SpeculativeOpen::look(options, disk.as_ref());
    let (parts, versions) = match answer {
        Poll::Ready(answer) => answer?,
        Poll::Pending => {
            let soon = Duration::from_millis(SPECULATIVE_OPEN_MS_MAX);
            let soon = tokio::time::timeout(soon, query_tasks.join_next()).await;
            let answer = match soon {
                Ok(answer) => answer,
                Err(_) => {
                    speculative_open = None;
                    query_tasks.join_next().await
                }
            };
            match answer {
                Some(Ok(answer)) => answer?,
                // Propagates the panic as if the query had run here.
                Some(Err(join_error)) if join_error.is_panic() => {
                    resume_unwind(join_error.into_panic())
                }
                _ => {
                    let message =
                        "the runtime ended while the reader was opening; open the reader again";
                    return Err(Error::closed(message));
                }
            }
        }
    };
    Ok(StoreFacts { parts, versions, speculative_open })
}

async fn ask_for_store(
    name: &str,
    parts: &ReaderParts,
    wait_max: Duration,
) -> Result<Vec<Arc<SchemaAt>>> {
    if let Ok(schema) = parts.catalog.catalog().store_by_name(name) {
        // The store is known already, so an unreachable log does not prevent the open.
        schema.definition.check_is_of_documents()?;
        let live = schema.definition.versions.live().storage_id;
        return Ok(versions_of(parts, live));
    }
    let mut backoff = replica_backoff();
    let end = loop {
        let silence_max = Duration::from_millis(READER_LOG_TIMEOUT_MS);
        let bounds = parts.log.bounds(PartitionRef::CONTROL);
        match tokio::time::timeout(silence_max, bounds).await {
            Ok(Ok(bounds)) => break bounds.end,
            Ok(Err(error)) if !error.code().is_retryable() => return Err(error),
            _ => tokio::time::sleep(backoff.next_wait(&*parts.entropy)).await,
        }
    };
    parts.catalog.wait_applied(end, wait_max).await?;
    let live =
        parts.catalog.catalog().document_store_by_name(name)?.definition.versions.live().storage_id;
    Ok(versions_of(parts, live))
}

/// Returns the definitions of a store version, in ascending order.
pub(crate) fn versions_of(parts: &ReaderParts, store: StoreId) -> Vec<Arc<SchemaAt>> {
    parts.catalog.catalog().definitions(store).cloned().collect()
}
