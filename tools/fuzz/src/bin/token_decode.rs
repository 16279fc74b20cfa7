//! The fuzz target `token_decode`; what it checks is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forebay_fuzz::token_decode(bytes));
