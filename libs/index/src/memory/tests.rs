//! These tests detect chunks that overlap, are lost or keep their pages.

use super::addresses::reserved_of;
use super::allocation::{FREED_PER_CALL, GATHERED_SHARE};
use super::free::WARM_BLOCKS_MAX;
use super::geometry::ORDER_MAX;
use super::*;

#[test]
fn chunks_are_aligned_disjoint_and_join_again() {
    let memory = Memory::reserve(RESERVED_BYTES).unwrap();
    let sizes = [1, 8_192, 8_193, 100_000, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES, 70];
    for _ in 0..3 {
        let mut chunks: Vec<_> =
            sizes.iter().map(|bytes| memory.allocate(*bytes).unwrap()).collect();
        for (chunk, bytes) in chunks.iter().zip(sizes) {
            assert!(chunk.bytes() >= bytes && chunk.address() > 0);
            assert_eq!(chunk.address() % chunk.bytes(), 0);
            // SAFETY: the chunk is this test's.
            unsafe { memory.clear(chunk) };
        }
        chunks.sort_by_key(Chunk::address);
        let are_apart = |pair: &[Chunk]| pair[0].address() + pair[0].bytes() <= pair[1].address();
        assert!(chunks.windows(2).all(are_apart), "{chunks:?}");
        assert_eq!(memory.used_bytes(), chunks.iter().map(Chunk::bytes).sum());
        memory.release(chunks);
        assert_eq!(memory.used_bytes(), 0);
        assert!(!memory.state().free.holds_small());
    }
    // Later rounds reused the chunks that earlier rounds had freed.
    let fresh = memory.state().free.fresh();
    assert!(fresh <= 16 * BLOCK_BYTES, "{fresh}");
}

#[test]
fn free_list_holds_exactly_the_memory_between_chunks() {
    let end = 3 * BLOCK_BYTES;
    let used = [(BLOCK_BYTES + 3 * CHUNK_BYTES_MIN, CHUNK_BYTES_MIN), (2 * BLOCK_BYTES, 65_536)];
    let mut free = Free::from_used(used.to_vec(), end).unwrap();
    assert_eq!(free.fresh(), end);
    let mut ranges: Vec<_> = used.to_vec();
    for order in (0..=ORDER_MAX).rev() {
        // The largest order comes first, so no chunk is cut from a larger one.
        ranges.extend(
            std::iter::from_fn(|| free.take(order)).map(|chunk| (chunk.address(), chunk.bytes())),
        );
    }
    ranges.sort_unstable();
    let mut next = BLOCK_BYTES;
    for (start, bytes) in ranges {
        assert_eq!(start, next, "a gap, or an overlap");
        next += bytes;
    }
    assert_eq!(next, end);

    for wrong in [vec![(0, CHUNK_BYTES_MIN)], vec![(end, CHUNK_BYTES_MIN)], vec![used[1]; 2]] {
        let error = Free::from_used(wrong, end).unwrap_err();
        assert_eq!(error.code(), forebay_core::ErrorCode::Corrupt);
    }
}

#[test]
fn reservation_leaves_most_of_an_address_limit_free() {
    assert_eq!(reserved_of(None, 1), RESERVED_BYTES);
    assert_eq!(reserved_of(Some(u64::MAX), 1), RESERVED_BYTES);
    assert_eq!(reserved_of(Some(20 << 30), 1), 2 << 30);
    assert_eq!(reserved_of(Some(40 << 30), 4), 1 << 30);
    assert_eq!(reserved_of(Some(0), 1), RESERVED_BYTES_MIN);
}

#[test]
fn memory_refuses_chunks_beyond_its_range() {
    let memory = Memory::reserve(2 << 30).unwrap();
    let error = memory.allocate(CHUNK_BYTES_MIN << (ORDER_MAX + 1)).unwrap_err();
    assert_eq!(error.code(), forebay_core::ErrorCode::LimitExceeded);
    let error = memory.allocate(u64::MAX).unwrap_err();
    assert_eq!(error.code(), forebay_core::ErrorCode::LimitExceeded);
    let mut chunks = Vec::new();
    let error = loop {
        match memory.allocate(CHUNK_BYTES_MIN << ORDER_MAX) {
            Ok(chunk) => chunks.push(chunk),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), forebay_core::ErrorCode::LimitExceeded);
    assert_eq!(chunks.len(), 7, "all but the first 256 MiB, where address 0 lies");
    assert!(chunks.iter().all(|chunk| chunk.address() + chunk.bytes() <= 2 << 30));
    memory.release(chunks);
    assert!(memory.allocate(CHUNK_BYTES_MIN << ORDER_MAX).is_ok());
}

#[test]
fn range_used_by_small_chunks_serves_large_chunks_again() {
    let memory = Memory::reserve(16 * BLOCK_BYTES).unwrap();
    for bytes in [CHUNK_BYTES_MIN, BLOCK_BYTES, 8 * BLOCK_BYTES, 100_000, 4 * BLOCK_BYTES] {
        let allocate_all = || std::iter::from_fn(|| memory.allocate(bytes).ok());
        let chunks: Vec<_> = allocate_all().collect();
        let total = bytes.next_power_of_two() * chunks.len() as u64;
        assert!(total >= 8 * BLOCK_BYTES, "{total} bytes in chunks of {bytes}");
        memory.accept_released(chunks);
    }
}

