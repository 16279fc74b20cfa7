//! Comparison of a reader's copy with its node, packed as `fb_reader_verify` of the header
//! describes.

use std::time::Duration;

use forebay::Result;
use forebay::reads::DocumentKey;
use forebay::schema::{Definition, PartitionId};
use forebay::status::{DifferenceKind, Verification};

use crate::abi::{FbBytes, FbError};
use crate::error::ffi_call;
use crate::input::put;
use crate::output::Packer;
use crate::registry;

impl Packer {
    fn verified(&mut self, verified: &Verification, definition: &Definition) -> Result<()> {
        let (first_documents, second_documents) = verified.documents;
        for count in [first_documents, second_documents, verified.more, verified.ranges_left as u64]
        {
            self.u64(count);
        }
        self.u32(verified.differences.len() as u32);
        for (key, kind) in &verified.differences {
            self.u8(match kind {
                DifferenceKind::OnlyInFirst => 1,
                DifferenceKind::OnlyInSecond => 2,
                DifferenceKind::Contents => 3,
            });
            let key = DocumentKey::of_identity(key.as_bytes(), definition)?;
            self.key(key.primary());
            match key.partition_key() {
                Some(partition_key) => self.key(partition_key),
                None => self.u32(0),
            }
        }
        Ok(())
    }
}

/// Compares the reader's copy of a partition with the shard of its node.
///
/// # Safety
/// Pointers satisfy the header's rules.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fb_reader_verify(
    reader: u64,
    partition: u32,
    timeout_ms: u64,
    verified: *mut FbBytes,
    error: *mut FbError,
) -> i32 {
    ffi_call(error, || {
        let open = registry::open(reader)?;
        let open = open.reader()?;
        let wait_max = Duration::from_millis(timeout_ms);
        let found = open.wait(open.reader.verify(PartitionId(partition), wait_max))??;
        let mut packer = Packer::default();
        packer.verified(&found, &open.reader.definition())?;
        // SAFETY: the caller follows the header's rules.
        unsafe { put(verified, packer.finish()) };
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use forebay::schema::{KeyType, StoreId, StoreSpec};
    use forebay_core::id::{PartitionRef, Position};
    use forebay_core::key::Key;

    use super::*;

    #[test]
    fn differences_are_packed_with_their_keys() {
        let spec = StoreSpec::key_value("a", KeyType::String).partitions(1);
        let definition = spec.define(StoreId(1)).unwrap();
        let key = |text: &str| Key::plain(text.as_bytes()).unwrap();
        let verified = Verification {
            at: PartitionRef { store: StoreId(1), partition: PartitionId(0) },
            position: Position::default(),
            documents: (7, 8),
            differences: vec![
                (key("u1"), DifferenceKind::OnlyInFirst),
                (key("u2"), DifferenceKind::OnlyInSecond),
                (key("u3"), DifferenceKind::Contents),
            ],
            more: 9,
            ranges_left: 10,
        };
        let mut packer = Packer::default();
        packer.verified(&verified, &definition).unwrap();
        let mut expected: Vec<u8> = [7_u64, 8, 9, 10].map(u64::to_le_bytes).concat();
        expected.extend(3_u32.to_le_bytes());
        for (kind, text) in [(1, "u1"), (2, "u2"), (3, "u3")] {
            let mut expected_key = Packer::default();
            expected_key.u8(kind);
            expected_key.key(forebay::schema::KeyValue::String(text));
            expected_key.u32(0);
            expected.extend(expected_key.into_bytes());
        }
        assert_eq!(packer.into_bytes(), expected);
    }
}
