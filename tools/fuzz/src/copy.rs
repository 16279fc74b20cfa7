//! Copies of shards: blocks of rows and the journal of parts.

use forebay_wire::shard_copy::{RowsBlock, block_rows, part_record, read_parts};

/// Input: what the rest is u8, then its bytes: an even number means a block, an odd one a journal.
///
/// # Panics
/// When what was read is not what comes back from its own bytes.
pub fn copy_decode(input: &[u8]) {
    let Some((which, rest)) = input.split_first() else { return };
    if which % 2 == 0 {
        let mut again = RowsBlock::default();
        let mut is_whole = true;
        for row in block_rows(rest) {
            match row {
                Ok((key, value)) => again.push(key, value),
                Err(_) => is_whole = false,
            }
        }
        assert!(rest.starts_with(again.bytes()));
        assert_eq!(is_whole, again.bytes().len() == rest.len());
    } else {
        let (parts, end) = read_parts(rest);
        let again: Vec<_> = parts.iter().flat_map(part_record).collect();
        assert_eq!(read_parts(&again).0, parts);
        assert!(end <= rest.len() as u64);
    }
}
