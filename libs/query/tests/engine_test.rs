//! Statements against tables in memory: their results, the requests that tables receive, and the
//! end of statements that exceed their budget.

use std::fmt;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Int64Type, Schema, SchemaRef};
use async_trait::async_trait;
use forebay_arrow::{arrow_type, column};
use forebay_core::limits::SQL_OPERATORS_MAX;
use forebay_core::value::{FieldType, Value};
use forebay_core::{Error, ErrorCode, Result};
use forebay_query::{Batches, Bounds, SqlEngine, SqlOptions, Table, TableScan, Tables};
use futures::stream::{self, StreamExt, TryStreamExt};

const PARTS: i64 = 3;
const ROWS_OF_PART: i64 = 1_000;
const BATCH: i64 = 100;

/// Behaviour of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// `n` from 0 to 2,999 and its `text`.
    Numbers,
    /// The table hangs after its first batch.
    Stuck,
    /// The table fails after its first batch.
    Failing,
    /// The table panics after its first batch.
    Panicking,
}

#[derive(Debug, Default)]
struct Observations {
    scans: Mutex<Vec<TableScan>>,
    batches: AtomicUsize,
}

#[derive(Clone, Debug)]
struct Memory(Kind, Arc<Observations>);

#[derive(Default)]
struct AllTables(Arc<Observations>);

impl fmt::Debug for AllTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AllTables")
    }
}

#[async_trait]
impl Tables for AllTables {
    fn names(&self) -> Vec<String> {
        ["failing", "numbers", "panicking", "stuck"].map(str::to_owned).to_vec()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn Table>>> {
        let kind = match name {
            "numbers" => Kind::Numbers,
            "stuck" => Kind::Stuck,
            "failing" => Kind::Failing,
            "panicking" => Kind::Panicking,
            "elsewhere" => return Err(Error::unavailable("it is elsewhere")),
            _ => return Ok(None),
        };
        Ok(Some(Arc::new(Memory(kind, Arc::clone(&self.0)))))
    }
}

fn int64() -> FieldType {
    FieldType::INT64
}

fn text() -> FieldType {
    FieldType::STRING
}

impl Memory {
    fn batch(&self, from: i64, scan: &TableScan) -> RecordBatch {
        self.1.batches.fetch_add(1, Ordering::SeqCst);
        let numbers = || from..from + BATCH;
        let n = column(int64(), numbers().map(|n| Some(Value::Int64(n))).collect()).unwrap();
        let texts = numbers().map(|n| Some(Value::String(format!("text of {n}"))));
        let texts = column(text(), texts.collect()).unwrap();
        let columns = scan.columns.iter().map(|place| [&n, &texts][*place].clone()).collect();
        let schema = Arc::new(self.schema().project(&scan.columns).unwrap());
        let options = RecordBatchOptions::new().with_row_count(Some(BATCH as usize));
        RecordBatch::try_new_with_options(schema, columns, &options).unwrap()
    }
}

impl Table for Memory {
    fn schema(&self) -> SchemaRef {
        let field = |name, data_type| Field::new(name, arrow_type(data_type), true);
        Arc::new(Schema::new(vec![field("n", int64()), field("text", text())]))
    }

    fn parts(&self) -> usize {
        PARTS as usize
    }

    fn rows(&self, part: usize, scan: &TableScan) -> Batches {
        self.1.scans.lock().unwrap().push(scan.clone());
        let (table, scan) = (self.clone(), scan.clone());
        let first = part as i64 * ROWS_OF_PART;
        let begins = (first..first + ROWS_OF_PART).step_by(BATCH as usize);
        stream::iter(begins)
            .then(move |from| {
                let (table, scan) = (table.clone(), scan.clone());
                async move {
                    match table.0 {
                        Kind::Numbers => {}
                        _ if from == first => {}
                        Kind::Stuck => std::future::pending().await,
                        Kind::Failing => return Err(Error::corrupt("a damaged row")),
                        Kind::Panicking => panic!("planned by the test"),
                    }
                    Ok(table.batch(from, &scan))
                }
            })
            .boxed()
    }
}

/// An engine over these tables, and the requests that they received.
struct Setup {
    engine: SqlEngine,
    observations: Arc<Observations>,
    _folder: tempfile::TempDir,
}

impl Setup {
    fn new(change: impl FnOnce(&mut SqlOptions)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut options = SqlOptions::new(folder.path().join("sql"));
        change(&mut options);
        let observations = Arc::<Observations>::default();
        let tables: Arc<dyn Tables> = Arc::new(AllTables(Arc::clone(&observations)));
        let engine = SqlEngine::start(vec![("events", tables)], options).unwrap();
        Self { engine, observations, _folder: folder }
    }

