//! The entry points of Java: the C ABI with raw addresses instead of pointers.
//!
//! Java calls the entry points in two ways: by JNI, as the native methods of `io.forebay.JniCalls`,
//! and as plain functions by the foreign functions of `io.forebay.ForeignCalls`, with null for
//! environment and class, which only the last two functions here use. Java's second artifact looks
//! up the C functions themselves, and passes memory segments to them.
//!
//! Java builds the structs of `forebay.h` in off-heap buffers and passes their addresses; no code
//! here reads the structs. Ids and sizes are the bits of Java's `long`. Three calls need a table of
//! Java or its heap: the address of a direct buffer, a copy of native bytes into a `byte[]`, and
//! the version of the ABI.

use jni_sys::{JNIEnv, jbyteArray, jclass, jint, jlong, jobject};

use crate::abi::FbText;

/// Version of the entry points and structs; raised with each change of either.
const ABI_VERSION: jint = 12;

fn at<T>(address: jlong) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

fn text(address: jlong, length: jlong) -> FbText {
    FbText { data: at(address), length: length as u64 }
}

/// Declares `Java_io_forebay_JniCalls_NAME` for each call; each takes `jlong`s and returns a
/// status.
macro_rules! calls {
    ($($java:ident($($argument:ident),*) => $call:expr;)*) => {
        $(
            /// Calls the C ABI's function of this name, over addresses.
            ///
            /// # Safety
            /// Every address and length satisfies the rules of `forebay.h` for the pointer that it
            /// replaces.
            #[unsafe(no_mangle)]
            pub unsafe extern "system" fn $java(
                _: *mut JNIEnv, _: jclass, $($argument: jlong),*
            ) -> jint {
                // SAFETY: the caller follows the header's rules.
                unsafe { $call }
            }
        )*
    };
}

