//! The writer's state of each group, by index. The list is split into pieces that never move: a
//! list in one piece would be copied each time that it doubles, inside one `apply`.

use std::ops::{Index, IndexMut};

use super::Kept;

/// Number of groups in one piece.
const PIECE: usize = 1_024;

/// The writer's state of each group.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// The pieces; all but the last one are full.
    pieces: Vec<Vec<Kept>>,
}

impl Groups {
    pub(super) fn len(&self) -> usize {
        self.pieces.last().map_or(0, |last| (self.pieces.len() - 1) * PIECE + last.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(super) fn push(&mut self, kept: Kept) {
        match self.pieces.last_mut().filter(|last| last.len() < PIECE) {
            Some(last) => last.push(kept),
            None => self.pieces.push(vec![kept]),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Kept> {
        self.pieces.iter().flatten()
    }

    pub(super) fn into_iter(self) -> impl Iterator<Item = Kept> {
        self.pieces.into_iter().flatten()
    }
}

impl Index<usize> for Groups {
    type Output = Kept;

    #[inline]
    fn index(&self, place: usize) -> &Kept {
        &self.pieces[place / PIECE][place % PIECE]
    }
}

impl IndexMut<usize> for Groups {
    #[inline]
    fn index_mut(&mut self, place: usize) -> &mut Kept {
        &mut self.pieces[place / PIECE][place % PIECE]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{CHUNK_BYTES_MIN, Chunk};

    #[test]
    fn groups_are_found_by_the_place_that_they_got() {
        let address = |place: usize| (1 << 21) + place as u64 * CHUNK_BYTES_MIN;
        let mut groups = Groups::default();
        assert!(groups.is_empty());
        for place in 0..2 * PIECE + 3 {
            assert_eq!(groups.len(), place);
            let chunk = Chunk::of_image(address(place), CHUNK_BYTES_MIN).unwrap();
            groups.push(Kept::of(chunk, 0));
        }
        for place in [0, PIECE - 1, PIECE, 2 * PIECE + 2] {
            groups[place].depth = 7;
            assert_eq!((groups[place].chunk.address(), groups[place].depth), (address(place), 7));
        }
        assert!(groups.iter().map(|kept| kept.chunk.address()).eq((0..groups.len()).map(address)));
        assert_eq!(groups.into_iter().count(), 2 * PIECE + 3);
    }
}
