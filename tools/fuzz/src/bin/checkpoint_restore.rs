//! The fuzz target `checkpoint_restore`; the library documents the promise that it checks.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forebay_fuzz::checkpoint_restore(bytes));