#[test]
fn chunks_return_a_few_at_a_time_unless_they_are_needed() {
    let memory = Memory::reserve(16 * BLOCK_BYTES).unwrap();
    let chunks: Vec<_> = (0..1_000).map(|_| memory.allocate(1).unwrap()).collect();
    memory.accept_released(chunks);
    let before = memory.used_bytes();
    memory.free_released();
    assert_eq!(before - memory.used_bytes(), FREED_PER_CALL as u64 * CHUNK_BYTES_MIN);
    let all: Vec<_> = std::iter::from_fn(|| memory.allocate(BLOCK_BYTES).ok()).collect();
    assert_eq!(all.len(), 15);
    memory.release(all);
    assert_eq!(memory.used_bytes(), 0);
}

#[test]
fn chunks_left_by_many_threads_all_return() {
    let memory = Memory::reserve(64 * BLOCK_BYTES).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for n in 0..2_000_u64 {
                    let chunk = memory.allocate(1 + n * 7 % 20_000).unwrap();
                    // SAFETY: the chunk is this thread's.
                    unsafe { memory.write(chunk.address(), &n.to_le_bytes()) };
                    memory.accept_released(vec![chunk]);
                }
            });
        }
    });
    (0..10_000).for_each(|_| memory.free_released());
    assert_eq!(memory.used_bytes(), 0);
    assert!(!memory.state().free.holds_small());
}

#[test]
fn readers_leave_while_a_writer_holds_the_lock() {
    let memory = Memory::reserve(RESERVED_BYTES).unwrap();
    let chunk = memory.allocate(1).unwrap();
    let guard = memory.state();
    memory.accept_released(vec![chunk]);
    memory.free_released();
    drop(guard);
    memory.free_released();
    assert_eq!(memory.used_bytes(), 0);
}

#[test]
fn surplus_free_blocks_release_their_pages() {
    let memory = Memory::reserve(RESERVED_BYTES).unwrap();
    let blocks = 4 * WARM_BLOCKS_MAX as u64;
    let chunks: Vec<_> = (0..blocks).map(|_| memory.allocate(BLOCK_BYTES).unwrap()).collect();
    for chunk in &chunks {
        // SAFETY: the chunk is this test's.
        unsafe { memory.write(chunk.address(), b"page") };
    }
    memory.release(chunks);
    let warm = (0..blocks).filter(|_| {
        let chunk = memory.allocate(BLOCK_BYTES).unwrap();
        addresses::allow(memory.pointer(chunk.address()), 4);
        // SAFETY: the chunk is this test's, and every byte of its pages is defined.
        unsafe { memory.bytes(chunk.address(), 4) == b"page" }
    });
    assert_eq!(warm.count(), WARM_BLOCKS_MAX);
}

/// Returns how many pages of a block are present.
fn pages_of(memory: &Memory, block: u64) -> usize {
    let mut pages = vec![0_u8; (BLOCK_BYTES / 4_096) as usize];
    // SAFETY: a block of the memory's own mapping, and a byte for each of its pages.
    let advice_result = unsafe {
        let start = memory.pointer(block).cast();
        libc::mincore(start, BLOCK_BYTES as usize, pages.as_mut_ptr())
    };
    assert_eq!(advice_result, 0);
    pages.iter().filter(|page| **page & 1 == 1).count()
}

#[test]
fn next_blocks_of_a_large_space_are_prefaulted() {
    let memory = Memory::reserve(RESERVED_BYTES).unwrap();
    let account = Arc::new(MemoryAccount::new());
    memory.charge_to(&account);
    let mut chunks = vec![memory.allocate(BLOCK_BYTES).unwrap()];
    assert!(!memory.wants_blocks(), "a small one takes no more than it needs");
    chunks.extend((0..32).map(|_| memory.allocate(BLOCK_BYTES).unwrap()));
    let next = memory.opened();
    assert!(memory.wants_blocks());
    account.set_limit(memory.used_bytes() + BLOCK_BYTES);
    assert!(!memory.wants_blocks(), "there is no room for them");
    account.set_limit(u64::MAX);
    memory.prepare_blocks();
    assert!(!memory.wants_blocks());
    let prepared = pages_of(&memory, next);
    let used = memory.used_bytes();
    let chunk = memory.allocate(BLOCK_BYTES).unwrap();
    assert_eq!((chunk.address(), memory.used_bytes()), (next, used + BLOCK_BYTES));
    // SAFETY: the chunk is this test's.
    unsafe { memory.write(next, b"written") };
    memory.prepare_blocks();
    // SAFETY: as above.
    assert_eq!(unsafe { memory.bytes(next, 7) }, b"written");
    // A kernel before 5.14 refuses, and the only loss is time.
    assert!(prepared == 512 || prepared == 0, "{prepared} pages");
    memory.release(chunks.into_iter().chain([chunk]));
}

#[test]
fn unused_chunks_are_gathered_up_to_a_share_of_the_space() {
    let memory = Memory::reserve(RESERVED_BYTES).unwrap();
    let small = || memory.allocate(CHUNK_BYTES_MIN).unwrap();
    let first = small();
    let only_chunk = memory.gather(vec![first]).expect("a small space gathers nothing");
    let blocks: Vec<_> = (0..16).map(|_| memory.allocate(BLOCK_BYTES).unwrap()).collect();
    let mut gathered = Vec::new();
    let all = loop {
        let chunk = small();
        gathered.push(chunk.address());
        if let Some(all) = memory.gather(vec![chunk]) {
            break all;
        }
    };
    assert_eq!(gathered.len() as u64, 16 * BLOCK_BYTES / GATHERED_SHARE / CHUNK_BYTES_MIN + 1);
    assert_eq!(all.iter().map(Chunk::address).collect::<Vec<_>>(), gathered);
    assert!(memory.gather(vec![small()]).is_none(), "it begins anew");
    memory.release(only_chunk.into_iter().chain(blocks).chain(all));
}
