//! A version of a partition whose shared copy shares records with the shared copy of another
//! version (the donor): the copy takes memory only for the differences, and the shared records stay
//! unchanged, whatever happens to the donor.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{Bytes, INT64, STRING, Store, at, schema_at, spec};
use forebay_core::ErrorCode;
use forebay_core::change::Change;
use forebay_core::id::{PartitionId, StoreId};
use forebay_core::value::Value;
use forebay_index::{Image, Index, SharedCopyDirectory};

const PARTITION: PartitionId = PartitionId(0);
const DOCUMENTS: u64 = 20_000;
const BEFORE: StoreId = StoreId(1);
const NEXT: StoreId = StoreId(2);

fn spec_of_texts() -> forebay_core::schema::StoreSpec {
    spec(1, &[("number", INT64), ("text", STRING)])
}

/// Returns some hundred bytes, a function of a key and a version.
fn text(key: u64, version: u64) -> String {
    format!("{key}.{version}.").repeat(30)
}

/// Returns all documents of this version: one in `differing` documents differs from version 0.
fn documents(store: &mut Store, version: u64, differing: u64) -> Vec<Change> {
    let document = |key: u64| {
        let version = if key.is_multiple_of(differing) { version } else { 0 };
        let (number, text) = (Value::Int64(key as i64), Value::String(text(key, version)));
        store.upsert(&format!("k{key}"), &[("number", Some(number)), ("text", Some(text))])
    };
    (0..DOCUMENTS).map(document).collect()
}

fn write_all(store: &mut Store, version: u64, differing: u64) {
    let all = documents(store, version, differing);
    all.chunks(500).for_each(|changes| store.write(changes.to_vec(), 1));
}

/// Returns the previous version, which has a shared copy in a directory.
fn donor(dir: &Path) -> Store {
    let mut store = Store::shared_as(BEFORE, spec_of_texts(), dir);
    write_all(&mut store, 0, 1);
    store
}

/// Returns the next version, in this process's own memory: a twentieth of its documents differ, and
/// one in a hundred is removed.
fn next() -> Store {
    let mut store = Store::with_storage_id(NEXT, spec_of_texts(), |_| true);
    write_all(&mut store, 1, 20);
    let deletes: Vec<_> =
        (0..DOCUMENTS / 100).map(|n| store.delete(&format!("k{}", n * 100))).collect();
    store.write(deletes, 1);
    store
}

/// Returns the shared copy of the next version, built from its image while sharing the donor's
/// records.
fn recipient(next: &Store, dir: &Path) -> Store {
    let mut store = Store::shared_as(NEXT, spec_of_texts(), dir);
    let image = image_of(next);
    let followed = store.partitions.get_mut(&PARTITION).unwrap();
    followed.state = next.partitions[&PARTITION].state.clone();
    followed.writer.start_rebuild_sharing_records(&image, &followed.state, BEFORE).unwrap();
    followed.writer.note_cursor(crate::support::opened());
    followed.writer.publish_rebuild();
    store.write_as(next);
    store
}

fn image_of(store: &Store) -> Image {
    let mut bytes = Bytes::default();
    store.partitions[&PARTITION].writer.write_image(Vec::new(), &mut bytes).unwrap();
    Image::open(Arc::new(bytes)).unwrap()
}

fn shares_records(store: &Store) -> bool {
    store.partitions[&PARTITION].writer.shares_records()
}

fn rows(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut rows = BTreeMap::new();
    let visit = |key: &[u8], row: &[u8]| {
        rows.insert(key.to_vec(), row.to_vec());
        Ok(())
    };
    store.partitions[&PARTITION].writer.visit_rows(visit).unwrap();
    rows
}

fn assert_reads_as(index: &Index, other: &Index) {
    let (view, other) = (index.view(at(1)), other.view(at(1)));
    for key in (0..DOCUMENTS).map(|key| format!("k{key}")) {
        let document = view.get_document(key.as_str()).unwrap();
        assert_eq!(document, other.get_document(key.as_str()).unwrap(), "{key}");
    }
}

