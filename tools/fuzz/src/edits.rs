//! Edits of a sound file by a fuzzer's input.

/// Applies edits of three bytes each: an offset u16 and the byte to write there. An offset past the
/// end truncates the file.
pub(crate) fn apply_edits(edits: &[u8], bytes: &mut Vec<u8>) {
    for [low, high, byte] in edits.as_chunks::<3>().0 {
        let offset = usize::from(u16::from_le_bytes([*low, *high]));
        match bytes.get_mut(offset) {
            Some(place) => *place = *byte,
            None => bytes.truncate(offset % (bytes.len() + 1)),
        }
    }
}