    async fn batches(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        self.engine.run(sql).await?.batches.try_collect().await
    }

    /// Returns the first column, of integers.
    async fn numbers(&self, sql: &str) -> Vec<i64> {
        let batches = self.batches(sql).await.unwrap();
        let column = |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().clone();
        let columns = batches.iter().map(column);
        columns.flat_map(|column| column.values().to_vec()).collect()
    }

    async fn refusal(&self, sql: &str) -> Error {
        match self.batches(sql).await {
            Ok(_) => panic!("`{sql}` is answered"),
            Err(error) => error,
        }
    }
}

fn setup() -> Setup {
    Setup::new(|_| {})
}

/// Returns a setup for statements that take seconds to plan, and longer on a busy machine.
fn patient_setup() -> Setup {
    Setup::new(|options| options.deadline = Duration::from_secs(600))
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_are_answered() {
    let setup = setup();
    let sum: i64 = (0..3_000).sum();
    assert_eq!(setup.numbers("SELECT sum(n) FROM numbers").await, [sum]);
    assert_eq!(setup.numbers("SELECT count(*) FROM events.numbers").await, [3_000]);
    let last = "SELECT n FROM forebay.events.numbers ORDER BY n DESC LIMIT 2";
    assert_eq!(setup.numbers(last).await, [2_999, 2_998]);
    let grouped_sql = "SELECT n % 3 AS k, count(*) FROM numbers WHERE n < 10 GROUP BY k ORDER BY k";
    assert_eq!(setup.numbers(grouped_sql).await, [0, 1, 2]);
    let joined_sql = "SELECT a.n FROM numbers a JOIN numbers b ON a.n = b.n + 2990 ORDER BY 1";
    assert_eq!(setup.numbers(joined_sql).await, (2_990..3_000).collect::<Vec<_>>());
    let text = setup.batches("SELECT text || '!' FROM numbers WHERE n = 7").await.unwrap();
    assert_eq!(text[0].column(0).as_string::<i32>().value(0), "text of 7!");
    let text = setup.batches("SELECT concat(text, NULL, 1), NULL || text FROM numbers WHERE n = 0");
    let text = text.await.unwrap();
    assert_eq!(text[0].column(0).as_string::<i32>().value(0), "text of 01");
    assert_eq!(text[0].column(1).null_count(), 1);
    let listed_sql = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'events'";
    assert_eq!(setup.numbers(listed_sql).await, [4]);
    let columns = setup.engine.columns("SELECT n AS x, text FROM numbers").await.unwrap();
    assert_eq!(columns.field(0).name(), "x");
    assert!(setup.batches("EXPLAIN SELECT n FROM numbers").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn table_receives_requested_columns_and_bounds() {
    let setup = setup();
    let sql = "SELECT text FROM numbers WHERE n >= 5 AND 8 > n AND text <> 'x'";
    let batches = setup.batches(sql).await.unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 3);
    let scan = setup.observations.scans.lock().unwrap()[0].clone();
    let bounds = |from, to| Bounds { column: 0, from, to };
    let int = Value::Int64;
    assert!(scan.bounds.contains(&bounds(Bound::Included(int(5)), Bound::Unbounded)));
    assert!(scan.bounds.contains(&bounds(Bound::Unbounded, Bound::Excluded(int(8)))));
    setup.observations.scans.lock().unwrap().clear();
    setup.numbers("SELECT count(*) FROM numbers").await;
    let scans = setup.observations.scans.lock().unwrap();
    assert_eq!((scans.len(), scans[0].columns.len()), (PARTS as usize, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn engine_refuses_statements_that_write() {
    let setup = setup();
    for sql in [
        "CREATE TABLE t AS SELECT 1",
        "CREATE VIEW v AS SELECT 1",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
        "COPY (SELECT 1) TO '/tmp/forebay-copied.csv'",
        "INSERT INTO numbers VALUES (1, 'a')",
        "DROP TABLE numbers",
        "SET datafusion.execution.batch_size = 1",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM range(10)",
        "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT * FROM t",
        "SELECT repeat('x', 10)",
        "SELECT nothing FROM numbers",
        "SELECT n FROM nowhere",
        "SELECT n / 0 FROM numbers",
        "SELECT 1; SELECT 2",
        "SELEKT 1",
        "SELECT 'open",
        "",
    ] {
        let code = setup.refusal(sql).await.code();
        let codes = [ErrorCode::InvalidArgument, ErrorCode::Unsupported];
        assert!(codes.contains(&code), "{sql}: {code:?}");
    }
    assert_eq!(setup.refusal("SELECT * FROM elsewhere").await.code(), ErrorCode::Unavailable);
}

/// Proves that the process survives a statement of any depth.
#[tokio::test(flavor = "multi_thread")]
async fn engine_refuses_long_and_deep_statements() {
    let setup = patient_setup();
    let chain = |terms: usize| format!("SELECT 1{}", " + 1".repeat(terms));
    let error = setup.refusal(&chain(15_000)).await;
    assert_eq!(error.code(), ErrorCode::LimitExceeded, "{error}");
    let error = setup.refusal(&format!("SELECT '{}'", "x".repeat(70_000))).await;
    assert_eq!(error.code(), ErrorCode::LimitExceeded, "{error}");
    assert_eq!(setup.numbers(&chain(1_990)).await, [1_991]);
    let ors = "SELECT count(*) FROM numbers WHERE n = 0".to_owned() + &" OR n = 1".repeat(400);
    assert_eq!(setup.numbers(&ors).await, [2]);
    let deep = format!("SELECT {}1{}", "(".repeat(900), ")".repeat(900));
    assert_eq!(setup.refusal(&deep).await.code(), ErrorCode::InvalidArgument);
    let nested = format!("{}SELECT 1{}", "SELECT * FROM (".repeat(300), ")".repeat(300));
    assert_eq!(setup.refusal(&nested).await.code(), ErrorCode::InvalidArgument);
    let items: Vec<_> = (0..5_000).map(|n| n.to_string()).collect();
    let list = format!("SELECT count(*) FROM numbers WHERE n IN ({})", items.join(", "));
    assert_eq!(setup.numbers(&list).await, [3_000]);
}

/// Proves that the engine's threads have the stack for the deepest statement of each kind that the
/// limits allow: a plan's recursion follows the longest chain.
#[tokio::test(flavor = "multi_thread")]
async fn deepest_statements_within_the_limits_are_answered() {
    let setup = patient_setup();
    let repeat = |first: &str, link: &str, links: usize| first.to_owned() + &link.repeat(links);
    let where_ = |condition: String| format!("SELECT count(*) FROM numbers WHERE {condition}");
    let sum = repeat("SELECT 1", " + 1", SQL_OPERATORS_MAX - 10);
    assert_eq!(setup.numbers(&sum).await, [SQL_OPERATORS_MAX as i64 - 9]);
    let column = repeat("SELECT count(n", " + n", (SQL_OPERATORS_MAX - 20) / 2) + ") FROM numbers";
    assert_eq!(setup.numbers(&column).await, [3_000]);
    let or_sql = where_(repeat("n = 0", " OR n = 1", (SQL_OPERATORS_MAX - 20) / 3));
    assert_eq!(setup.numbers(&or_sql).await, [2]);
    let all = where_(repeat("n >= 0", " AND n + 1 > n", (SQL_OPERATORS_MAX - 20) / 5));
    assert_eq!(setup.numbers(&all).await, [3_000]);
    // The planner would format the whole remaining chain at each call of a function.
    let text = repeat("length(text", " || 'x'", SQL_OPERATORS_MAX - 20) + ")";
    let text = format!("SELECT CAST({text} - length(text) AS BIGINT) FROM numbers WHERE n = 7");
    assert_eq!(setup.numbers(&text).await, [SQL_OPERATORS_MAX as i64 - 20]);
    let union = repeat("SELECT 1", " UNION ALL SELECT 1", (SQL_OPERATORS_MAX - 20) / 3);
    let union = format!("SELECT count(*) FROM ({union})");
    assert_eq!(setup.numbers(&union).await, [(SQL_OPERATORS_MAX as i64 - 20) / 3 + 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_beyond_its_memory_fails_alone() {
    let setup = Setup::new(|options| {
        options.memory_bytes = 4 << 20;
        options.at_once = 2;
        options.spill_bytes = 1 << 20;
    });
    let pairs = "numbers a CROSS JOIN numbers b";
    for sql in [
        // The aggregated data does not fit into memory.
        format!("SELECT array_agg(a.text || b.text) FROM {pairs}"),
        format!("SELECT string_agg(a.text, ', ') FROM {pairs}"),
        // The spilled data exceeds the disk budget.
        format!("SELECT a.n, b.n, a.text FROM {pairs} ORDER BY a.n * b.n, b.text"),
        format!("SELECT count(DISTINCT a.text || b.text) FROM {pairs}"),
        format!(
            "SELECT x.n FROM (SELECT a.n, b.text t FROM {pairs}) x JOIN (SELECT a.n m, b.text t \
                 FROM {pairs}) y ON x.t = y.t AND x.n = y.m"
        ),
        // The budget does not count the result of a function, and each step doubles the string.
        (0..18).fold("SELECT text t FROM numbers".to_owned(), |query, _| {
            format!("SELECT t || t AS t FROM ({query})")
        }),
    ] {
        let error = setup.refusal(&sql).await;
        assert_eq!(error.code(), ErrorCode::LimitExceeded, "{sql}: {error}");
    }
    assert_eq!(setup.numbers("SELECT count(*) FROM numbers").await, [3_000]);
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_beyond_its_time_is_ended() {
    let setup = Setup::new(|options| options.deadline = Duration::from_millis(300));
    for sql in ["SELECT n FROM stuck", "SELECT sum(n) FROM stuck"] {
        assert_eq!(setup.refusal(sql).await.code(), ErrorCode::DeadlineExceeded);
    }
}

/// Returns a statement whose plan contains the innermost query 2^`levels` times.
fn double_query(levels: usize) -> String {
    let mut sql = "WITH q0 AS (SELECT n FROM numbers)".to_owned();
    for level in 1..=levels {
        let previous = level - 1;
        sql += &format!(", q{level} AS (SELECT a.n FROM q{previous} a CROSS JOIN q{previous} b)");
    }
    format!("{sql} SELECT count(*) FROM q{levels}")
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_beyond_its_size_limit_is_refused() {
    let setup = setup();
    for levels in [16, 100] {
        let error = setup.refusal(&double_query(levels)).await;
        assert_eq!(error.code(), ErrorCode::LimitExceeded, "{error}");
        assert!(error.to_string().contains("too many tables"), "{error}");
    }
    let aliases: Vec<_> = (0..400).map(|at| format!("numbers a{at}")).collect();
    let error = setup.refusal(&format!("SELECT 1 FROM {}", aliases.join(", "))).await;
    assert_eq!(error.code(), ErrorCode::LimitExceeded, "{error}");
    assert!(error.to_string().contains("plan"), "{error}");
}

/// Proves that a statement whose planning takes longer ends at its deadline, and that its planning
/// ends later: the only turn of planning comes back.
#[tokio::test(flavor = "multi_thread")]
async fn planning_ends_at_the_deadline() {
    let setup = Setup::new(|options| {
        options.deadline = Duration::from_millis(300);
        options.at_once = 1;
    });
    let sql = double_query(9);
    let result = tokio::time::timeout(Duration::from_secs(60), setup.refusal(&sql)).await;
    let error = result.expect("planning outlasts its deadline");
    assert_eq!(error.code(), ErrorCode::DeadlineExceeded);
    let retry = async { while setup.engine.columns("SELECT n FROM numbers").await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(60), retry).await.expect("the planner goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_returns_table_errors_and_contains_panics() {
    let setup = setup();
    let mut rows = setup.engine.run("SELECT n FROM failing").await.unwrap().batches;
    let error = loop {
        match rows.next().await.unwrap() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!((error.code(), error.message()), (ErrorCode::Corrupt, "a damaged row"));
    assert!(rows.next().await.is_none());
    assert_eq!(setup.refusal("SELECT n FROM panicking").await.code(), ErrorCode::Internal);
    assert_eq!(setup.numbers("SELECT count(*) FROM numbers").await, [3_000]);
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_waits_for_its_turn_and_ends_with_its_caller() {
    let setup = Setup::new(|options| options.at_once = 1);
    let first = setup.engine.run("SELECT n FROM stuck").await.unwrap();
    let engine = setup.engine.clone();
    let second = tokio::spawn(async move { engine.run("SELECT n FROM numbers").await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!second.is_finished(), "there is one turn");
    drop(first);
    let rows = second.await.unwrap().unwrap();
    drop(rows);
    assert_eq!(setup.numbers("SELECT count(*) FROM numbers").await, [3_000]);
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_without_a_turn_in_time_is_unavailable() {
    let setup = Setup::new(|options| {
        options.at_once = 1;
        options.turn_wait = Duration::from_millis(50);
    });
    // The test takes no rows of the first statement.
    let first = setup.engine.run("SELECT n FROM numbers").await.unwrap();
    assert_eq!(setup.refusal("SELECT n FROM numbers").await.code(), ErrorCode::Unavailable);
    drop(first);
}

#[tokio::test(flavor = "multi_thread")]
async fn engine_reads_batches_only_on_demand() {
    let setup = setup();
    let mut rows = setup.engine.run("SELECT n FROM numbers").await.unwrap().batches;
    rows.next().await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let read = setup.observations.batches.load(Ordering::SeqCst);
    let all = (PARTS * ROWS_OF_PART / BATCH) as usize;
    assert!(read < all, "{read} of {all} batches");
    let batches: Vec<_> = rows.try_collect().await.unwrap();
    let rows = batches.iter().map(RecordBatch::num_rows).sum::<usize>();
    assert!((2_000..3_000).contains(&rows), "{rows}");
}

/// Proves that projections that compute columns of the same names are not taken for each other.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_projection_is_computed_twice() {
    let setup = setup();
    let repeat_projection = |expression: &str, times: usize| {
        let query = "SELECT n, text AS t FROM numbers WHERE n = 7".to_owned();
        let sql = (0..times).fold(query, |query, _| format!("SELECT {expression} FROM ({query})"));
        format!("SELECT * FROM ({sql})")
    };
    for (times, expected) in [(1, 8), (2, 9), (6, 13)] {
        assert_eq!(
            setup.numbers(&repeat_projection("n + 1 AS n, t", times)).await,
            [expected],
            "{times}"
        );
    }
    let text = async |sql: &str| {
        let batches = setup.batches(sql).await.unwrap();
        batches[0].column(0).as_string::<i32>().value(0).to_owned()
    };
    assert_eq!(text(&repeat_projection("substr(t, 2) AS t", 3)).await, "t of 7");
    let renamed_sql = "SELECT substr(u, 2) AS t FROM (SELECT t AS u FROM (SELECT substr(t, 2) AS t \
                   FROM (SELECT text AS t FROM numbers WHERE n = 7)))";
    assert_eq!(text(renamed_sql).await, "xt of 7");
    let joined_sql = "SELECT substr(t, 2) || '' AS t FROM (SELECT substr(t, 2) || '' AS t FROM \
                  (SELECT text AS t FROM numbers WHERE n = 7) ORDER BY 1 LIMIT 1)";
    assert_eq!(text(joined_sql).await, "xt of 7");
}