/// Returns a read-only index, as another process has it.
fn reader(dir: &Path) -> Index {
    let definition = spec_of_texts().define(NEXT).unwrap();
    Index::open_shared([schema_at(&definition)], [PARTITION], 7, directory(dir)).unwrap()
}

fn directory(dir: &Path) -> SharedCopyDirectory {
    SharedCopyDirectory { dir: dir.to_owned(), memory_dir: None }
}

fn names(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).unwrap().map(|name| name.unwrap().path()).collect()
}

fn donor_links(dir: &Path) -> usize {
    names(dir).iter().filter(|path| path.to_string_lossy().ends_with(".borrowed")).count()
}

fn count_used_bytes(store: &Store) -> u64 {
    store.index.memory().used
}

#[test]
fn version_with_a_donor_stores_only_differing_records() {
    let dir = tempfile::tempdir().unwrap();
    let (before, next) = (donor(dir.path()), next());
    let recipient = recipient(&next, dir.path());
    assert!(shares_records(&recipient) && !shares_records(&before));
    assert_reads_as(&recipient.index, &next.index);
    assert_eq!(rows(&recipient), rows(&next));
    assert_eq!(
        recipient.index.status(PARTITION).unwrap().usage.row_bytes,
        next.index.status(PARTITION).unwrap().usage.row_bytes
    );
    let (all_bytes, own_bytes) = (count_used_bytes(&before), count_used_bytes(&recipient));
    assert!(own_bytes * 5 < all_bytes, "{own_bytes} bytes beside {all_bytes}");
}

#[test]
fn version_with_few_equal_records_copies_all_records() {
    let dir = tempfile::tempdir().unwrap();
    let (before, mut next) = (donor(dir.path()), next());
    write_all(&mut next, 2, 1);
    let recipient = recipient(&next, dir.path());
    assert!(!shares_records(&recipient) && donor_links(dir.path()) == 0);
    assert_eq!(rows(&recipient), rows(&next));
    drop(before);
}

#[test]
fn version_without_a_donor_copies_all_records() {
    let dir = tempfile::tempdir().unwrap();
    let next = next();
    let recipient = recipient(&next, dir.path());
    assert!(!shares_records(&recipient));
    assert_eq!(rows(&recipient), rows(&next));
}

#[test]
fn shared_records_stay_unchanged_under_writes_of_the_donor() {
    let dir = tempfile::tempdir().unwrap();
    let (mut before, mut next) = (donor(dir.path()), next());
    let mut recipient = recipient(&next, dir.path());
    let other_reader = reader(dir.path());
    for round in 2..8 {
        // Otherwise all of the donor's memory would be reused, several times over.
        write_all(&mut before, round, 1);
        if round % 2 == 0 {
            before.take_over(PARTITION);
        }
        if round == 5 {
            recipient.take_over(PARTITION);
        }
        // Both copies of the next version continue with the same changes.
        for store in [&mut next, &mut recipient] {
            let changes = (0..300).map(|n| {
                let key = format!("k{}", n * 7 * round % DOCUMENTS);
                match n % 5 {
                    0 => store.delete(&key),
                    _ => store.upsert(&key, &[("number", Some(Value::Int64(n as i64)))]),
                }
            });
            let changes: Vec<_> = changes.collect();
            store.write(changes, 1);
        }
        assert!(rows(&recipient) == rows(&next), "round {round}");
        assert_reads_as(&other_reader, &next.index);
    }
    assert!(shares_records(&recipient));

    // The donor is removed, and a later reader still finds the shared records.
    drop(before);
    directory(dir.path()).remove(BEFORE, [PARTITION]);
    assert_reads_as(&reader(dir.path()), &next.index);
    recipient.take_over(PARTITION);
    assert!(rows(&recipient) == rows(&next));

    // The sharing ends when the copy is detached.
    let followed = recipient.partitions.get_mut(&PARTITION).unwrap();
    let error = followed.writer.write_image(Vec::new(), &mut Bytes::default()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unsupported);
    followed.writer.detach_shared_records(&followed.state.clone()).unwrap();
    assert!(!shares_records(&recipient) && donor_links(dir.path()) == 0);
    assert!(rows(&recipient) == rows(&next));
    assert_reads_as(&other_reader, &next.index);
    recipient.take_over(PARTITION);
    image_of(&recipient).verify().unwrap();
    assert!(rows(&recipient) == rows(&next));
}

