//! Copies of rows.

use forebay_core::ErrorCode;
use forebay_core::limits::COPY_PART_ROWS_MAX;
use forebay_core::rows_digest::RowsDigest;
use forebay_core::state_rows::HEAD;
use forebay_shard::{Export, PartBlock, PartEnd, PartSource};
use forebay_wire::shard_copy::{RowsBlock, block_rows};
use forebay_wire::v1;
use prost::Message;

use super::support::*;
use super::{ONE_RANGE, digest, fill_replica, folder_of_copy, freeze};

/// A source that sends given rows, with any digest.
struct RowsSource {
    rows: Vec<(Vec<u8>, Vec<u8>)>,
    digest: RowsDigest,
    was_compressed: bool,
}

impl PartSource for RowsSource {
    type Block = Vec<u8>;

    fn next_block(&mut self) -> forebay_core::Result<PartBlock<Vec<u8>>> {
        let mut block = RowsBlock::default();
        self.rows.iter().for_each(|(key, value)| block.push(key, value));
        let end = Some(PartEnd { digest: self.digest, is_range_end: true });
        let was_compressed = self.was_compressed;
        Ok(PartBlock { bytes: block.bytes().to_vec(), end, was_compressed })
    }
}

fn rows_source(rows: &[(&[u8], &[u8])]) -> RowsSource {
    let mut digest = RowsDigest::default();
    rows.iter().for_each(|(key, value)| digest.add(key, value));
    let rows = rows.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    RowsSource { rows, digest, was_compressed: true }
}

#[test]
fn rows_that_differ_from_their_digest_are_refused() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let world = World::new();
    let replica = fill_replica(&world, from.path(), 10);
    let export = freeze(&replica, &from.path().join("copies/1"), ONE_RANGE);
    let directory = directory(to.path());
    let import = directory.begin_import(export.plan().clone()).unwrap();
    let write_error_code =
        |mut rows: RowsSource| import.write_part(0, &mut rows).unwrap_err().code();
    let [a, b]: [(&[u8], &[u8]); 2] = [(b"a", b"1"), (b"b", b"2")];
    assert_eq!(write_error_code(rows_source(&[b, a])), ErrorCode::Corrupt);
    assert_eq!(write_error_code(rows_source(&[a, a])), ErrorCode::Corrupt);
    let RowsSource { rows, digest, was_compressed } = rows_source(&[a, b]);
    let more_rows = RowsDigest { rows: digest.rows + 1, ..digest };
    let other = RowsDigest { sum: digest.sum ^ 1, ..digest };
    for digest in [more_rows, other] {
        assert_eq!(
            write_error_code(RowsSource { rows: rows.clone(), digest, was_compressed }),
            ErrorCode::Corrupt
        );
    }
    let keys: Vec<_> = (0..=COPY_PART_ROWS_MAX).map(|key| key.swap_bytes().to_le_bytes()).collect();
    let many_rows: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &b""[..])).collect();
    assert_eq!(write_error_code(rows_source(&many_rows)), ErrorCode::Corrupt);
    let folder = folder_of_copy(to.path());
    let files = std::fs::read_dir(folder).unwrap().map(|name| name.unwrap().file_name());
    let files: Vec<_> = files.filter(|name| name.to_string_lossy().ends_with(".sst")).collect();
    assert!(files.is_empty(), "what does not count takes no room: {files:?}");
    assert_eq!(import.digest(), RowsDigest::default(), "nothing of it counts");
    // A copy that makes no shard is removed.
    assert!(import.write_part(0, &mut rows_source(&[a, b])).unwrap());
    assert_eq!(directory.take_in(import).unwrap_err().code(), ErrorCode::Corrupt);
    assert!(directory.resume_import("users", AT.partition).unwrap().is_none(), "it is over");

    let mut torn_plan = export.plan().clone();
    torn_plan.ranges[0].to = Some(b"d".to_vec().into());
    assert_eq!(directory.begin_import(torn_plan).err().unwrap().code(), ErrorCode::Corrupt);
}

#[test]
fn empty_key_is_copied() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let world = World::new();
    let replica = fill_replica(&world, from.path(), 10);
    let export = freeze(&replica, &from.path().join("copies/1"), ONE_RANGE);
    let mut rows = Vec::new();
    let mut block = RowsBlock::default();
    export.rows(0, None).unwrap().next(&mut block).unwrap();
    for row in block_rows(block.bytes()) {
        rows.push(row.unwrap());
    }
    rows.insert(0, (b"", b""));
    assert!(rows.iter().any(|(key, _)| *key == HEAD));
    let directory = directory(to.path());
    let import = directory.begin_import(export.plan().clone()).unwrap();
    assert!(import.write_part(0, &mut rows_source(&rows)).unwrap());
    directory.take_in(import).unwrap();
    let copy = world.resume(to.path());
    assert!(copy.live() == replica.live());
    let copied_export = freeze(&copy, &to.path().join("copies/1"), ONE_RANGE);
    assert_eq!(digest(&copied_export).0, rows_source(&rows).digest);
}

#[test]
fn part_is_stored_compressed_only_if_it_arrived_compressed() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let world = World::new();
    let replica = fill_replica(&world, from.path(), 10);
    let export = freeze(&replica, &from.path().join("copies/1"), ONE_RANGE);
    let directory = directory(to.path());
    let value = [7; 100_000];
    let sizes = [true, false].map(|was_compressed| {
        let import = directory.begin_import(export.plan().clone()).unwrap();
        let mut rows = RowsSource { was_compressed, ..rows_source(&[(b"a", &value)]) };
        assert!(import.write_part(0, &mut rows).unwrap());
        std::fs::metadata(folder_of_copy(to.path()).join("0.sst")).unwrap().len()
    });
    assert!(sizes[0] < 10_000 && sizes[1] > 100_000, "{sizes:?}");
}

/// Proves that the number of rows limits a part, whatever its bytes: the engine builds the file in
/// memory that grows with the number of rows.
#[test]
fn part_ends_at_a_number_of_rows() {
    let from = tempfile::tempdir().unwrap();
    let world = World::new();
    let documents = COPY_PART_ROWS_MAX as usize + 10_000;
    let replica = fill_replica(&world, from.path(), documents);
    let place = from.path().join("copies/1");
    let mut plan = freeze(&replica, &place, ONE_RANGE).plan().clone();
    plan.part_bytes = u64::MAX;
    std::fs::write(place.join("plan"), v1::CopyPlan::encode_to_vec(&plan)).unwrap();
    let export = Export::open(&place).unwrap();
    let mut rows = export.rows(0, None).unwrap();
    let mut ends = Vec::new();
    while ends.last().is_none_or(|end: &PartEnd| !end.is_range_end) {
        ends.extend(rows.next(&mut RowsBlock::default()).unwrap());
    }
    let counts: Vec<_> = ends.iter().map(|end| end.digest.rows).collect();
    assert_eq!((counts.len(), counts[0]), (2, COPY_PART_ROWS_MAX), "{counts:?}");
    assert!(counts[1] >= 10_000, "{counts:?}");
}
