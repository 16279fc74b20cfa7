//! The fuzz target `embedded_journal`; what it checks is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forebay_fuzz::embedded_journal(bytes));
