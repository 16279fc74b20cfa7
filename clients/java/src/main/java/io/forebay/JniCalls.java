/* Generated from forebay.h by python3 clients/bindings/generate_bindings.py. */
package io.forebay;

import java.nio.ByteBuffer;
import org.jspecify.annotations.Nullable;

/** {@link NativeCalls} by JNI, for JDK 17 and later. */
final class JniCalls implements NativeCalls {
    @Override
    public native int version();

    @Override
    public native long addressOf(ByteBuffer buffer);

    @Override
    public native byte @Nullable [] bytesAt(long address, int length);

    @Override
    public native long function(long number);

    @Override
    public native int close(long id, long error);

    @Override
    public native int freeBytes(long bytes);

    @Override
    public native int freePacked(long packed);

    @Override
    public native int freeError(long error);

    @Override
    public native int inboxOpen(long inbox, long error);

    @Override
    public native int inboxNext(
            long inbox, long timeoutMs, long eventsMax, long events, long count, long error);

    @Override
    public native int logTo(long level, long sink, long error);

    @Override
    public native int clientConnect(
            long endpoint, long endpointLength, long deadlineMs, long client, long error);

    @Override
    public native int storeOpen(long client, long name, long nameLength, long store, long error);

    @Override
    public native int storeCreate(long client, long spec, long store, long error);

    @Override
    public native int storeAlter(
            long client,
            long name,
            long nameLength,
            long fromVersion,
            long alterations,
            long alterationCount,
            long definition,
            long error);

    @Override
    public native int storeDelete(long client, long name, long nameLength, long error);

    @Override
    public native int storeDescribe(
            long client, long name, long nameLength, long version, long definition, long error);

    @Override
    public native int storeList(long client, long definitions, long error);

    @Override
    public native int storeDefinition(long store, long definition, long error);

    @Override
    public native int storeRefresh(long store, long definition, long error);

    @Override
    public native int storeWrite(
            long store,
            long changes,
            long changeCount,
            long deadlineMs,
            long outcomes,
            long token,
            long error);

    @Override
    public native int pendingRetry(
            long pending,
            long deadlineMs,
            long outcomeCount,
            long outcomes,
            long token,
            long error);

    @Override
    public native int storeSend(
            long store, long changes, long changeCount, long deadlineMs, long sink, long error);

    @Override
    public native int streamOpen(long store, long options, long stream, long error);

    @Override
    public native int streamSend(long stream, long store, long change, long sink, long error);

    @Override
    public native int streamFlush(long stream, long summary, long error);

    @Override
    public native int storeSelect(long store, long query, long read, long result, long error);

    @Override
    public native int readerOpen(long client, long options, long reader, long error);

    @Override
    public native int readerAwaitReady(long reader, long timeoutMs, long error);

    @Override
    public native int readerAwaitToken(
            long reader, long token, long tokenLength, long timeoutMs, long error);

    @Override
    public native int readerField(
            long reader, long name, long nameLength, long asked, long field, long type, long error);

    @Override
    public native int readerPartitionOf(long reader, long key, long partition, long error);

    @Override
    public native int readerDefinition(long reader, long definition, long error);

    @Override
    public native int readerSchemaVersion(long reader, long version, long error);

    @Override
    public native int readerOnSchemaChange(long reader, long sink, long error);

    @Override
    public native int readerGetScalar(
            long reader, long field, long wanted, long key, long read, long scalar, long error);

    @Override
    public native int readerGetBytes(
            long reader,
            long field,
            long key,
            long read,
            long buffer,
            long capacity,
            long length,
            long presence,
            long error);

    @Override
    public native int readerGetValue(
            long reader, long field, long key, long read, long value, long presence, long error);

    @Override
    public native int readerPresence(
            long reader, long field, long key, long read, long presence, long error);

    @Override
    public native int readerGetDocument(
            long reader, long key, long read, long document, long error);

    @Override
    public native int readerGetMany(
            long reader, long field, long keys, long read, long packed, long error);

    @Override
    public native int readerGetDocuments(
            long reader, long keys, long read, long documents, long error);

    @Override
    public native int gatherPlanOpen(
            long reader,
            long fields,
            long fieldCount,
            long cell,
            long lossy,
            long plan,
            long width,
            long error);

    @Override
    public native int readerGatherFloat(
            long reader,
            long plan,
            long keys,
            long read,
            long values,
            long capacity,
            long statuses,
            long cells,
            long error);

    @Override
    public native int readerGatherDouble(
            long reader,
            long plan,
            long keys,
            long read,
            long values,
            long capacity,
            long statuses,
            long cells,
            long error);

    @Override
    public native int readerGatherLong(
            long reader,
            long plan,
            long keys,
            long read,
            long values,
            long capacity,
            long statuses,
            long cells,
            long error);

    @Override
    public native int gatherPlanColumns(long plan, long columns, long error);

    @Override
    public native int scanOpen(long reader, long scan, long error);

    @Override
    public native int scanNext(
            long scan,
            long maxStalenessMs,
            long documentsMax,
            long documents,
            long count,
            long error);

    @Override
    public native int readerMetrics(long reader, long metrics, long error);

    @Override
    public native int readerVerify(
            long reader, long partition, long timeoutMs, long verified, long error);

    @Override
    public native int testReaderOpen(
            long spec, long rows, long rowCount, long reader, long store, long error);

    @Override
    public native int testReaderClock(long reader, long nowUs, long error);

    @Override
    public native int testReaderSetClock(long reader, long nowUs, long error);

    @Override
    public native int testReaderSimulate(long reader, long state, long ageMs, long error);

    @Override
    public native int testReaderAlter(
            long reader, long alterations, long alterationCount, long definition, long error);
}
