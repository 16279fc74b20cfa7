//! The SQL engine: read-only statements, each with a budget of memory, disk and time, on dedicated
//! threads.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::{CatalogProviderList, MemoryCatalogProviderList};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, TrackConsumersPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use forebay_core::{Error, ErrorCode, Result};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::chain_planner::ChainPlanner;
use crate::datafusion_24686;
use crate::deadline::{too_long, with_deadline};
use crate::error::from_engine;
use crate::functions::functions;
use crate::statement_limits;
use crate::table::{Batches, Catalog, Tables};

/// Name of the only catalog.
pub(crate) const CATALOG: &str = "forebay";
/// Rows per batch.
const BATCH_ROWS: usize = 2_048;
/// Stack for the recursion over the deepest statement that the limits allow, in a build without
/// optimisation (`deepest_statements_within_the_limits_are_answered`). Unused pages cost no memory.
const STACK_BYTES: usize = 64 << 20;
/// Number of memory consumers that an error names.
const NAMED_CONSUMERS: NonZeroUsize = NonZeroUsize::new(3).unwrap();

/// Limits of statements.
#[derive(Clone, Debug)]
pub struct SqlOptions {
    /// Memory of all concurrent statements, in bytes.
    pub memory_bytes: usize,
    /// Disk space that each statement may use to spill, in bytes.
    pub spill_bytes: u64,
    /// Dedicated spill folder; the engine empties the folder at start, and creates it if needed.
    pub spill_dir: PathBuf,
    /// Concurrent statements; further statements wait.
    pub at_once: usize,
    /// Longest wait of a statement for its turn.
    pub turn_wait: Duration,
    /// Longest time of a statement, from its turn until its last row.
    pub deadline: Duration,
}

impl SqlOptions {
    /// Returns limits of 256 MiB for four statements of a minute, each of which may spill 1 GiB
    /// into this folder.
    pub fn new(spill_dir: impl Into<PathBuf>) -> Self {
        Self {
            memory_bytes: 256 << 20,
            spill_bytes: 1 << 30,
            spill_dir: spill_dir.into(),
            at_once: 4,
            turn_wait: Duration::from_secs(60),
            deadline: Duration::from_secs(60),
        }
    }
}

/// An engine that runs statements over tables. Cheap to clone; dropping the last clone ends the
/// running statements.
#[derive(Clone)]
pub struct SqlEngine(Arc<Inner>);

struct Inner {
    schemas: Arc<Catalog>,
    options: SqlOptions,
    turns: Arc<Semaphore>,
    /// Turns of planning, which outlasts a statement that ends at its deadline.
    planning: Arc<Semaphore>,
    runtime: Option<Runtime>,
    threads: usize,
}

/// The rows of a statement. Dropping them ends the statement.
pub struct Rows {
    /// Columns of the rows.
    pub schema: SchemaRef,
    /// Batches of rows.
    pub batches: Batches,
}

impl SqlEngine {
    /// Starts an engine over the tables of some schemas. Statements need not name the first schema.
    ///
    /// # Errors
    /// `Unavailable` if the machine provides no threads, or the disk refuses.
    pub fn start(
        schemas: Vec<(&'static str, Arc<dyn Tables>)>,
        options: SqlOptions,
    ) -> Result<Self> {
        let folder_error = |error| {
            let folder = options.spill_dir.display();
            Error::unavailable(format!(
                "the spill folder {folder} of statements cannot be used: {error}"
            ))
        };
        // A killed process may have left files in the folder.
        match std::fs::remove_dir_all(&options.spill_dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(folder_error(error));
            }
            _ => std::fs::create_dir_all(&options.spill_dir).map_err(folder_error)?,
        }
        let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("sql")
            .thread_stack_size(STACK_BYTES)
            .enable_time()
            .build();
        let runtime_error =
            |error| Error::unavailable(format!("the threads of SQL did not start: {error}"));
        let turns = || Arc::new(Semaphore::new(options.at_once.max(1)));
        let (turns, planning) = (turns(), turns());
        let (runtime, schemas) =
            (Some(runtime.map_err(runtime_error)?), Arc::new(Catalog(schemas)));
        Ok(Self(Arc::new(Inner { schemas, options, turns, planning, runtime, threads })))
    }

