//! Proves that a process that may open no more files reports it, and continues once the limit is
//! raised. The test has its own binary, because the limit applies to the process.

use forebay_core::ErrorCode;
use forebay_core::id::{PartitionId, PartitionRef, StoreId};
use forebay_core::key::KeyType;
use forebay_core::key_order::KeyOrder;
use forebay_core::schema::StoreSpec;
use forebay_shard::{Resources, ShardDirectory};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Fewer files than a hundred shards need.
const FILES_MAX: u64 = 100;

#[test]
fn shard_without_open_file_budget_names_the_limit_to_raise() {
    let definition =
        StoreSpec::documents("users", KeyType::String).partitions(100).define(StoreId(1)).unwrap();
    let order = KeyOrder::of(&definition);
    let folder = tempfile::tempdir().unwrap();
    let directory = ShardDirectory::new(folder.path(), Resources::new(16 << 20).unwrap());
    let at = |partition| PartitionRef { store: StoreId(1), partition: PartitionId(partition) };
    let limit_before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(FILES_MAX), ..limit_before }).unwrap();
    let mut open = Vec::new();
    let (refused_number, error) = (0..100)
        .find_map(|partition| match directory.create(at(partition), order) {
            Ok(writer) => {
                open.push(writer);
                None
            }
            Err(error) => Some((partition, error)),
        })
        .expect("a hundred shards have opened fewer files than there are of them");
    assert_eq!(error.code(), ErrorCode::Unavailable);
    assert!(error.message().contains("ulimit -n"), "{error}");
    setrlimit(Resource::Nofile, limit_before).unwrap();
    open.push(directory.create(at(refused_number), order).unwrap());
}
