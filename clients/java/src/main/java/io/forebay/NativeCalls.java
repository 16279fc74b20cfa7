/* The only interface to the native core; the implementation decides how to call it. */
package io.forebay;

import java.nio.ByteBuffer;
import org.jspecify.annotations.Nullable;

/**
 * The functions of {@code forebay.h} over raw addresses. Each returns a status; 0 is success.
 * Structs are in off-heap memory that the caller keeps alive during the call.
 */
interface NativeCalls {
    /** The version of the ABI that this package uses. */
    int VERSION = 12;

    int version();

    /** Returns reads between arrays on the heap; null if this implementation has none. */
    @Nullable HeapCalls heap();

    /** Returns the address of index 0 of a direct buffer. */
    long addressOf(ByteBuffer buffer);

    byte @Nullable [] bytesAt(long address, int length);

    /** Returns the address of a function that writes to the caller's memory; 0 for none. */
    long function(long number);

    int close(long id, long error);

    int freeBytes(long bytes);

    int freePacked(long packed);

    int freeError(long error);

    int clientConnect(long endpoint, long length, long deadlineMs, long client, long error);

    int storeOpen(long client, long name, long length, long store, long error);

    int storeCreate(long client, long spec, long store, long error);

    int storeDefinition(long store, long definition, long error);

    int storeAlter(
            long client,
            long name,
            long length,
            long fromVersion,
            long alterations,
            long count,
            long definition,
            long error);

    int storeDelete(long client, long name, long length, long error);

    int storeDescribe(
            long client, long name, long length, long version, long definition, long error);

    int storeList(long client, long definitions, long error);

    int storeWrite(
            long store,
            long changes,
            long count,
            long deadlineMs,
            long outcomes,
            long token,
            long error);

    int storeSelect(long store, long select, long read, long selected, long error);

    int pendingRetry(
            long pending, long deadlineMs, long count, long outcomes, long token, long error);

    int storeSend(
            long store, long changes, long count, long deadlineMs, long sink, long error);

    int streamOpen(long store, long options, long stream, long error);

    int streamSend(long stream, long store, long change, long sink, long error);

    int streamFlush(long stream, long summary, long error);

    int inboxOpen(long inbox, long error);

    int inboxNext(long inbox, long timeoutMs, long max, long events, long count, long error);

    int logTo(long level, long sink, long error);

    int readerOpen(long client, long options, long reader, long error);

    int readerAwaitReady(long reader, long timeoutMs, long error);

    int readerAwaitToken(long reader, long token, long length, long timeoutMs, long error);

    int readerField(
            long reader, long name, long length, long asked, long field, long found, long error);

    int readerPartition(long reader, long key, long partition, long error);

    int readerGetScalar(
            long reader, long field, long wanted, long key, long read, long scalar, long error);

    int readerGetBytes(
            long reader,
            long field,
            long key,
            long read,
            long buffer,
            long capacity,
            long length,
            long presence,
            long error);

    int readerGetValue(
            long reader, long field, long key, long read, long value, long presence, long error);

    int readerPresence(long reader, long field, long key, long read, long presence, long error);

    int readerGetDocument(long reader, long key, long read, long document, long error);

    int readerDefinition(long reader, long definition, long error);

    int readerSchemaVersion(long reader, long version, long error);

    int readerOnSchemaChange(long reader, long sink, long error);

    int readerMetrics(long reader, long metrics, long error);

    int readerVerify(long reader, long partition, long timeoutMs, long verified, long error);

    int readerGetMany(long reader, long field, long keys, long read, long packed, long error);

    int readerGetDocuments(long reader, long keys, long read, long documents, long error);

    int planOpen(
            long reader,
            long fields,
            long count,
            long cell,
            long lossy,
            long plan,
            long width,
            long error);

    int readerGatherFloat(
            long reader,
            long plan,
            long keys,
            long read,
            long values,
            long capacity,
            long statuses,
            long cells,
            long error);

    int readerGatherDouble(
            long reader,
            long plan,
            long keys,
            long read,
            long values,
            long capacity,
            long statuses,
            long cells,
            long error);

    int readerGatherLong(
            long reader,
            long plan,
            long keys,
            long read,
            long values,
            long capacity,
            long statuses,
            long cells,
            long error);

    int planColumns(long plan, long columns, long error);

    int memoryOpen(long spec, long rows, long count, long reader, long store, long error);

    int memoryClock(long reader, long nowMicros, long error);

    int memorySetClock(long reader, long nowMicros, long error);

    int memoryForce(long reader, long state, long ageMs, long error);

    int memoryAlter(long reader, long alterations, long count, long definition, long error);

    int scanOpen(long reader, long scan, long error);

    int scanNext(long scan, long ageMaxMs, long max, long documents, long count, long error);
}
