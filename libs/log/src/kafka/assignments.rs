//! Decodes the assignment of each group member: the bytes of Kafka's consumer protocol,
//! `ConsumerProtocolAssignment`, with big-endian numbers.

use forebay_core::id::{PartitionId, PartitionRef};

use super::topics::store_of;

/// Returns the partitions of stores in a member's assignment; `None` for invalid bytes.
pub(super) fn assigned_to(topic_prefix: &str, bytes: &[u8]) -> Option<Vec<PartitionRef>> {
    let mut fields = AssignmentFields(bytes);
    let _version = fields.i16()?;
    let mut assigned = Vec::new();
    for _ in 0..fields.count()? {
        let length = usize::try_from(fields.i16()?).ok()?;
        let topic = std::str::from_utf8(fields.take(length)?).ok()?;
        let store = store_of(topic_prefix, topic);
        for _ in 0..fields.count()? {
            let partition = PartitionId(u32::try_from(fields.i32()?).ok()?);
            assigned.extend(store.map(|store| PartitionRef { store, partition }));
        }
    }
    Some(assigned)
}

struct AssignmentFields<'b>(&'b [u8]);

impl<'b> AssignmentFields<'b> {
    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn i16(&mut self) -> Option<i16> {
        Some(i16::from_le_bytes(self.take(2)?.try_into().ok()?).swap_bytes())
    }

    fn i32(&mut self) -> Option<i32> {
        Some(i32::from_le_bytes(self.take(4)?.try_into().ok()?).swap_bytes())
    }

    /// Decodes the number of elements that follow, each of at least four bytes.
    fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.i32()?).ok()?;
        (count <= self.0.len() / 4).then_some(count)
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::id::StoreId;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn assigned_partitions_of_own_stores_are_decoded() {
        let mut bytes = vec![0, 1, 0, 0, 0, 2];
        for (topic, partitions) in [("a.store-7", [0_u8, 3]), ("b.store-7", [1, 2])] {
            bytes.extend([0, topic.len() as u8]);
            bytes.extend(topic.as_bytes());
            bytes.extend([0, 0, 0, 2]);
            bytes.extend(partitions.iter().flat_map(|partition| [0, 0, 0, *partition]));
        }
        let at = |partition| PartitionRef { store: StoreId(7), partition: PartitionId(partition) };
        assert_eq!(assigned_to("a", &bytes), Some(vec![at(0), at(3)]));
        for length in 0..bytes.len() {
            assert_eq!(assigned_to("a", &bytes[..length]), None, "{length}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = assigned_to("a", &bytes);
        }
    }
}
