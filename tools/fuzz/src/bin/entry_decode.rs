//! The fuzz target `entry_decode`; the library documents the promise that it checks.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forebay_fuzz::entry_decode(bytes));
