//! Images: an image that is written, opened and continued has the original content, and no damaged
//! byte of it is ever served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::images::{
    BLOCK_BYTES, PARTITION, ages, blocks, gone_on, image_of, mapped, numbers, parities, rows,
    store, try_gone_on, usage_of, write_some,
};
use crate::support::{Bytes, INT64, STRING, Store, at, spec};
use forebay_core::change::{ClientBatch, EntryBody};
use forebay_core::fold::{FoldEffects, PartitionState};
use forebay_core::id::{ClientId, PartitionId};
use forebay_core::value::Value;
use forebay_core::{ErrorCode, Result};
use forebay_index::{Image, ImageFile};

#[test]
fn index_from_an_image_equals_the_index_that_wrote_it() {
    const KEYS: u64 = 6_000;
    let mut first = store();
    write_some(&mut first, KEYS, 0..1_500);
    for is_mapped in [false, true] {
        let mut bytes = image_of(&first);
        let mut copy = None;
        // The second round makes an image of an image.
        for _ in 0..2 {
            let file = if is_mapped {
                mapped(&bytes)
            } else {
                Arc::new(Bytes(bytes)) as Arc<dyn ImageFile>
            };
            Image::open(file.clone()).unwrap().verify().unwrap();
            let store = gone_on(&first, file);
            bytes = image_of(&store);
            copy = Some(store);
        }
        let mut copy = copy.unwrap();
        assert_eq!(usage_of(&copy), usage_of(&first));
        // A plain `assert!` is used, because `assert_eq!` would print thousands of values.
        assert!(ages(&copy, KEYS, 1_500_000) == ages(&first, KEYS, 1_500_000));
        assert!(rows(&copy) == rows(&first));

        // Both copies continue: documents are replaced, deleted and expire; tables grow and are
        // reclaimed.
        let mut other = gone_on(&first, mapped(&bytes));
        write_some(&mut copy, 2 * KEYS, 1_500..3_500);
        write_some(&mut other, 2 * KEYS, 1_500..3_500);
        assert!(rows(&copy) == rows(&other));
        assert_eq!(usage_of(&copy), usage_of(&other));
        assert!(usage_of(&copy).0 > usage_of(&first).0, "nothing was written");
        let micros = 3_500_000;
        assert!(ages(&copy, 2 * KEYS, micros) == ages(&other, 2 * KEYS, micros));
    }
    // A copy also continues like the store that never stopped.
    let mut copy = gone_on(&first, mapped(&image_of(&first)));
    write_some(&mut copy, KEYS, 1_500..2_500);
    write_some(&mut first, KEYS, 1_500..2_500);
    let (copied, never_stopped) = (ages(&copy, KEYS, 2_500_000), ages(&first, KEYS, 2_500_000));
    assert!(copied == never_stopped);
    assert!(copied.contains(&Ok(Some(2_499))), "nothing was written");
}

/// Small documents are in the buckets of their keys; buckets of an image cannot be written.
#[test]
fn small_documents_survive_an_image() {
    let mut store = store();
    let write = |store: &mut Store, number: &mut dyn FnMut(u64) -> u64, entries: i64| {
        for entry in 0..entries {
            let changes = (0..100).map(|_| {
                let (key, age) = (format!("k{}", number(9_000)), Value::Int64(entry));
                match number(6) {
                    0 => store.delete(&key),
                    _ => store.upsert(&key, &[("age", Some(age))]),
                }
            });
            let changes = changes.collect();
            store.write(changes, 1_000);
        }
    };
    write(&mut store, &mut numbers(1), 300);
    for round in 2..5 {
        let mut next = gone_on(&store, mapped(&image_of(&store)));
        assert_eq!(rows(&next), rows(&store));
        write(&mut store, &mut numbers(round), 200);
        write(&mut next, &mut numbers(round), 200);
        assert_eq!((rows(&next), usage_of(&next).0), (rows(&store), usage_of(&store).0));
        store = next;
    }
}

#[test]
fn index_from_an_image_removes_expired_documents() {
    let mut store = store();
    write_some(&mut store, 3_000, 0..400);
    let mut copy = gone_on(&store, mapped(&image_of(&store)));
    let before = usage_of(&copy).0;
    // The times are beyond the longest time to live; each entry searches a few groups.
    let later_keys = 400..430;
    for seconds in later_keys {
        let followed = copy.partitions.get_mut(&PARTITION).unwrap();
        let micros = seconds * 1_000_000;
        followed.append(&copy.index, &copy.definition, EntryBody::Heartbeat, micros);
    }
    let live = ages(&copy, 3_000, 430_000_000).into_iter().filter(|age| age != &Ok(None)).count();
    assert_eq!(usage_of(&copy).0, live as u64);
    assert!(usage_of(&copy).0 < before);
}

#[test]
fn image_of_an_empty_index_is_valid() {
    let mut empty = store();
    let mut copy = gone_on(&empty, mapped(&image_of(&empty)));
    assert_eq!(rows(&copy), []);
    write_some(&mut copy, 50, 0..20);
    write_some(&mut empty, 50, 0..20);
    assert_eq!(rows(&copy), rows(&empty));
}