calls! {
    Java_io_forebay_JniCalls_close(id, error) =>
        crate::registry::fb_close(id as u64, at(error));
    Java_io_forebay_JniCalls_freeBytes(bytes) =>
        { crate::output::fb_bytes_free(at(bytes)); 0 };
    Java_io_forebay_JniCalls_freePacked(packed) =>
        { crate::output::fb_packed_free(at(packed)); 0 };
    Java_io_forebay_JniCalls_freeError(error) =>
        { crate::fault::fb_error_free(at(error)); 0 };
    Java_io_forebay_JniCalls_clientConnect(endpoint, length, deadline_ms, client, error) =>
        crate::admin::fb_client_connect(
            text(endpoint, length), deadline_ms as u64, at(client), at(error));
    Java_io_forebay_JniCalls_storeOpen(client, name, length, store, error) =>
        crate::admin::fb_store_open(client as u64, text(name, length), at(store), at(error));
    Java_io_forebay_JniCalls_storeCreate(client, spec, store, error) =>
        crate::admin::fb_store_create(client as u64, at(spec), at(store), at(error));
    Java_io_forebay_JniCalls_storeDefinition(store, definition, error) =>
        crate::admin::fb_store_definition(store as u64, at(definition), at(error));
    Java_io_forebay_JniCalls_storeAlter(
        client, name, length, from_version, alterations, count, definition, error) =>
        crate::admin::fb_store_alter(
            client as u64, text(name, length), from_version as u32, at(alterations), count as u64,
            at(definition), at(error));
    Java_io_forebay_JniCalls_storeDelete(client, name, length, error) =>
        crate::admin::fb_store_delete(client as u64, text(name, length), at(error));
    Java_io_forebay_JniCalls_storeDescribe(client, name, length, version, definition, error) =>
        crate::admin::fb_store_describe(
            client as u64, text(name, length), version as u32, at(definition), at(error));
    Java_io_forebay_JniCalls_storeList(client, definitions, error) =>
        crate::admin::fb_store_list(client as u64, at(definitions), at(error));
    Java_io_forebay_JniCalls_storeWrite(
        store, changes, count, deadline_ms, outcomes, token, error) =>
        crate::write::fb_store_write(
            store as u64, at(changes), count as u64, deadline_ms as u64, at(outcomes), at(token),
            at(error));
    Java_io_forebay_JniCalls_storeSelect(store, select, read, selected, error) =>
        crate::select::fb_store_select(
            store as u64, at(select), at(read), at(selected), at(error));
    Java_io_forebay_JniCalls_pendingRetry(
        pending, deadline_ms, count, outcomes, token, error) =>
        crate::write::fb_pending_retry(
            pending as u64, deadline_ms as u64, count as u64, at(outcomes), at(token), at(error));
    Java_io_forebay_JniCalls_storeSend(store, changes, count, deadline_ms, sink, error) =>
        crate::later::fb_store_send(
            store as u64, at(changes), count as u64, deadline_ms as u64, at(sink), at(error));
    Java_io_forebay_JniCalls_streamOpen(store, options, stream, error) =>
        crate::later::fb_stream_open(store as u64, at(options), at(stream), at(error));
    Java_io_forebay_JniCalls_streamSend(stream, store, change, sink, error) =>
        crate::later::fb_stream_send(
            stream as u64, store as u64, at(change), at(sink), at(error));
    Java_io_forebay_JniCalls_streamFlush(stream, summary, error) =>
        crate::later::fb_stream_flush(stream as u64, at(summary), at(error));
    Java_io_forebay_JniCalls_inboxOpen(inbox, error) =>
        crate::event::fb_inbox_open(at(inbox), at(error));
    Java_io_forebay_JniCalls_inboxNext(inbox, timeout_ms, max, events, count, error) =>
        crate::event::fb_inbox_next(
            inbox as u64, timeout_ms as u64, max as u64, at(events), at(count), at(error));
    Java_io_forebay_JniCalls_logTo(level, sink, error) =>
        crate::log::fb_log_to(level as u32, at(sink), at(error));
    Java_io_forebay_JniCalls_readerOpen(client, options, reader, error) =>
        crate::read::fb_reader_open(client as u64, at(options), at(reader), at(error));
    Java_io_forebay_JniCalls_readerAwaitReady(reader, timeout_ms, error) =>
        crate::read::fb_reader_await_ready(reader as u64, timeout_ms as u64, at(error));
    Java_io_forebay_JniCalls_readerAwaitToken(reader, token, length, timeout_ms, error) =>
        crate::read::fb_reader_await_token(
            reader as u64, text(token, length), timeout_ms as u64, at(error));
    Java_io_forebay_JniCalls_readerField(reader, name, length, asked, field, found, error) =>
        crate::read::fb_reader_field(
            reader as u64, text(name, length), asked as u32, at(field), at(found), at(error));
    Java_io_forebay_JniCalls_readerPartition(reader, key, partition, error) =>
        crate::read::fb_reader_partition(reader as u64, at(key), at(partition), at(error));
    Java_io_forebay_JniCalls_readerGetScalar(reader, field, wanted, key, read, scalar, error) =>
        crate::read::fb_reader_get_scalar(
            reader as u64, field as u64, wanted as u32, at(key), at(read), at(scalar), at(error));
    Java_io_forebay_JniCalls_readerGetBytes(
        reader, field, key, read, buffer, capacity, length, presence, error) =>
        crate::read::fb_reader_get_bytes(
            reader as u64, field as u64, at(key), at(read), at(buffer), capacity as u64,
            at(length), at(presence), at(error));
    Java_io_forebay_JniCalls_readerGetValue(reader, field, key, read, value, presence, error) =>
        crate::read::fb_reader_get_value(
            reader as u64, field as u64, at(key), at(read), at(value), at(presence), at(error));
    Java_io_forebay_JniCalls_readerPresence(reader, field, key, read, presence, error) =>
        crate::read::fb_reader_presence(
            reader as u64, field as u64, at(key), at(read), at(presence), at(error));
    Java_io_forebay_JniCalls_readerGetDocument(reader, key, read, document, error) =>
        crate::read::fb_reader_get_document(
            reader as u64, at(key), at(read), at(document), at(error));
    Java_io_forebay_JniCalls_readerDefinition(reader, definition, error) =>
        crate::read::fb_reader_definition(reader as u64, at(definition), at(error));
    Java_io_forebay_JniCalls_readerSchemaVersion(reader, version, error) =>
        crate::read::fb_reader_schema_version(reader as u64, at(version), at(error));
    Java_io_forebay_JniCalls_readerOnSchemaChange(reader, sink, error) =>
        crate::read::fb_reader_on_schema_change(reader as u64, at(sink), at(error));
    Java_io_forebay_JniCalls_readerMetrics(reader, metrics, error) =>
        crate::read::fb_reader_metrics(reader as u64, at(metrics), at(error));
    Java_io_forebay_JniCalls_readerVerify(reader, partition, timeout_ms, verified, error) =>
        crate::verify::fb_reader_verify(
            reader as u64, partition as u32, timeout_ms as u64, at(verified), at(error));
    Java_io_forebay_JniCalls_readerGetMany(reader, field, keys, read, packed, error) =>
        crate::many::fb_reader_get_many(
            reader as u64, field as u64, at(keys), at(read), at(packed), at(error));
    Java_io_forebay_JniCalls_readerGetDocuments(reader, keys, read, documents, error) =>
        crate::many::fb_reader_get_documents(
            reader as u64, at(keys), at(read), at(documents), at(error));
    Java_io_forebay_JniCalls_planOpen(reader, fields, count, cell, lossy, plan, width, error) =>
        crate::many::fb_plan_open(
            reader as u64, at(fields), count as u64, cell as u32, lossy as u32, at(plan),
            at(width), at(error));
    Java_io_forebay_JniCalls_readerGatherFloat(
        reader, plan, keys, read, values, capacity, statuses, cells, error) =>
        crate::many::fb_reader_gather_f32(
            reader as u64, plan as u64, at(keys), at(read), at(values), capacity as u64,
            at(statuses), at(cells), at(error));
    Java_io_forebay_JniCalls_readerGatherDouble(
        reader, plan, keys, read, values, capacity, statuses, cells, error) =>
        crate::many::fb_reader_gather_f64(
            reader as u64, plan as u64, at(keys), at(read), at(values), capacity as u64,
            at(statuses), at(cells), at(error));
    Java_io_forebay_JniCalls_readerGatherLong(
        reader, plan, keys, read, values, capacity, statuses, cells, error) =>
        crate::many::fb_reader_gather_i64(
            reader as u64, plan as u64, at(keys), at(read), at(values), capacity as u64,
            at(statuses), at(cells), at(error));
    Java_io_forebay_JniCalls_planColumns(plan, columns, error) =>
        crate::many::fb_plan_columns(plan as u64, at(columns), at(error));
    Java_io_forebay_JniCalls_memoryOpen(spec, rows, count, reader, store, error) =>
        crate::memory::fb_memory_open(
            at(spec), at(rows), count as u64, at(reader), at(store), at(error));
    Java_io_forebay_JniCalls_memoryClock(reader, now_us, error) =>
        crate::memory::fb_memory_clock(reader as u64, at(now_us), at(error));
    Java_io_forebay_JniCalls_memorySetClock(reader, now_us, error) =>
        crate::memory::fb_memory_set_clock(reader as u64, now_us, at(error));
    Java_io_forebay_JniCalls_memoryForce(reader, state, age_ms, error) =>
        crate::memory::fb_memory_force(
            reader as u64, state as u32, age_ms as u64, at(error));
    Java_io_forebay_JniCalls_memoryAlter(reader, alterations, count, definition, error) =>
        crate::memory::fb_memory_alter(
            reader as u64, at(alterations), count as u64, at(definition), at(error));
    Java_io_forebay_JniCalls_scanOpen(reader, scan, error) =>
        crate::many::fb_scan_open(reader as u64, at(scan), at(error));
    Java_io_forebay_JniCalls_scanNext(scan, age_max_ms, max, documents, count, error) =>
        crate::many::fb_scan_next(
            scan as u64, age_max_ms as u64, max as u64, at(documents), at(count), at(error));
}

