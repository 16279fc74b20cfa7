//! The fuzz target `snapshot_decode`; the library documents the promise that it checks.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forebay_fuzz::snapshot_decode(bytes));
