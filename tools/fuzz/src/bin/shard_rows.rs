//! The fuzz target `shard_rows`; what it checks is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forebay_fuzz::shard_rows(bytes));
