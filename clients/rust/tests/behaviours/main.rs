//! The one list of behaviours, `proto/vectors/behaviours.toml`, in Rust: one test per name, against
//! a real node on loopback. Each kind has a module; the list says what each test asserts.

#[path = "../common/mod.rs"]
mod common;
mod events;
mod lifecycle;
mod memory;
mod reader;
mod schema;
mod selects;
mod world;
mod writer;

use std::collections::BTreeSet;

const LIST: &str = include_str!("../../../../proto/vectors/behaviours.toml");

/// Declares a test of each named function, and a list of the names with their kinds. A function
/// that is not named here is dead code, which the lint refuses.
macro_rules! behaviours {
    ($($kind:ident: $($name:ident)*;)*) => {
        const TESTED: &[(&str, &str)] = &[$($((stringify!($kind), stringify!($name)),)*)*];

        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                $kind::$name().await;
            }
        )*)*
    };
}

behaviours! {
    writer: get_after_put get_after_upsert upsert_union delete_makes_absent remove_field
        all_value_types key_value_store every_key_type partitioned_by_field empty_key largest_key
        largest_value non_utf8_key batch_writes write_stream unknown_store unknown_field
        wrong_key_type wrong_value_type oversize_key oversize_value oversize_name increments_exact
        min_max_and_lists if_absent_race if_version if_newer store_administration;
    reader: absent_null_empty get_into_a_buffer ttl_exact ttl_of_field after_token latest_read
        max_staleness
        readiness_and_status partition_filter verified_with_its_node bootstrap_from_the_start
        bootstrap_from_a_snapshot pushed_version
        duplicate_keys_in_a_batch
        missing_keys_in_a_batch empty_batch gather_defaults gather_null_mask gather_vector_columns
        gather_duplicate_keys gather_out_too_small gather_exactness iteration_equals_gets;
    schema: add_field_live drop_field drop_fields_by_prefix drop_all rename_under_a_handle
        widen_under_a_handle;
    lifecycle: close_twice use_after_close close_during_reads reader_restart restart_from_checkpoint
        server_restart
        many_threads_one_reader unreachable_server typed_errors;
    events: stream_definition stream_inserts stream_refusals;
    selects: select_by_key select_by_index select_by_range select_ordered select_in_a_time_span
        select_refusals select_after_token;
    memory: in_memory_ready in_memory_writes in_memory_clock in_memory_alterations
        in_memory_not_ready in_memory_stale in_memory_closed in_memory_equals_a_node;
}

#[test]
fn every_behaviour_has_its_test() {
    let list: toml::Table = LIST.parse().unwrap();
    let entries = list["behaviour"].as_array().unwrap();
    let part = |entry: &toml::Value, part: &str| entry[part].as_str().unwrap().to_owned();
    let listed: Vec<_> =
        entries.iter().map(|entry| (part(entry, "kind"), part(entry, "name"))).collect();
    let tested = TESTED.iter().map(|(kind, name)| ((*kind).to_owned(), (*name).to_owned()));
    let tested: BTreeSet<_> = tested.collect();
    let names: BTreeSet<_> = listed.iter().map(|(_, name)| name).collect();
    assert_eq!(names.len(), listed.len(), "a name stands twice in the list");
    let listed: BTreeSet<_> = listed.into_iter().collect();
    let lacking: Vec<_> = listed.difference(&tested).collect();
    let added: Vec<_> = tested.difference(&listed).collect();
    assert!(lacking.is_empty(), "write a test of each of these: {lacking:?}");
    assert!(added.is_empty(), "not in the list: {added:?}");
}
