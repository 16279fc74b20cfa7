//! Rows in Parquet files. The tests prove that reads return the written rows by column ids, even
//! after columns were renamed or widened.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use bytes::Bytes;
use forebay_arrow::{arrow_type, column};
use forebay_core::value::{FieldType, ScalarType, Value};
use forebay_core::{Error, ErrorCode, Result};
use forebay_query::{Bounds, FileStorage, ParquetFile, StoredFile, TableScan, identified};
use futures::TryStreamExt;
use futures::future::BoxFuture;

const ROWS: i64 = 50_000;

#[derive(Debug, Default)]
struct Memory {
    files: Mutex<BTreeMap<String, Bytes>>,
    read: AtomicU64,
}

impl FileStorage for Memory {
    fn range(&self, name: &str, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        self.read.fetch_add(range.end - range.start, Ordering::SeqCst);
        let found = self.files.lock().unwrap().get(name).cloned();
        let bytes = found.ok_or_else(|| Error::not_found("it is gone"));
        let range = range.start as usize..range.end as usize;
        Box::pin(async move {
            let short_error = || Error::unavailable("not all bytes came");
            let bytes = bytes?;
            bytes.get(range.clone()).map(|_| bytes.slice(range)).ok_or_else(short_error)
        })
    }
}

impl Memory {
    fn file(self: &Arc<Self>, bytes: Bytes) -> StoredFile {
        let (name, length) = ("f".to_owned(), bytes.len() as u64);
        self.files.lock().unwrap().insert(name.clone(), bytes);
        StoredFile { storage: Arc::clone(self) as Arc<dyn FileStorage>, name, bytes: length }
    }
}

fn scalar(scalar: ScalarType) -> FieldType {
    FieldType::Scalar(scalar)
}

fn field(name: &str, scalar_type: ScalarType, id: i32) -> Field {
    identified(Field::new(name, arrow_type(scalar(scalar_type)), true), id)
}

fn written_schema() -> SchemaRef {
    use ScalarType::{Int32, Int64, String};
    Arc::new(Schema::new(vec![field("n", Int64, 1), field("p", Int32, 2), field("t", String, 3)]))
}

fn rows(numbers: Range<i64>) -> RecordBatch {
    let column_of = |scalar_type, value: fn(i64) -> Value| {
        let values = numbers.clone().map(|n| (n % 7 != 0).then(|| value(n))).collect();
        column(scalar(scalar_type), values).unwrap()
    };
    let all = numbers.clone().map(|n| Some(Value::Int64(n))).collect();
    let columns = vec![
        column(scalar(ScalarType::Int64), all).unwrap(),
        column_of(ScalarType::Int32, |n| Value::Int32(n as i32)),
        column_of(ScalarType::String, |n| Value::String(format!("text of {n}"))),
    ];
    RecordBatch::try_new(written_schema(), columns).unwrap()
}

fn file() -> Bytes {
    let mut file = ParquetFile::new(written_schema()).unwrap();
    for from in (0..ROWS).step_by(1_000) {
        file.write(&rows(from..from + 1_000)).unwrap();
    }
    assert!(file.bytes() > 10_000);
    file.finish().unwrap()
}

fn scan_of(columns: &[usize], bounds: Vec<Bounds>) -> TableScan {
    TableScan { columns: columns.to_vec(), bounds }
}

async fn read(file: StoredFile, table: &Schema, scan: &TableScan) -> Result<Vec<RecordBatch>> {
    file.rows(table, scan).try_collect().await
}

#[tokio::test]
async fn columns_are_found_by_field_id_and_widened() {
    let memory = Arc::<Memory>::default();
    use ScalarType::{Int64, String};
    let table = Schema::new(vec![
        field("added", String, 9),
        field("price", Int64, 2),
        field("number", Int64, 1),
        // Another column has the same name as one of the file's columns.
        field("t", String, 8),
    ]);
    let found = read(memory.file(file()), &table, &scan_of(&[2, 1, 0, 3], vec![])).await.unwrap();
    let mut next = 0;
    for batch in &found {
        assert_eq!(batch.schema().field(1).data_type(), &DataType::Int64);
        assert_eq!(batch.column(2).null_count(), batch.num_rows());
        assert_eq!(batch.column(3).null_count(), batch.num_rows());
        let (n, p) = (batch.column(0).as_primitive::<Int64Type>(), batch.column(1));
        for row in 0..batch.num_rows() {
            assert_eq!(n.value(row), next);
            let price = (!p.is_null(row)).then(|| p.as_primitive::<Int64Type>().value(row));
            assert_eq!(price, (next % 7 != 0).then_some(next));
            next += 1;
        }
    }
    assert_eq!(next, ROWS);
    let batches = read(memory.file(file()), &table, &scan_of(&[], vec![])).await.unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), ROWS as usize);
}

#[tokio::test]
async fn reader_skips_unrequested_columns_and_groups() {
    let memory = Arc::<Memory>::default();
    let file = memory.file(file());
    let bounds = Bounds {
        column: 0,
        from: Bound::Included(Value::Int64(40_000)),
        to: Bound::Excluded(Value::Int64(40_010)),
    };
    let found = read(file.clone(), &written_schema(), &scan_of(&[0], vec![bounds])).await.unwrap();
    let numbers = |found: &[RecordBatch]| -> Vec<i64> {
        let column = |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().clone();
        found.iter().map(column).flat_map(|column| column.values().to_vec()).collect()
    };
    let found = numbers(&found);
    assert!(found.len() < ROWS as usize && (40_000..40_010).all(|n| found.contains(&n)));
    let read_of_some = memory.read.swap(0, Ordering::SeqCst);
    read(file, &written_schema(), &scan_of(&[0, 1, 2], vec![])).await.unwrap();
    let read_of_all = memory.read.load(Ordering::SeqCst);
    assert!(read_of_some * 3 < read_of_all, "{read_of_some} of {read_of_all} bytes");
}

#[tokio::test]
async fn reader_reports_an_invalid_file() {
    let memory = Arc::<Memory>::default();
    let good = file();
    let code = async |bytes: Bytes| {
        let file = memory.file(bytes);
        read(file, &written_schema(), &scan_of(&[0, 1, 2], vec![]))
            .await
            .err()
            .map(|error| error.code())
    };
    assert_eq!(code(good.clone()).await, None);
    assert_eq!(code(Bytes::new()).await, Some(ErrorCode::Corrupt));
    assert_eq!(code(Bytes::from_static(b"PAR1 no file PAR1")).await, Some(ErrorCode::Corrupt));
    assert_eq!(code(good.slice(..good.len() - 9)).await, Some(ErrorCode::Corrupt));
    let file = memory.file(good);
    memory.files.lock().unwrap().clear();
    let error = read(file, &written_schema(), &scan_of(&[0], vec![])).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound, "{error}");
}
