//! The fuzz target `embedded_segment`; the library documents the promise that it checks.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forebay_fuzz::embedded_segment(bytes));
