//! The tables of statements, and the engine's access to them.

use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, Session, TableProvider};
use datafusion::error::Result as EngineResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use forebay_core::Result;
use futures::future::{BoxFuture, ready};
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};

use crate::bounds::Bounds;
use crate::error::external;

/// Batches of rows. The first error is the last item.
pub type Batches = BoxStream<'static, Result<RecordBatch>>;

/// The tables of one schema.
#[async_trait]
pub trait Tables: Debug + Send + Sync + 'static {
    /// Returns the names of the tables, sorted.
    fn names(&self) -> Vec<String>;

    /// Returns a table; `None` if no table has this name.
    ///
    /// # Errors
    /// The errors of the storage.
    async fn table(&self, name: &str) -> Result<Option<Arc<dyn Table>>>;
}

/// A table whose rows are read in independent parts.
pub trait Table: Debug + Send + Sync + 'static {
    /// Returns the columns.
    fn schema(&self) -> SchemaRef;

    /// Returns the number of parts.
    fn parts(&self) -> usize;

    /// Returns the rows of a part with the requested columns, in the requested order: all rows
    /// within the bounds, and possibly others, which the engine filters out.
    fn rows(&self, part: usize, scan: &TableScan) -> Batches;
}

/// Columns and rows that a scan requests.
#[derive(Clone, Debug)]
pub struct TableScan {
    /// Indexes of the columns.
    pub columns: Vec<usize>,
    /// Bounds that every requested row satisfies.
    pub bounds: Vec<Bounds>,
}

/// The schemas by name, as a catalog of the engine.
#[derive(Debug)]
pub(crate) struct Catalog(pub(crate) Vec<(&'static str, Arc<dyn Tables>)>);

impl CatalogProvider for Catalog {
    fn schema_names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let (_, tables) = self.0.iter().find(|(it, _)| *it == name)?;
        Some(Arc::new(Namespace(Arc::clone(tables))))
    }
}

/// A schema, as the engine sees it.
#[derive(Debug)]
struct Namespace(Arc<dyn Tables>);

#[async_trait]
impl SchemaProvider for Namespace {
    fn table_names(&self) -> Vec<String> {
        self.0.names()
    }

    async fn table(&self, name: &str) -> EngineResult<Option<Arc<dyn TableProvider>>> {
        let table = self.0.table(name).await.map_err(external)?;
        Ok(table.map(|table| Arc::new(Readable(table)) as Arc<dyn TableProvider>))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.0.names().iter().any(|it| it == name)
    }
}

/// A table, as the engine sees it.
#[derive(Debug)]
struct Readable(Arc<dyn Table>);

impl Readable {
    /// Returns the execution of a scan: chains of the table's parts.
    fn plan_scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let schema = self.0.schema();
        let all = || (0..schema.fields().len()).collect();
        let scan = TableScan {
            columns: projection.cloned().unwrap_or_else(all),
            bounds: filters.iter().filter_map(|filter| Bounds::of(filter, &schema)).collect(),
        };
        let schema = Arc::new(schema.project(&scan.columns)?);
        let (parts, chains) = (self.0.parts(), session.config().target_partitions().max(1));
        // A table without parts gets one empty chain.
        let chains = (0..chains.min(parts.max(1))).map(|first| {
            let parts = (first..parts).step_by(chains).collect();
            let (table, schema) = (Arc::clone(&self.0), Arc::clone(&schema));
            Arc::new(Chain { table, scan: scan.clone(), parts, schema }) as _
        });
        let chains = chains.collect();
        Ok(Arc::new(StreamingTableExec::try_new(schema, chains, None, [], false, limit)?))
    }
}

impl TableProvider for Readable {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    // Written as `async_trait` expands it, but without a coroutine: for one that holds expressions,
    // the compiler proves `Send` for all types of a plan again and again.
    fn scan<'table, 'session, 'columns, 'filters, 'plan>(
        &'table self,
        session: &'session dyn Session,
        projection: Option<&'columns Vec<usize>>,
        filters: &'filters [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'plan, EngineResult<Arc<dyn ExecutionPlan>>>
    where
        'table: 'plan,
        'session: 'plan,
        'columns: 'plan,
        'filters: 'plan,
        Self: 'plan,
    {
        ready(self.plan_scan(session, projection, filters, limit)).boxed()
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> EngineResult<Vec<TableProviderFilterPushDown>> {
        let schema = self.0.schema();
        let pushdown_of = |filter: &&Expr| match Bounds::of(filter, &schema) {
            Some(_) => TableProviderFilterPushDown::Inexact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(pushdown_of).collect())
    }
}

/// Parts of a table that are read one after the other.
#[derive(Debug)]
struct Chain {
    table: Arc<dyn Table>,
    scan: TableScan,
    parts: Vec<usize>,
    schema: SchemaRef,
}

impl PartitionStream for Chain {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (table, scan) = (Arc::clone(&self.table), self.scan.clone());
        let parts = stream::iter(self.parts.clone());
        let rows = parts.flat_map(move |part| table.rows(part, &scan));
        let rows = rows.map(|batch| batch.map_err(external));
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), rows))
    }
}
