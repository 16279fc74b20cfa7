//! Image repair: if at most one block of each class is damaged, the block's first user restores
//! exactly the original bytes; if more are damaged, nothing wrong is served.

use std::ops::Range;
use std::sync::{Arc, Barrier};

use crate::images::{
    BLOCK_BYTES, PARTITION, ages, blocks, damage, gone_on, image_of, mapped, numbers, parities,
    rows, store, try_gone_on, without_parity, write_some,
};
use crate::support::{Bytes, INT64, STRING, Store, at, spec};
use forebay_core::replica_state::Phase;
use forebay_core::value::Value;
use forebay_core::{ErrorCode, Result};
use forebay_index::{Image, ImageFile};

const KEYS: u64 = 14_000;

/// Returns a store whose image has several parity blocks, and the image.
fn write_store() -> (Store, Vec<u8>) {
    let mut store = store();
    write_some(&mut store, KEYS, 0..1_800);
    let image = image_of(&store);
    assert!(parities(&image) >= 3, "{} of {} blocks", parities(&image), blocks(&image));
    assert_eq!(parities(&image), blocks(&image).div_ceil(64));
    (store, image)
}

fn read(bytes: &[u8]) -> Arc<dyn ImageFile> {
    Arc::new(Bytes(bytes.to_vec()))
}

fn repaired(store: &Store) -> u64 {
    store.partitions[&PARTITION].writer.blocks_repaired()
}

/// Returns the image of a store that continues from an image and has used every block.
fn written_again(store: &Store) -> Vec<u8> {
    let second_image = image_of(store);
    Image::open(read(&second_image)).unwrap().verify().unwrap();
    second_image
}

fn verified(bytes: &[u8]) -> Result<()> {
    Image::open(read(bytes))?.verify()
}

#[test]
fn reader_repairs_every_run_of_damaged_blocks_within_parity() {
    let (store, image) = write_store();
    let (blocks, parities) = (blocks(&image), parities(&image));
    let (expected_rows, expected_ages) = (rows(&store), ages(&store, KEYS, 1_800_000));
    let sound = written_again(&gone_on(&store, mapped(&image)));
    let mut number = numbers(3);
    for first in 0..blocks + parities {
        let count = 1 + number(parities as u64) as usize;
        let mut damaged = image.clone();
        damage(&mut damaged, first, count);
        let context = format!("{count} blocks from {first} on, of {blocks} and {parities}");
        assert_eq!(verified(&damaged).unwrap_err().code(), ErrorCode::Corrupt, "{context}");
        let file = if first % 3 == 0 { read(&damaged) } else { mapped(&damaged) };
        let copy = gone_on(&store, file);
        match first % 8 {
            0 => assert!(rows(&copy) == expected_rows, "{context}"),
            1 => assert!(ages(&copy, KEYS, 1_800_000) == expected_ages, "{context}"),
            _ => {}
        }
        assert!(written_again(&copy) == sound, "{context}");
        assert_eq!(copy.partitions[&PARTITION].writer.check_integrity(), Ok(()), "{context}");
        // No reader uses free blocks in a gap, or parity blocks.
        let damaged_max = (first + count).min(blocks).saturating_sub(first) as u64;
        assert!(repaired(&copy) <= damaged_max, "{} repaired: {context}", repaired(&copy));
    }
}

#[test]
fn index_from_a_repaired_image_continues_like_an_undamaged_index() {
    let (store, image) = write_store();
    let (blocks, parities) = (blocks(&image), parities(&image));
    let mut damaged = image.clone();
    // A block of every class is damaged, at scattered positions.
    (0..parities).for_each(|class| damage(&mut damaged, class + class * parities * 7, 1));
    assert!(parities * (1 + (parities - 1) * 7) < blocks);
    let [mut copy, mut other] = [&damaged, &image].map(|image| gone_on(&store, mapped(image)));
    for copy in [&mut copy, &mut other] {
        write_some(copy, 2 * KEYS, 1_800..2_600);
    }
    assert!(rows(&copy) == rows(&other));
    assert!(ages(&copy, 2 * KEYS, 2_600_000) == ages(&other, 2 * KEYS, 2_600_000));
    assert!(repaired(&copy) > 0 && repaired(&other) == 0);
}

