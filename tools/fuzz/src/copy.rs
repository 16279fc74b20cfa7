//! Copies of shards: blocks of rows, the journal of parts, and names of files.

use std::path::{Component, Path};

use forebay_wire::shard_copy::{RowsBlock, block_rows, file_kind, part_record, read_parts};

/// Decodes the input: kind u8, modulo 3, then bytes of a block (0), a journal (1) or a name (2).
///
/// # Panics
/// Panics if decoded data does not encode to its own bytes, or a name leaves its folder.
pub fn copy_decode(input: &[u8]) {
    let Some((mode, rest)) = input.split_first() else { return };
    match mode % 3 {
        0 => block(rest),
        1 => journal(rest),
        _ => name(&String::from_utf8_lossy(rest)),
    }
}

fn block(bytes: &[u8]) {
    let mut second_block = RowsBlock::default();
    let mut is_whole = true;
    for row in block_rows(bytes) {
        match row {
            Ok((key, value)) => second_block.push(key, value),
            Err(_) => is_whole = false,
        }
    }
    assert!(bytes.starts_with(second_block.bytes()));
    assert_eq!(is_whole, second_block.bytes().len() == bytes.len());
}

fn journal(bytes: &[u8]) {
    let (parts, end) = read_parts(bytes);
    let encoded: Vec<_> = parts.iter().flat_map(part_record).collect();
    assert_eq!(read_parts(&encoded).0, parts);
    assert!(end <= bytes.len() as u64);
}

fn name(name: &str) {
    if file_kind(name).is_some() {
        let components: Vec<_> = Path::new(name).components().collect();
        assert!(matches!(components[..], [Component::Normal(same)] if same == name));
        assert!(name.is_ascii() && !name.contains(['/', '\\', '\0']));
    }
}
