//! The group of each hash as the writer sees it, by index in the writer's list of groups. The map
//! is split into pieces that grow independently: one list parallel to the directory would be copied
//! each time that the directory doubles, into memory without pages yet, inside one `apply`.

/// Maximum number of bits of a hash that select its piece.
const PIECES_DEPTH_MAX: u32 = 8;

/// The indexes of groups, by the first bits of the hashes that belong to them.
#[derive(Debug, Default)]
pub(super) struct WriterDirectory {
    /// The pieces, by the first bits of a hash. Each piece is indexed by the bits after them, as
    /// many as it needs. Both lengths are powers of two.
    pieces: Vec<Vec<u32>>,
}

impl WriterDirectory {
    /// The index of the group that a hash belongs to; the map must not be empty.
    #[inline]
    pub(super) fn group_of(&self, hash: u64) -> usize {
        let depth = self.pieces.len().ilog2();
        let piece = &self.pieces[first_bits(hash, depth)];
        piece[first_bits(hash << depth, piece.len().ilog2())] as usize
    }

    /// Assigns all hashes that share this many first bits with `hash` to the group at an index.
    pub(super) fn point(&mut self, hash: u64, depth: u32, place: usize) {
        let place = place as u32;
        if self.pieces.is_empty() {
            self.pieces.push(vec![place]);
        }
        while self.pieces.len().ilog2() < depth.min(PIECES_DEPTH_MAX) {
            // At this point no piece is longer than one.
            self.pieces =
                self.pieces.iter().flat_map(|piece| [piece.clone(), piece.clone()]).collect();
        }
        let pieces_depth = self.pieces.len().ilog2();
        if depth <= pieces_depth {
            let width = 1 << (pieces_depth - depth);
            let start = first_bits(hash, depth) * width;
            self.pieces[start..start + width].fill(vec![place]);
            return;
        }
        let (piece, depth) =
            (&mut self.pieces[first_bits(hash, pieces_depth)], depth - pieces_depth);
        while piece.len().ilog2() < depth {
            *piece = piece.iter().flat_map(|place| [*place; 2]).collect();
        }
        let width = piece.len() >> depth;
        let start = first_bits(hash << pieces_depth, depth) * width;
        piece[start..start + width].fill(place);
    }

    /// The index of each group, in the order of their hashes.
    pub(super) fn in_order(&self) -> Vec<usize> {
        let mut places: Vec<_> =
            self.pieces.iter().flatten().map(|place| *place as usize).collect();
        places.dedup();
        places
    }
}

/// Returns the first bits of a hash as a number.
#[inline]
pub(super) fn first_bits(hash: u64, bits: u32) -> usize {
    hash.checked_shr(64 - bits).unwrap_or(0) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The depth of the reference directory, which is one list.
    const DEPTH: u32 = 12;

    proptest! {
        #[test]
        fn writer_directory_equals_a_list(splits in prop::collection::vec(any::<u64>(), 0..2_000)) {
            let (mut places, mut list) = (WriterDirectory::default(), vec![0; 1 << DEPTH]);
            places.point(0, 0, 0);
            let mut depths = vec![0];
            for hash in splits {
                // The hash's group is split in two: the high half gets a new index.
                let place = places.group_of(hash);
                let depth = depths[place] + 1;
                if depth > DEPTH {
                    continue;
                }
                depths[place] = depth;
                depths.push(depth);
                for (bit, group) in [(0, place), (1, depths.len() - 1)] {
                    let cleared = hash & !(1 << (64 - depth));
                    let first_hash = cleared | bit << (64 - depth);
                    places.point(first_hash, depth, group);
                    let start = first_bits(first_hash, depth) << (DEPTH - depth);
                    list[start..start + (1 << (DEPTH - depth))].fill(group);
                }
            }
            for (entry, place) in list.iter().enumerate() {
                prop_assert_eq!(places.group_of((entry as u64) << (64 - DEPTH) | 12_345), *place);
            }
            list.dedup();
            prop_assert_eq!(places.in_order(), list);
        }
    }
}
