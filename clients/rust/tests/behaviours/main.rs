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
    writer: get_returns_exactly_the_put_fields get_returns_every_upserted_field
        upserts_of_different_fields_add_up delete_makes_the_document_absent
        removed_field_is_absent_and_others_remain every_value_type_is_read_as_written
        key_value_store_puts_gets_and_deletes_bytes documents_are_found_under_every_key_type
        partition_key_is_required_with_every_key empty_key_is_a_key
        largest_key_is_written_and_found largest_value_is_read_as_written non_utf8_bytes_are_a_key
        batch_answers_one_outcome_per_change_in_order stream_acknowledges_every_write_once_in_order
        unknown_store_is_not_found unknown_field_is_not_found key_of_another_type_is_refused
        misfitting_value_is_refused oversize_key_is_refused oversize_value_is_refused
        oversize_name_is_refused concurrent_increments_add_up_exactly
        min_max_and_list_merges_take_effect if_absent_race_has_exactly_one_winner
        if_version_applies_only_to_the_given_version if_newer_applies_only_a_larger_value
        stores_are_created_described_altered_and_deleted refresh_returns_the_newest_definition;
    reader: absent_null_and_empty_differ get_copies_a_value_into_the_callers_buffer
        document_expires_exactly_at_its_time field_expires_at_its_own_time
        read_after_a_token_waits_for_its_write latest_read_sees_every_acknowledged_write
        read_beyond_its_staleness_bound_is_stale ready_reader_reports_status_and_metrics
        filtered_reader_answers_only_its_partitions reader_is_verified_with_its_node
        reader_opened_later_finds_earlier_writes reader_bootstraps_from_a_snapshot
        reader_answers_from_the_live_version batch_answers_duplicate_keys_twice
        batch_reports_missing_keys_as_absent empty_batch_answers_nothing gather_fills_defaults
        gather_mask_distinguishes_absent_null_and_value gather_spreads_vectors_over_columns
        gather_repeats_duplicate_keys gather_refuses_too_small_arrays_untouched
        gather_plan_refuses_inexact_conversions scan_equals_gets;
    schema: field_added_under_an_open_reader_is_readable dropped_field_is_absent_in_every_document
        drop_by_prefix_drops_only_matching_fields drop_all_makes_every_document_absent
        handle_survives_a_rename_of_its_field handle_survives_a_widening_of_its_field;
    lifecycle: second_close_changes_nothing calls_after_close_are_closed
        close_ends_concurrent_reads_with_answer_or_closed reopened_reader_answers_as_before
        reader_restarts_from_its_checkpoints reader_survives_a_server_restart
        many_threads_share_one_reader unreachable_server_is_unavailable_in_time
        errors_carry_class_context_and_advice;
    events: stream_is_described_as_created_and_altered
        stream_appends_every_event_with_its_own_token stream_refuses_events_against_its_rules;
    selects: select_by_key_returns_the_events_of_the_key
        select_by_value_returns_events_with_the_value
        select_by_range_returns_events_between_two_values ordered_select_returns_the_first_events
        select_by_time_returns_the_events_of_the_span invalid_selects_are_refused
        select_after_a_token_finds_its_event;
    memory: in_memory_reader_is_ready_with_its_rows
        in_memory_writes_have_the_meaning_of_store_writes in_memory_clock_moves_only_on_request
        in_memory_reader_accepts_alterations in_memory_reader_simulates_not_ready
        in_memory_reader_simulates_staleness in_memory_reader_simulates_closed
        in_memory_reader_answers_like_a_node;
}

#[test]
fn every_behaviour_has_a_test() {
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
