//! The fuzz target `tile_decode`; what it checks is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forebay_fuzz::tile_decode(bytes));