    /// Returns the schemas with their tables.
    pub(crate) fn schemas(&self) -> &[(&'static str, Arc<dyn Tables>)] {
        &self.0.schemas.0
    }

    /// Returns the columns of a statement's result.
    ///
    /// # Errors
    /// As [`SqlEngine::run`], except for errors of rows.
    pub async fn columns(&self, sql: &str) -> Result<SchemaRef> {
        let deadline = Instant::now() + self.0.options.deadline;
        let (inner, sql) = (Arc::clone(&self.0), sql.to_owned());
        let columns =
            async move { inner.plan(&sql, deadline).await.map(|(_, plan)| schema_of(&plan)) };
        self.plan_until(deadline, columns.boxed()).await
    }

    /// Runs a statement.
    ///
    /// # Errors
    /// - `InvalidArgument`: the text is no statement, does not match the tables, or does more than
    ///   read.
    /// - `LimitExceeded`: the statement is too long, or needs more memory or disk than its budget.
    /// - `DeadlineExceeded`: the statement takes too long.
    /// - `Unavailable`: the turn of the statement does not come in time.
    /// - The errors of the tables.
    ///
    /// An error that occurs in a row is the last item of the rows.
    pub async fn run(&self, sql: &str) -> Result<Rows> {
        let turn = Arc::clone(&self.0.turns).acquire_owned();
        let turn = tokio::time::timeout(self.0.options.turn_wait, turn).await;
        let busy = "too many statements run at once; end some, or ask again";
        let turn = turn.map_err(|_| Error::unavailable(busy))?;
        let turn = turn.map_err(|_| closed_error())?;
        let deadline = Instant::now() + self.0.options.deadline;
        let (inner, sql) = (Arc::clone(&self.0), sql.to_owned());
        let begin = async move {
            let (context, plan) = inner.plan(&sql, deadline).await?;
            let schema = schema_of(&plan);
            let data_frame = context.execute_logical_plan(plan).await;
            let rows = match data_frame {
                Ok(data_frame) => data_frame.execute_stream().await,
                Err(error) => Err(error),
            };
            Ok((schema, rows.map_err(|error| from_engine(&error))?))
        };
        let (schema, mut rows) = self.plan_until(deadline, begin.boxed()).await?;
        let (send, receiver) = mpsc::channel(1);
        let mut tasks = JoinSet::new();
        let pump = async move {
            let _turn = turn;
            loop {
                let next = tokio::time::timeout_at(deadline, rows.next()).await;
                let item = match next {
                    Err(_) => Err(too_long()),
                    Ok(None) => return,
                    Ok(Some(batch)) => batch.map_err(|error| from_engine(&error)),
                };
                let is_last = item.is_err();
                let sent = tokio::time::timeout_at(deadline, send.send(item)).await;
                if is_last || !matches!(sent, Ok(Ok(()))) {
                    return;
                }
            }
        };
        tasks.spawn_on(pump, self.handle()?);
        Ok(Rows { schema, batches: batches(receiver, tasks) })
    }

    /// Plans on a thread of its own, and returns at the deadline even if the planner does not. The
    /// planner goes on until it next checks the deadline, or until it next waits after the caller
    /// has stopped waiting; its turn bounds the number of such threads.
    async fn plan_until<T: Send + 'static>(
        &self,
        deadline: Instant,
        planning: BoxFuture<'static, Result<T>>,
    ) -> Result<T> {
        let plan_task = async {
            let turn =
                Arc::clone(&self.0.planning).acquire_owned().await.map_err(|_| closed_error())?;
            let (mut send, receiver) = oneshot::channel();
            let plan = move || {
                let _turn = turn;
                let result = Handle::current().block_on(async {
                    tokio::select! {
                        result = planning => Some(result),
                        () = send.closed() => None,
                    }
                });
                result.map(|result| send.send(result))
            };
            self.handle()?.spawn_blocking(plan);
            receiver.await.map_err(|_| failure_error())?
        };
        tokio::time::timeout_at(deadline, plan_task).await.map_err(|_| too_long())?
    }

