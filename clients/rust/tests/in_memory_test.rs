//! An in-memory reader opens no file, no socket and no thread. The file has a single test, so that
//! nothing else in this process opens anything at the same time.

use std::time::Duration;

use forebay::Reader;
use forebay::schema::{FieldType, KeyType, StoreSpec};
use forebay::testing::Row;

fn count(folder: &str) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

#[test]
fn reader_in_memory_opens_no_file_and_starts_no_thread() {
    let age = FieldType::INT64;
    let spec = StoreSpec::documents("users", KeyType::String).partitions(8).field("age", age);
    let open = || (count("/proc/self/fd"), count("/proc/self/task"));
    let before = open();
    let rows = (0..1_000).map(|number| Row::new(&format!("u{number}")).set("age", number));
    let users = Reader::in_memory(&spec, rows).unwrap();
    assert!(users.is_ready());
    users.write(users.upsert("u7").increment("age", 1)).unwrap();
    users.advance(Duration::from_secs(1)).unwrap();
    let age = users.field_as("age", age).unwrap();
    assert_eq!(users.get_i64(&age, "u7", 0).unwrap(), 8);
    assert_eq!(open(), before);
    assert_eq!(users.status().partitions.len(), 8);
    users.begin_close();
    assert_eq!(open(), before);
}
