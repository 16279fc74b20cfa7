/* Generated from forebay.h by python3 clients/bindings/generate_bindings.py. */
package io.forebay;

/**
 * The functions of {@code forebay.h} over raw addresses. Each returns a status; 0 is success.
 * Structs are in off-heap memory that the caller keeps alive during the call; a text is an address
 * and a length.
 */
interface NativeCalls extends SpecialCalls {
    /** The version of the ABI that this package uses. */
    int VERSION = 14;

    int close(long id, long error);

    int freeBytes(long bytes);

    int freePacked(long packed);

    int freeError(long error);

    int inboxOpen(long inbox, long error);

    int inboxNext(long inbox, long timeoutMs, long eventsMax, long events, long count, long error);

    int logTo(long level, long sink, long error);

    int clientConnect(long endpoint, long endpointLength, long deadlineMs, long client, long error);

    int storeOpen(long client, long name, long nameLength, long store, long error);

    int storeCreate(long client, long spec, long store, long error);

    int storeAlter(
            long client,
            long name,
            long nameLength,
            long fromVersion,
            long alterations,
            long alterationCount,
            long definition,
            long error);

    int storeDelete(long client, long name, long nameLength, long error);

    int storeDescribe(
            long client, long name, long nameLength, long version, long definition, long error);

    int storeList(long client, long definitions, long error);

    int storeDefinition(long store, long definition, long error);

    int storeRefresh(long store, long definition, long error);

    int storeWrite(
            long store,
            long changes,
            long changeCount,
            long deadlineMs,
            long outcomes,
            long token,
            long error);

    int pendingRetry(
            long pending,
            long deadlineMs,
            long outcomeCount,
            long outcomes,
            long token,
            long error);

    int storeSend(
            long store, long changes, long changeCount, long deadlineMs, long sink, long error);

    int streamOpen(long store, long options, long stream, long error);

    int streamSend(long stream, long store, long change, long sink, long error);

    int streamFlush(long stream, long summary, long error);

    int storeSelect(long store, long query, long read, long result, long error);

    int readerOpen(long client, long options, long reader, long error);

    int readerAwaitReady(long reader, long timeoutMs, long error);

    int readerAwaitToken(long reader, long token, long tokenLength, long timeoutMs, long error);

    int readerField(
            long reader, long name, long nameLength, long asked, long field, long type, long error);

    int readerPartitionOf(long reader, long key, long partition, long error);

    int readerDefinition(long reader, long definition, long error);

    int readerSchemaVersion(long reader, long version, long error);

    int readerOnSchemaChange(long reader, long sink, long error);

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

    int readerGetMany(long reader, long field, long keys, long read, long packed, long error);

    int readerGetDocuments(long reader, long keys, long read, long documents, long error);

    int gatherPlanOpen(
            long reader,
            long fields,
            long fieldCount,
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

    int gatherPlanColumns(long plan, long columns, long error);

    int scanOpen(long reader, long scan, long error);

    int scanNext(
            long scan,
            long maxStalenessMs,
            long documentsMax,
            long documents,
            long count,
            long error);

    int readerMetrics(long reader, long metrics, long error);

    int readerVerify(long reader, long partition, long timeoutMs, long verified, long error);

    int testReaderOpen(long spec, long rows, long rowCount, long reader, long store, long error);

    int testReaderClock(long reader, long nowUs, long error);

    int testReaderSetClock(long reader, long nowUs, long error);

    int testReaderSimulate(long reader, long state, long ageMs, long error);

    int testReaderAlter(
            long reader, long alterations, long alterationCount, long definition, long error);
}