/// The directory in which the maker process (this binary) creates versions.
const MAKER_DIR: &str = "FOREBAY_BESIDE_MAKER";

/// The line that the maker prints after its first version.
const MADE: &str = "a version was made";

/// The maker process: creates the next version, again and again, until it is killed.
#[test]
fn maker_makes_versions_until_killed() {
    let Some(dir) = std::env::var_os(MAKER_DIR) else { return };
    let (dir, next) = (Path::new(&dir), next());
    for round in 0..500 {
        directory(dir).remove(NEXT, [PARTITION]);
        assert!(shares_records(&recipient(&next, dir)));
        if round == 0 {
            println!("{MADE}");
        }
    }
}

/// Starts a process that creates versions; returns after its first version.
fn start_maker(dir: &Path) -> Child {
    let mut maker = Command::new(std::env::current_exe().unwrap());
    let maker_test = "record_sharing::maker_makes_versions_until_killed";
    maker.args([maker_test, "--exact", "--nocapture", "--test-threads=1"]);
    let mut child = maker.env(MAKER_DIR, dir).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(MADE)), "the maker ended before it made one");
    child
}

#[test]
fn killed_maker_leaves_no_lasting_files() {
    let dir = tempfile::tempdir().unwrap();
    let (mut before, next) = (donor(dir.path()), next());
    for round in 0..8 {
        let mut maker = start_maker(dir.path());
        write_all(&mut before, round, 20);
        std::thread::sleep(Duration::from_millis(7 * round % 40));
        maker.kill().unwrap();
        maker.wait().unwrap();
    }
    directory(dir.path()).remove(NEXT, [PARTITION]);
    // Files that no header leads to are removed once they are old.
    let hour = Duration::from_secs(3_600);
    for path in names(dir.path()) {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_modified(file.metadata().unwrap().modified().unwrap() - hour).unwrap();
    }
    directory(dir.path()).sweep();
    assert_eq!(donor_links(dir.path()), 0, "{:?}", names(dir.path()));
    // The memory that the donor had to keep for all of them is reused at once.
    let kept_bytes = count_used_bytes(&before);
    write_all(&mut before, 8, 20);
    let used_bytes = count_used_bytes(&before);
    assert!(used_bytes * 2 < kept_bytes, "{used_bytes} of {kept_bytes}");
    let recipient = recipient(&next, dir.path());
    assert!(shares_records(&recipient) && rows(&recipient) == rows(&next));
    directory(dir.path()).sweep();
    assert_eq!(donor_links(dir.path()), 1, "a link in use stays");
}

