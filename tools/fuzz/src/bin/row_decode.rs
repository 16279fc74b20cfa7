//! The fuzz target `row_decode`; what it checks is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forebay_fuzz::row_decode(bytes));
