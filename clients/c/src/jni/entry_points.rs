//! Generated from forebay.h by python3 clients/bindings/generate_bindings.py.
//!
//! The calls are `native` methods of `io.forebay.JniCalls`; `jni.rs` declares their form.

use jni_sys::{JNIEnv, jclass, jint, jlong};

use super::{at, text};

/// Version of the entry points and structs; raised with each change of either.
pub(super) const ABI_VERSION: jint = 14;

calls! {
    Java_io_forebay_JniCalls_close(id, error) =>
        crate::release::fb_close(id as u64, at(error));
    Java_io_forebay_JniCalls_freeBytes(bytes) =>
        { crate::release::fb_bytes_free(at(bytes)); 0 };
    Java_io_forebay_JniCalls_freePacked(packed) =>
        { crate::release::fb_packed_free(at(packed)); 0 };
    Java_io_forebay_JniCalls_freeError(error) =>
        { crate::release::fb_error_free(at(error)); 0 };
    Java_io_forebay_JniCalls_inboxOpen(inbox, error) =>
        crate::event::fb_inbox_open(at(inbox), at(error));
    Java_io_forebay_JniCalls_inboxNext(inbox, timeout_ms, events_max, events, count, error) =>
        crate::event::fb_inbox_next(
            inbox as u64, timeout_ms as u64, events_max as u64, at(events), at(count), at(error));
    Java_io_forebay_JniCalls_logTo(level, sink, error) =>
        crate::log::fb_log_to(level as u32, at(sink), at(error));
    Java_io_forebay_JniCalls_clientConnect(endpoint, endpoint_length, deadline_ms, client, error) =>
        crate::admin::fb_client_connect(
            text(endpoint, endpoint_length), deadline_ms as u64, at(client), at(error));
    Java_io_forebay_JniCalls_storeOpen(client, name, name_length, store, error) =>
        crate::admin::fb_store_open(client as u64, text(name, name_length), at(store), at(error));
    Java_io_forebay_JniCalls_storeCreate(client, spec, store, error) =>
        crate::admin::fb_store_create(client as u64, at(spec), at(store), at(error));
    Java_io_forebay_JniCalls_storeAlter(
        client, name, name_length, from_version, alterations, alteration_count, definition, error)
        =>
        crate::admin::fb_store_alter(
            client as u64, text(name, name_length), from_version as u32, at(alterations),
            alteration_count as u64, at(definition), at(error));
    Java_io_forebay_JniCalls_storeDelete(client, name, name_length, error) =>
        crate::admin::fb_store_delete(client as u64, text(name, name_length), at(error));
    Java_io_forebay_JniCalls_storeDescribe(client, name, name_length, version, definition, error) =>
        crate::admin::fb_store_describe(
            client as u64, text(name, name_length), version as u32, at(definition), at(error));
    Java_io_forebay_JniCalls_storeList(client, definitions, error) =>
        crate::admin::fb_store_list(client as u64, at(definitions), at(error));
    Java_io_forebay_JniCalls_storeDefinition(store, definition, error) =>
        crate::admin::fb_store_definition(store as u64, at(definition), at(error));
    Java_io_forebay_JniCalls_storeRefresh(store, definition, error) =>
        crate::admin::fb_store_refresh(store as u64, at(definition), at(error));
    Java_io_forebay_JniCalls_storeWrite(
        store, changes, change_count, deadline_ms, outcomes, token, error) =>
        crate::write::fb_store_write(
            store as u64, at(changes), change_count as u64, deadline_ms as u64, at(outcomes),
            at(token), at(error));
    Java_io_forebay_JniCalls_pendingRetry(
        pending, deadline_ms, outcome_count, outcomes, token, error) =>
        crate::write::fb_pending_retry(
            pending as u64, deadline_ms as u64, outcome_count as u64, at(outcomes), at(token),
            at(error));
    Java_io_forebay_JniCalls_storeSend(store, changes, change_count, deadline_ms, sink, error) =>
        crate::async_write::fb_store_send(
            store as u64, at(changes), change_count as u64, deadline_ms as u64, at(sink),
            at(error));
    Java_io_forebay_JniCalls_streamOpen(store, options, stream, error) =>
        crate::async_write::fb_stream_open(store as u64, at(options), at(stream), at(error));
    Java_io_forebay_JniCalls_streamSend(stream, store, change, sink, error) =>
        crate::async_write::fb_stream_send(
            stream as u64, store as u64, at(change), at(sink), at(error));
    Java_io_forebay_JniCalls_streamFlush(stream, summary, error) =>
        crate::async_write::fb_stream_flush(stream as u64, at(summary), at(error));
    Java_io_forebay_JniCalls_storeSelect(store, query, read, result, error) =>
        crate::select::fb_store_select(store as u64, at(query), at(read), at(result), at(error));
    Java_io_forebay_JniCalls_readerOpen(client, options, reader, error) =>
        crate::reader::fb_reader_open(client as u64, at(options), at(reader), at(error));
    Java_io_forebay_JniCalls_readerAwaitReady(reader, timeout_ms, error) =>
        crate::reader::fb_reader_await_ready(reader as u64, timeout_ms as u64, at(error));
    Java_io_forebay_JniCalls_readerAwaitToken(reader, token, token_length, timeout_ms, error) =>
        crate::reader::fb_reader_await_token(
            reader as u64, text(token, token_length), timeout_ms as u64, at(error));
    Java_io_forebay_JniCalls_readerField(reader, name, name_length, asked, field, r#type, error) =>
        crate::reader::fb_reader_field(
            reader as u64, text(name, name_length), asked as u32, at(field), at(r#type), at(error));
    Java_io_forebay_JniCalls_readerPartitionOf(reader, key, partition, error) =>
        crate::reader::fb_reader_partition_of(reader as u64, at(key), at(partition), at(error));
    Java_io_forebay_JniCalls_readerDefinition(reader, definition, error) =>
        crate::reader::fb_reader_definition(reader as u64, at(definition), at(error));
    Java_io_forebay_JniCalls_readerSchemaVersion(reader, version, error) =>
        crate::reader::fb_reader_schema_version(reader as u64, at(version), at(error));
    Java_io_forebay_JniCalls_readerOnSchemaChange(reader, sink, error) =>
        crate::reader::fb_reader_on_schema_change(reader as u64, at(sink), at(error));
    Java_io_forebay_JniCalls_readerGetScalar(reader, field, wanted, key, read, scalar, error) =>
        crate::reader::fb_reader_get_scalar(
            reader as u64, field as u64, wanted as u32, at(key), at(read), at(scalar), at(error));
    Java_io_forebay_JniCalls_readerGetBytes(
        reader, field, key, read, buffer, capacity, length, presence, error) =>
        crate::reader::fb_reader_get_bytes(
            reader as u64, field as u64, at(key), at(read), at(buffer), capacity as u64, at(length),
            at(presence), at(error));
    Java_io_forebay_JniCalls_readerGetValue(reader, field, key, read, value, presence, error) =>
        crate::reader::fb_reader_get_value(
            reader as u64, field as u64, at(key), at(read), at(value), at(presence), at(error));
    Java_io_forebay_JniCalls_readerPresence(reader, field, key, read, presence, error) =>
        crate::reader::fb_reader_presence(
            reader as u64, field as u64, at(key), at(read), at(presence), at(error));
    Java_io_forebay_JniCalls_readerGetDocument(reader, key, read, document, error) =>
        crate::reader::fb_reader_get_document(
            reader as u64, at(key), at(read), at(document), at(error));
    Java_io_forebay_JniCalls_readerGetMany(reader, field, keys, read, packed, error) =>
        crate::batch_read::fb_reader_get_many(
            reader as u64, field as u64, at(keys), at(read), at(packed), at(error));
    Java_io_forebay_JniCalls_readerGetDocuments(reader, keys, read, documents, error) =>
        crate::batch_read::fb_reader_get_documents(
            reader as u64, at(keys), at(read), at(documents), at(error));
    Java_io_forebay_JniCalls_gatherPlanOpen(
        reader, fields, field_count, cell, lossy, plan, width, error) =>
        crate::batch_read::fb_gather_plan_open(
            reader as u64, at(fields), field_count as u64, cell as u32, lossy as u32, at(plan),
            at(width), at(error));
    Java_io_forebay_JniCalls_readerGatherFloat(
        reader, plan, keys, read, values, capacity, statuses, cells, error) =>
        crate::batch_read::fb_reader_gather_f32(
            reader as u64, plan as u64, at(keys), at(read), at(values), capacity as u64,
            at(statuses), at(cells), at(error));
    Java_io_forebay_JniCalls_readerGatherDouble(
        reader, plan, keys, read, values, capacity, statuses, cells, error) =>
        crate::batch_read::fb_reader_gather_f64(
            reader as u64, plan as u64, at(keys), at(read), at(values), capacity as u64,
            at(statuses), at(cells), at(error));
    Java_io_forebay_JniCalls_readerGatherLong(
        reader, plan, keys, read, values, capacity, statuses, cells, error) =>
        crate::batch_read::fb_reader_gather_i64(
            reader as u64, plan as u64, at(keys), at(read), at(values), capacity as u64,
            at(statuses), at(cells), at(error));
    Java_io_forebay_JniCalls_gatherPlanColumns(plan, columns, error) =>
        crate::batch_read::fb_gather_plan_columns(plan as u64, at(columns), at(error));
    Java_io_forebay_JniCalls_scanOpen(reader, scan, error) =>
        crate::batch_read::fb_scan_open(reader as u64, at(scan), at(error));
    Java_io_forebay_JniCalls_scanNext(
        scan, max_staleness_ms, documents_max, documents, count, error) =>
        crate::batch_read::fb_scan_next(
            scan as u64, max_staleness_ms as u64, documents_max as u64, at(documents), at(count),
            at(error));
    Java_io_forebay_JniCalls_readerMetrics(reader, metrics, error) =>
        crate::reader::fb_reader_metrics(reader as u64, at(metrics), at(error));
    Java_io_forebay_JniCalls_readerVerify(reader, partition, timeout_ms, verified, error) =>
        crate::verify::fb_reader_verify(
            reader as u64, partition as u32, timeout_ms as u64, at(verified), at(error));
    Java_io_forebay_JniCalls_testReaderOpen(spec, rows, row_count, reader, store, error) =>
        crate::memory::fb_test_reader_open(
            at(spec), at(rows), row_count as u64, at(reader), at(store), at(error));
    Java_io_forebay_JniCalls_testReaderClock(reader, now_us, error) =>
        crate::memory::fb_test_reader_clock(reader as u64, at(now_us), at(error));
    Java_io_forebay_JniCalls_testReaderSetClock(reader, now_us, error) =>
        crate::memory::fb_test_reader_set_clock(reader as u64, now_us, at(error));
    Java_io_forebay_JniCalls_testReaderSimulate(reader, state, age_ms, error) =>
        crate::memory::fb_test_reader_simulate(
            reader as u64, state as u32, age_ms as u64, at(error));
    Java_io_forebay_JniCalls_testReaderAlter(
        reader, alterations, alteration_count, definition, error) =>
        crate::memory::fb_test_reader_alter(
            reader as u64, at(alterations), alteration_count as u64, at(definition), at(error));
}
