//! Compression of row blocks, skipped while it does not pay off.

use bytes::Bytes;
use lz4_flex::block::{compress_into, get_maximum_output_size};

/// Number of blocks sent uncompressed after a block that compression has not made smaller.
const BLOCKS_LEFT_OUT: u32 = 15;
/// A block is sent compressed if its compressed size is below this percentage of its size.
const WORTH_PERCENT: usize = 85;

/// Compressor of one stream of blocks.
#[derive(Default)]
pub(super) struct Compression {
    left_out: u32,
    made: Vec<u8>,
}

impl Compression {
    /// Returns a block in the form in which it is sent.
    pub fn pack(&mut self, block: Vec<u8>) -> Bytes {
        if self.left_out > 0 {
            self.left_out -= 1;
            return block.into();
        }
        self.made.resize(get_maximum_output_size(block.len()), 0);
        match compress_into(&block, &mut self.made) {
            Ok(length) if length * 100 < block.len() * WORTH_PERCENT => {
                Bytes::copy_from_slice(&self.made[..length])
            }
            _ => {
                self.left_out = BLOCKS_LEFT_OUT;
                block.into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::entropy::{Entropy, SeededEntropy};

    use forebay_core::Result;
    use forebay_wire::shard_copy::block_of;
    use forebay_wire::v1;

    use super::*;

    fn unpack(block: Bytes, raw_bytes: u32) -> Result<Bytes> {
        let crc32c = crc32c::crc32c(&block);
        block_of(&v1::CopyRows { block, raw_bytes, crc32c, part_end: None })
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let mut compression = Compression::default();
        let plain = vec![7; 100_000];
        let packed = compression.pack(plain.clone());
        assert!(packed.len() < 2_000);
        assert_eq!(unpack(packed.clone(), 100_000).unwrap(), plain);
        assert!(unpack(packed.clone(), 100_001).is_err());
        assert!(unpack(packed.slice(..packed.len() - 1), 100_000).is_err());
        assert!(unpack(packed, u32::MAX).is_err());
        assert_eq!(unpack(compression.pack(vec![]), 0).unwrap(), &b""[..]);
    }

    #[test]
    fn what_does_not_get_smaller_is_left_as_it_is_for_a_while() {
        let mut compression = Compression::default();
        let entropy = SeededEntropy::new(1);
        let random: Vec<_> = (0..10_000).map(|_| entropy.next_u64().unwrap() as u8).collect();
        for _ in 0..20 {
            assert_eq!(compression.pack(random.clone()), random);
        }
        let plain = vec![7; 10_000];
        let sizes: Vec<_> = (0..32).map(|_| compression.pack(plain.clone()).len()).collect();
        assert!(sizes.iter().filter(|size| **size == 10_000).count() < 16, "{sizes:?}");
    }
}
