//! A broken promise on purpose: a fuzzer that does not find it finds nothing.

/// Panics on inputs that begin with one word of four letters, letter by letter.
///
/// # Panics
/// That is what it is for.
pub fn canary(input: &[u8]) {
    let mut word = b"reed".iter().zip(input);
    assert!(input.len() < 4 || word.any(|(letter, byte)| letter != byte), "the canary is found");
}
