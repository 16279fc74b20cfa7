//! Keys of a view's shard. The first byte is the kind of a row; `proto/spec/views.md` lists all
//! kinds.

use forebay_core::clock::Timestamp;
use forebay_core::key::Key;
use forebay_core::key_order::{DOCUMENTS, KeyRange, number_of_ordered, ordered_i64};
use forebay_core::{Error, Result};
use forebay_sketch::TileId;

const VERSION: u8 = b'v';
const TILE: u8 = b't';
const CHANGED: u8 = b'c';
const MOMENT: u8 = b'm';

const UNBOUNDED: u8 = 0;
const SLIDE: u8 = 1;
/// Bytes after a group's bytes.
const HOP_BYTES: usize = 1 + 8 + 8;

/// Returns the key of the row with the version by which a view was folded.
pub(super) fn version_key() -> Key {
    Key::from_identity_bytes(&[VERSION])
}

/// Returns the key of a group's tile.
pub(super) fn tile_key(group: &[u8], tile: TileId) -> Key {
    let mut key = Vec::with_capacity(1 + group.len() + HOP_BYTES);
    key.push(TILE);
    key.extend_from_slice(group);
    match tile {
        TileId::Unbounded => key.push(UNBOUNDED),
        TileId::Slide { slide_us, start } => {
            key.push(SLIDE);
            key.extend_from_slice(&ordered_i64(slide_us));
            key.extend_from_slice(&ordered_i64(start.as_micros()));
        }
    }
    Key::from_identity_bytes(&key)
}

/// Returns the range of all tiles of a group: no group's bytes are a prefix of another's.
pub(super) fn tiles_of(group: &[u8]) -> KeyRange {
    KeyRange::of_prefix([&[DOCUMENTS, TILE], group].concat())
}

/// Returns the range of all tiles from this group on.
pub(super) fn tiles_from(group: &[u8]) -> KeyRange {
    let KeyRange { from, to } = KeyRange::of_prefix(vec![DOCUMENTS, TILE]);
    KeyRange { from: [&from[..], group].concat(), to }
}

/// Returns the bytes after the kind in the key of a tile: the group and the tile.
///
/// # Errors
/// `Corrupt` for another key.
pub(super) fn group_and_more(key: &[u8]) -> Result<&[u8]> {
    key.strip_prefix(&[TILE])
        .ok_or_else(|| Error::corrupt("a row of a view does not belong to a tile"))
}

/// Decodes the tile of a group from a key.
///
/// # Errors
/// `Corrupt` for another key.
pub(super) fn tile_of(key: &[u8], group: &[u8]) -> Result<TileId> {
    let slide = |bytes: &[u8]| {
        let (slide_us, start) = bytes.split_first_chunk::<8>()?;
        let start = Timestamp::from_micros(number_of_ordered(start.try_into().ok()?));
        Some(TileId::Slide { slide_us: number_of_ordered(*slide_us), start })
    };
    let found = match key.strip_prefix(&[TILE]).and_then(|key| key.strip_prefix(group)) {
        Some([UNBOUNDED]) => Some(TileId::Unbounded),
        Some([SLIDE, bytes @ ..]) => slide(bytes),
        _ => None,
    };
    found.ok_or_else(|| Error::corrupt("a row of a view does not belong to a tile"))
}

/// Returns the key of the row of a group that waits for materialization.
pub(super) fn changed_key(group: &[u8]) -> Key {
    Key::from_identity_bytes(&[&[CHANGED], group].concat())
}

/// Returns the range of all such rows after a group's.
pub(super) fn changed_behind(group: &[u8]) -> KeyRange {
    let KeyRange { from, to } = KeyRange::of_prefix(vec![DOCUMENTS, CHANGED]);
    match group {
        [] => KeyRange { from, to },
        group => KeyRange { from: [&from[..], group, &[0]].concat(), to },
    }
}

/// Returns the group of such a key.
///
/// # Errors
/// `Corrupt` for another key.
pub(super) fn changed_group(key: &[u8]) -> Result<&[u8]> {
    key.strip_prefix(&[CHANGED])
        .ok_or_else(|| Error::corrupt("a row of a view does not belong to a group"))
}

/// Returns the key of the row of a time at which the values of a group change.
pub(super) fn moment_key(moment: Timestamp, group: &[u8]) -> Key {
    Key::from_identity_bytes(&[&[MOMENT], &ordered_i64(moment.as_micros())[..], group].concat())
}

/// Returns the range of all such times, earliest first.
pub(super) fn moments() -> KeyRange {
    KeyRange::of_prefix(vec![DOCUMENTS, MOMENT])
}

/// Returns the time and the group of such a key.
///
/// # Errors
/// `Corrupt` for another key.
pub(super) fn moment_and_group(key: &[u8]) -> Result<(Timestamp, &[u8])> {
    let found = key.strip_prefix(&[MOMENT]).and_then(|key| key.split_first_chunk::<8>());
    let (moment, group) = found.ok_or_else(|| Error::corrupt("a row of a view has no moment"))?;
    Ok((Timestamp::from_micros(number_of_ordered(*moment)), group))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn tile_keys_round_trip_and_sort_by_start() {
        let slide = |start| TileId::Slide { slide_us: 60, start: time(start) };
        let tiles = [TileId::Unbounded, slide(i64::MIN), slide(-60), slide(0), slide(i64::MAX)];
        let keys = tiles.map(|tile| tile_key(b"group", tile));
        assert!(keys.is_sorted());
        for (key, tile) in keys.iter().zip(tiles) {
            assert_eq!(tile_of(key.as_bytes(), b"group").unwrap(), tile);
        }
        for broken in [&b""[..], b"tgroup", b"tgroup\x02", b"tgroup\x01short", b"tgroup\x00long"] {
            assert!(tile_of(broken, b"group").is_err());
        }
    }

    #[test]
    fn moment_keys_sort_by_time() {
        let keys = [i64::MIN, -9, 0, 7, i64::MAX].map(|moment| moment_key(time(moment), b"group"));
        assert!(keys.is_sorted());
        let range = moments();
        for key in &keys {
            let stored = [&[DOCUMENTS], key.as_bytes()].concat();
            assert!(range.from <= stored && stored < range.to);
        }
        assert_eq!(moment_and_group(keys[1].as_bytes()).unwrap(), (time(-9), &b"group"[..]));
        assert!(moment_and_group(b"mshort").is_err() && changed_group(b"t").is_err());
    }

    #[test]
    fn range_after_a_group_starts_with_the_next_group() {
        let stored = |group: &[u8]| [&[DOCUMENTS], changed_key(group).as_bytes()].concat();
        let range = changed_behind(b"b");
        let has = |group: &[u8]| range.from <= stored(group) && stored(group) < range.to;
        assert!(!has(b"a") && !has(b"b") && has(b"c"));
        assert!(changed_behind(b"").from <= stored(b"\0"));
    }
}