#[test]
fn two_damaged_blocks_of_a_class_are_refused_and_never_served() {
    let (store, image) = write_store();
    let (blocks, parities) = (blocks(&image), parities(&image));
    let expected = ages(&store, KEYS, 1_800_000);
    let mut refused_reads = 0;
    for first in (0..blocks - parities).step_by(5) {
        // A third damaged block is of another class, and is repaired.
        let mut damaged = image.clone();
        for block in [first, first + parities, first + 1] {
            damage(&mut damaged, block, 1);
        }
        let mut copy = match try_gone_on(&store, mapped(&damaged)) {
            Ok(copy) => copy,
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::Corrupt, "{first}: {error}");
                continue;
            }
        };
        // An unrepairable block stays unrepairable.
        for _ in 0..2 {
            for (found, expected) in ages(&copy, KEYS, 1_800_000).iter().zip(&expected) {
                match found {
                    Ok(found) => assert_eq!(found, expected.as_ref().unwrap(), "block {first}"),
                    Err(error) => assert_eq!(error.code(), ErrorCode::Corrupt),
                }
            }
        }
        let followed = copy.partitions.get_mut(&PARTITION).unwrap();
        if followed.writer.check_integrity().is_ok() {
            // The damaged blocks contain nothing that is read.
            continue;
        }
        refused_reads += 1;
        assert!(followed.writer.blocks_repaired() <= 1, "{first}");
        let write_result = followed.writer.write_image(Vec::new(), &mut Bytes::default());
        assert_eq!(write_result.unwrap_err().code(), ErrorCode::Corrupt, "{first}");
        followed.writer.start_rebuild().unwrap();
        assert_eq!(followed.writer.check_integrity(), Ok(()));
        assert_eq!(followed.writer.blocks_repaired(), 0, "that of another generation");
    }
    assert!(refused_reads > 10, "{refused_reads} were read");
}

#[test]
fn damaged_parity_is_detected_and_harmless_to_reads() {
    let (store, image) = write_store();
    let (blocks, parities) = (blocks(&image), parities(&image));
    let expected = ages(&store, KEYS, 1_800_000);
    for parity in 0..parities {
        let mut damaged = image.clone();
        damage(&mut damaged, blocks + parity, 1);
        assert_eq!(verified(&damaged).unwrap_err().code(), ErrorCode::Corrupt, "{parity}");
        let copy = gone_on(&store, mapped(&damaged));
        assert!(ages(&copy, KEYS, 1_800_000) == expected);
        assert!(written_again(&copy).len() >= image.len());
        assert_eq!((repaired(&copy), verified(&image)), (0, Ok(())));
    }
}

