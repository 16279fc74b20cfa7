//! The fuzz target `entry_decode`; what it checks is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forebay_fuzz::entry_decode(bytes));