#[test]
fn any_flipped_byte_is_detected() {
    let mut store = store();
    write_some(&mut store, 900, 0..200);
    let bytes = image_of(&store);
    let verified = |bytes: Vec<u8>| {
        let image = Image::open(Arc::new(Bytes(bytes)))?;
        image.verify()
    };
    verified(bytes.clone()).unwrap();
    // Every metadata byte is flipped, and every 7th byte of the blocks: the checksum treats all
    // alike.
    let end = bytes.len() - bytes.len() % BLOCK_BYTES;
    for byte in (0..200).chain((200..end).step_by(7)).chain(end..bytes.len()) {
        let mut flipped = bytes.clone();
        flipped[byte] ^= 1 << (byte % 8);
        let code = verified(flipped).unwrap_err().code();
        let expected =
            if (4..6).contains(&byte) { ErrorCode::Unsupported } else { ErrorCode::Corrupt };
        assert_eq!(code, expected, "byte {byte}");
    }
    for bytes in [&bytes[..bytes.len() - 1], &bytes[..BLOCK_BYTES], &bytes[..10], &[]] {
        assert_eq!(verified(bytes.to_vec()).unwrap_err().code(), ErrorCode::Corrupt);
    }
}

#[test]
fn damaged_block_is_never_served_and_stops_later_writes() {
    const KEYS: u64 = 3_000;
    let mut store = store();
    write_some(&mut store, KEYS, 0..400);
    let expected = ages(&store, KEYS, 400_000);
    let mut bytes = image_of(&store);
    // Damaged parity makes the blocks unrepairable.
    let (blocks, parity) = (blocks(&bytes), parities(&bytes));
    (0..parity).for_each(|parity| bytes[(1 + blocks + parity) * BLOCK_BYTES + 1_000] ^= 1);
    let (mut refused_reads, mut unused, mut refused_at_once) = (0, 0, 0);
    for block in 1..=blocks {
        let mut damaged = bytes.clone();
        damaged[block * BLOCK_BYTES + 77] ^= 4;
        let mut copy = match try_gone_on(&store, mapped(&damaged)) {
            Ok(copy) => copy,
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::Corrupt, "{error}");
                refused_at_once += 1;
                continue;
            }
        };
        assert_eq!(copy.partitions[&PARTITION].writer.check_integrity(), Ok(()));
        let found = ages(&copy, KEYS, 400_000);
        for (found, expected) in found.iter().zip(&expected) {
            match found {
                Ok(found) => assert_eq!(found, expected.as_ref().unwrap(), "block {block}"),
                Err(error) => assert_eq!(error.code(), ErrorCode::Corrupt),
            }
        }
        let is_noticed = found.iter().any(Result::is_err);
        let followed = copy.partitions.get_mut(&PARTITION).unwrap();
        let write_result = followed.writer.write_image(Vec::new(), &mut Bytes::default());
        if !is_noticed && write_result.is_ok() {
            // This is a free block in a gap, or a block of dead records alone.
            unused += 1;
            continue;
        }
        assert_eq!(write_result.unwrap_err().code(), ErrorCode::Corrupt, "block {block}");
        assert_eq!(followed.writer.check_integrity().unwrap_err().code(), ErrorCode::Corrupt);
        let state = followed.state.clone();
        let applied = followed.writer.apply(&FoldEffects::default(), &state);
        assert_eq!(applied.unwrap_err().code(), ErrorCode::Corrupt);
        refused_reads += usize::from(is_noticed);
        // A generation that is rebuilt from nothing is sound.
        followed.writer.start_rebuild().unwrap();
        assert_eq!(followed.writer.check_integrity(), Ok(()));
    }
    assert!(refused_reads > blocks / 2, "{refused_reads} of {blocks} damaged blocks were read");
    assert!(unused < blocks / 2 && refused_at_once == 1, "{unused}, {refused_at_once}");
}

#[test]
fn readers_verify_blocks_while_their_writer_changes_them() {
    const KEYS: u64 = 3_000;
    let mut store = store();
    write_some(&mut store, KEYS, 0..400);
    let bytes = image_of(&store);
    for round in 0..6 {
        let mut copy = gone_on(&store, mapped(&bytes));
        let (index, is_done) = (copy.index.clone(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let readers = [0, 1].map(|reader| {
                let (index, is_done) = (&index, &is_done);
                scope.spawn(move || {
                    let age = index.field_as("age", INT64).unwrap();
                    let mut number = numbers(reader + 10 * round);
                    while !is_done.load(Ordering::Relaxed) {
                        let view = index.view(at(0));
                        let key = format!("key-{}", number(KEYS));
                        view.get_scalar::<i64>(&age, key.as_str()).unwrap();
                    }
                })
            });
            write_some(&mut copy, KEYS, 400..500);
            is_done.store(true, Ordering::Relaxed);
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
        assert_eq!(copy.partitions[&PARTITION].writer.check_integrity(), Ok(()));
    }
}

#[test]
fn image_of_another_store_or_partition_is_refused() {
    let mut store_of_two = Store::new(spec(2, &[("age", INT64), ("name", STRING)]));
    let key = crate::support::key_in(0, 2);
    let change = store_of_two.upsert(&key, &[("age", Some(Value::Int64(1)))]);
    store_of_two.write(vec![change], 1);
    let image = Image::open(Arc::new(Bytes(image_of(&store_of_two)))).unwrap();
    let other = store_of_two.partitions.get_mut(&PartitionId(1)).unwrap();
    let error = other.writer.start_rebuild_from_image(&image, &other.state).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unsupported, "{error}");
    let mut store_of_one = store();
    let followed = store_of_one.partitions.get_mut(&PARTITION).unwrap();
    let error = followed.writer.start_rebuild_from_image(&image, &followed.state).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unsupported, "{error}");
    // No generation was started.
    let body = EntryBody::Changes(vec![ClientBatch { client: ClientId(5), changes: Vec::new() }]);
    let state: PartitionState = followed.state.clone();
    followed.append(&store_of_one.index, &store_of_one.definition, body, 5);
    assert!(followed.state.offset_applied > state.offset_applied);
}