#[test]
fn concurrent_readers_of_a_damaged_block_read_the_written_documents() {
    const READERS: usize = 3;
    let number = |n: u64, added: i64| Value::Int64(n as i64 + added);
    let set = |store: &mut Store, keys: Range<u64>, added: i64| {
        for first in keys.step_by(1_000) {
            let changed_keys = (first..first + 1_000).filter(|n| added == 0 || n % 2 == 1);
            let change = |n| store.upsert(&format!("key-{n}"), &[("age", Some(number(n, added)))]);
            let changes = changed_keys.map(change).collect();
            store.write(changes, 1_000);
        }
    };
    let mut store = store();
    set(&mut store, 0..KEYS, 0);
    let image = image_of(&store);
    let (blocks, parities) = (blocks(&image), parities(&image));
    let mut place = numbers(11);
    for round in 0..8 {
        let mut damaged = image.clone();
        damage(&mut damaged, place((blocks - parities) as u64) as usize, parities);
        let mut copy = gone_on(&store, mapped(&damaged));
        let (index, start) = (copy.index.clone(), Barrier::new(READERS + 1));
        std::thread::scope(|scope| {
            let readers = [(); READERS].map(|()| {
                scope.spawn(|| {
                    let age = index.field_as("age", INT64).unwrap();
                    start.wait();
                    let view = index.view(at(0));
                    for n in 0..KEYS {
                        let key = format!("key-{n}");
                        let found = view.get_scalar::<i64>(&age, key.as_str()).unwrap().value();
                        let added = found.unwrap() - n as i64;
                        assert!(
                            added == 0 || (added == 500_000 && n % 2 == 1),
                            "round {round}: {key}"
                        );
                    }
                })
            });
            start.wait();
            set(&mut copy, 0..KEYS, 500_000);
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
        assert_eq!(copy.partitions[&PARTITION].writer.check_integrity(), Ok(()));
        assert!(
            (1..=parities as u64).contains(&repaired(&copy)),
            "{} were repaired",
            repaired(&copy)
        );
        for (n, found) in ages(&copy, KEYS, 0).into_iter().enumerate() {
            assert_eq!(found, Ok(Some(n as i64 + if n % 2 == 1 { 500_000 } else { 0 })));
        }
    }
}

/// Returns a shared copy that continues from an image.
fn shared_from(store: &Store, dir: &std::path::Path, image: &[u8]) -> Result<Store> {
    let mut shared = Store::shared(spec(1, &[("age", INT64), ("name", STRING)]), dir);
    let image = Image::open(mapped(image)).unwrap();
    let state = store.partitions[&PARTITION].state.clone();
    let followed = shared.partitions.get_mut(&PARTITION).unwrap();
    followed.writer.start_rebuild_from_image(&image, &state)?;
    followed.writer.publish_rebuild();
    followed.writer.set_phase(Phase::Serving);
    followed.state = state;
    shared.write_as(store);
    Ok(shared)
}

#[test]
fn shared_copy_of_a_damaged_image_has_the_written_documents() {
    let (store, image) = write_store();
    let parities = parities(&image);
    let mut damaged = image.clone();
    damage(&mut damaged, 40, parities);
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let mut shared = shared_from(&store, dirs[0].path(), &damaged).unwrap();
    let mut other = shared_from(&store, dirs[1].path(), &image).unwrap();
    // All blocks are copied, so all damaged blocks are repaired.
    assert_eq!((repaired(&shared), repaired(&other)), (parities as u64, 0));
    assert!(rows(&shared) == rows(&store));
    assert!(ages(&shared, KEYS, 1_800_000) == ages(&store, KEYS, 1_800_000));
    for shared in [&mut shared, &mut other] {
        write_some(shared, KEYS, 1_800..2_000);
    }
    assert!(rows(&shared) == rows(&other));
    verified(&image_of(&shared)).unwrap();

    damage(&mut damaged, 40 + 5 * parities, 1);
    let error = shared_from(&store, dirs[2].path(), &damaged).map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Corrupt, "{error}");
}

#[test]
fn image_without_parity_opens_and_is_not_repaired() {
    let (store, image) = write_store();
    let mut before = without_parity(&image, 1);
    assert!(before.len() < image.len());
    verified(&before).unwrap();
    for version in [0, 2] {
        let open_error = verified(&without_parity(&image, version)).unwrap_err();
        let expected = if version == 0 { ErrorCode::Unsupported } else { ErrorCode::Corrupt };
        assert_eq!(open_error.code(), expected, "{version}: {open_error}");
    }
    let [mut copy, mut other] = [&before, &image].map(|image| gone_on(&store, mapped(image)));
    assert!(ages(&copy, KEYS, 1_800_000) == ages(&store, KEYS, 1_800_000));
    for copy in [&mut copy, &mut other] {
        write_some(copy, KEYS, 1_800..2_000);
    }
    assert!(rows(&copy) == rows(&other));
    let second_image = image_of(&copy);
    assert!(parities(&second_image) > 0, "what is written is of this build");
    verified(&second_image).unwrap();

    damage(&mut before, 40, 1);
    let write_result = match try_gone_on(&store, mapped(&before)) {
        Ok(copy) => copy.partitions[&PARTITION].writer.write_image(vec![], &mut Bytes::default()),
        Err(error) => Err(error),
    };
    assert_eq!(write_result.unwrap_err().code(), ErrorCode::Corrupt);
}

#[test]
fn impossible_parity_count_is_refused() {
    let (_, image) = write_store();
    let parities_at = 144;
    for parities in [0, 1, blocks(&image) as u64 + 1, u64::MAX] {
        let mut forged = image.clone();
        forged[parities_at..parities_at + 8].copy_from_slice(&parities.to_le_bytes());
        let body = xxhash_rust::xxh3::xxh3_64(&forged[..BLOCK_BYTES - 8]);
        forged[BLOCK_BYTES - 8..BLOCK_BYTES].copy_from_slice(&body.to_le_bytes());
        assert_eq!(verified(&forged).unwrap_err().code(), ErrorCode::Corrupt, "{parities}");
    }
}