#[test]
fn failed_rebuild_leaves_no_link_to_the_donor() {
    let dir = tempfile::tempdir().unwrap();
    let (before, next) = (donor(dir.path()), next());
    let mut store = Store::shared_as(NEXT, spec_of_texts(), dir.path());
    let state = next.partitions[&PARTITION].state.clone();
    let mut begin = |image: &Image| {
        let writer = &mut store.partitions.get_mut(&PARTITION).unwrap().writer;
        let start_result = writer.start_rebuild_sharing_records(image, &state, BEFORE);
        start_result.map_err(|error| error.code())
    };
    let mut bytes = Bytes::default();
    next.partitions[&PARTITION].writer.write_image(Vec::new(), &mut bytes).unwrap();
    let (third, length) = (bytes.0.len() / 3, bytes.0.len());
    bytes.0[third..length / 2].fill(0xee);
    let damaged = Image::open(Arc::new(bytes)).unwrap();
    assert_eq!(begin(&damaged), Err(ErrorCode::Corrupt));
    assert_eq!(donor_links(dir.path()), 0);

    let image = image_of(&next);
    store.index.limit_memory(64 * 1_024);
    let mut begin = |image: &Image| {
        let writer = &mut store.partitions.get_mut(&PARTITION).unwrap().writer;
        let start_result = writer.start_rebuild_sharing_records(image, &state, BEFORE);
        start_result.map_err(|error| error.code())
    };
    assert_eq!(begin(&image), Err(ErrorCode::LimitExceeded));
    assert_eq!(donor_links(dir.path()), 0);
    store.index.limit_memory(1 << 30);
    assert_eq!(begin(&image), Ok(()));
    assert_eq!(donor_links(dir.path()), 1);
    drop(before);
}

#[test]
fn shared_records_stay_while_no_process_maps_the_recipient() {
    let dir = tempfile::tempdir().unwrap();
    let (mut before, next) = (donor(dir.path()), next());
    drop(recipient(&next, dir.path()));
    (2..6).for_each(|round| write_all(&mut before, round, 1));
    assert_reads_as(&reader(dir.path()), &next.index);
}

#[test]
fn donor_space_is_reclaimed_after_last_reader() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mut before, next) = (donor(dir.path()), next());
    // A second store makes the same writes, and donates nothing.
    let mut store_without_recipient = donor(other.path());
    let mut excess = |before: &mut Store, rounds: std::ops::Range<u64>| {
        for round in rounds {
            write_all(before, round, 1);
            write_all(&mut store_without_recipient, round, 1);
        }
        count_used_bytes(before) as f64 / count_used_bytes(&store_without_recipient) as f64
    };
    let recipient = recipient(&next, dir.path());
    let other_reader = reader(dir.path());
    assert_reads_as(&other_reader, &next.index);
    // The donor keeps the memory that it had at the time of donation, and no more.
    let donation = excess(&mut before, 2..8);
    assert!((1.3..2.2).contains(&donation), "{donation}");

    drop(recipient);
    directory(dir.path()).remove(NEXT, [PARTITION]);
    let donation = excess(&mut before, 8..10);
    assert!((1.3..2.2).contains(&donation), "another process reads there still: {donation}");
    assert_reads_as(&other_reader, &next.index);
    drop(other_reader);
    // The donor gets back all memory except that of the segment table, which has grown.
    let second_excess = excess(&mut before, 10..14);
    assert!(
        second_excess < 1.3 && second_excess < donation - 0.2,
        "{second_excess}, and {donation} before"
    );
}

#[test]
fn readers_see_whole_documents_while_donor_and_recipient_write() {
    let dir = tempfile::tempdir().unwrap();
    let (mut before, next) = (donor(dir.path()), next());
    let mut recipient = recipient(&next, dir.path());
    let (is_done, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let read = || {
            let other_reader = reader(dir.path());
            let handle = other_reader.field("text").unwrap();
            while !is_done.load(Ordering::Relaxed) {
                for key in 0..DOCUMENTS {
                    let name = format!("k{key}");
                    let version = u64::from(key % 20 == 0);
                    let expected = (key % 100 != 0).then(|| text(key, version));
                    let found = other_reader.view(at(1)).get_str_owned(&handle, name.as_str());
                    assert_eq!(found.unwrap().value(), expected, "{name}");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        scope.spawn(read);
        for round in 2..10 {
            write_all(&mut before, round, 1);
            if round == 5 {
                let followed = recipient.partitions.get_mut(&PARTITION).unwrap();
                followed.writer.detach_shared_records(&followed.state.clone()).unwrap();
            }
        }
        while reads.load(Ordering::Relaxed) < 3 * DOCUMENTS {
            std::thread::yield_now();
        }
        is_done.store(true, Ordering::Relaxed);
    });
}
