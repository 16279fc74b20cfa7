//! The fuzz target `embedded_journal`; the library documents the promise that it checks.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forebay_fuzz::embedded_journal(bytes));
