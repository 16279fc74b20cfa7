//! The fuzz target `checkpoint_restore`; what it checks is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forebay_fuzz::checkpoint_restore(bytes));