/// Returns the version of this library's ABI; Java refuses another version.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_forebay_JniCalls_version(_: *mut JNIEnv, _: jclass) -> jint {
    ABI_VERSION
}

/// Returns the address of a function of the C ABI that writes to the caller's memory, for foreign
/// functions that keep this memory alive during the call; 0 for an unknown number.
#[unsafe(no_mangle)]
pub extern "system" fn Java_io_forebay_JniCalls_function(
    _: *mut JNIEnv,
    _: jclass,
    number: jlong,
) -> jlong {
    let function: *const () = match number {
        0 => crate::read::fb_reader_get_bytes as *const (),
        1 => crate::many::fb_reader_get_many_into as *const (),
        2 => crate::many::fb_reader_gather_f32 as *const (),
        3 => crate::many::fb_reader_gather_f64 as *const (),
        4 => crate::many::fb_reader_gather_i64 as *const (),
        _ => std::ptr::null(),
    };
    function.expose_provenance() as jlong
}

/// Returns the start of a direct buffer; 0 for a buffer on the heap.
///
/// # Safety
/// `env` is the environment of the current thread, and `buffer` a buffer.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_forebay_JniCalls_addressOf(
    env: *mut JNIEnv,
    _: jclass,
    buffer: jobject,
) -> jlong {
    // SAFETY: the Java virtual machine passes its own table; the functions of JNI 1.4 are in all
    // tables.
    let start = unsafe { ((**env).v1_4.GetDirectBufferAddress)(env, buffer) };
    start.expose_provenance() as jlong
}

/// Returns a copy of native bytes; null, with an `OutOfMemoryError` raised, if the heap is full.
///
/// # Safety
/// `env` is the environment of the current thread, and there are `length` readable bytes at the
/// address.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_forebay_JniCalls_bytesAt(
    env: *mut JNIEnv,
    _: jclass,
    address: jlong,
    length: jint,
) -> jbyteArray {
    // SAFETY: the Java virtual machine passes its own table; the array is checked before use, and
    // is exactly as long as the copied bytes.
    unsafe {
        let copy = ((**env).v1_4.NewByteArray)(env, length);
        if !copy.is_null() && length > 0 {
            ((**env).v1_4.SetByteArrayRegion)(env, copy, 0, length, at(address));
        }
        copy
    }
}