    fn handle(&self) -> Result<&Handle> {
        Ok(self.0.runtime.as_ref().ok_or_else(closed_error)?.handle())
    }
}

impl Inner {
    /// Plans a read-only statement in a new context, until the deadline.
    async fn plan(&self, sql: &str, deadline: Instant) -> Result<(SessionContext, LogicalPlan)> {
        statement_limits::check(sql)?;
        let context = self.context(deadline)?;
        let state = context.state();
        let dialect = state.config_options().sql_parser.dialect;
        let statement =
            state.sql_to_statement(sql, &dialect).map_err(|error| from_engine(&error))?;
        statement_limits::check_tables(&statement)?;
        let plan = state.statement_to_plan(statement).await.map_err(|error| from_engine(&error))?;
        statement_limits::check_plan(&plan)?;
        let only_reads = SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false);
        only_reads.verify_plan(&plan).map_err(|error| from_engine(&error))?;
        let state = datafusion_24686::without_faulty_rule(context.state(), &plan)
            .map_err(|error| from_engine(&error))?;
        Ok((SessionContext::new_with_state(state), plan))
    }

    /// Returns a context with a memory and disk budget, and with the tables and functions.
    fn context(&self, deadline: Instant) -> Result<SessionContext> {
        let options = &self.options;
        let pool = FairSpillPool::new(options.memory_bytes / options.at_once.max(1));
        let disk = DiskManagerBuilder::default()
            .with_mode(DiskManagerMode::Directories(vec![options.spill_dir.clone()]))
            .with_max_temp_directory_size(options.spill_bytes);
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(TrackConsumersPool::new(pool, NAMED_CONSUMERS)))
            .with_disk_manager_builder(disk)
            .build_arc()
            .map_err(|error| from_engine(&error))?;
        let (first, _) =
            self.schemas.0.first().ok_or_else(|| Error::internal("the statement has no tables"))?;
        let config = SessionConfig::new()
            .with_default_catalog_and_schema(CATALOG, *first)
            .with_create_default_catalog_and_schema(false)
            .with_information_schema(true)
            .with_batch_size(BATCH_ROWS)
            .with_target_partitions(self.threads)
            .set_bool("datafusion.execution.enable_recursive_ctes", false)
            .set_str("datafusion.execution.time_zone", "UTC");
        let catalogs = MemoryCatalogProviderList::new();
        catalogs.register_catalog(CATALOG.to_owned(), Arc::clone(&self.schemas) as _);
        let mut state = SessionStateBuilder::new_with_default_features()
            .with_config(config)
            .with_runtime_env(runtime)
            .with_catalog_list(Arc::new(catalogs))
            .with_scalar_functions(functions())
            .with_table_function_list(Vec::new())
            .with_file_formats(Vec::new());
        if let Some(planners) = state.expr_planners() {
            planners.insert(0, Arc::new(ChainPlanner));
        }
        Ok(SessionContext::new_with_state(with_deadline(state, deadline).build()))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The runtime's own threads may drop the engine.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn schema_of(plan: &LogicalPlan) -> SchemaRef {
    let schema: &Schema = plan.schema().as_arrow();
    Arc::new(schema.clone())
}

/// Returns the batches that a task sends, followed by an error if the task failed.
fn batches(
    receiver: mpsc::Receiver<Result<arrow::array::RecordBatch>>,
    tasks: JoinSet<()>,
) -> Batches {
    let rows: BoxStream<'static, _> =
        Box::pin(stream::unfold(Some((receiver, tasks)), |state| async move {
            let (mut receiver, mut tasks) = state?;
            if let Some(batch) = receiver.recv().await {
                return Some((batch, Some((receiver, tasks))));
            }
            match tasks.join_next().await {
                Some(Ok(())) => None,
                _ => Some((Err(failure_error()), None)),
            }
        }));
    rows
}

fn closed_error() -> Error {
    Error::new(ErrorCode::Closed, "the engine has ended")
}

fn failure_error() -> Error {
    Error::internal("the engine failed during the statement; see the service's log")
}
