//! The fuzz target `shard_rows`; the library documents the promise that it checks.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forebay_fuzz::shard_rows(bytes));
