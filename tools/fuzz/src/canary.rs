//! A deliberately broken promise: a fuzzer that does not find it finds nothing.

/// Panics on inputs that start with one word of four letters, which a fuzzer finds letter by
/// letter.
///
/// # Panics
/// Panics by design on that word.
pub fn canary(input: &[u8]) {
    let mut word = b"reed".iter().zip(input);
    assert!(input.len() < 4 || word.any(|(letter, byte)| letter != byte), "the canary is found");
}
