/* Generated from forebay.h by python3 clients/bindings/generate_bindings.py. */
package io.forebay;

import java.lang.invoke.MethodHandle;

/**
 * {@link NativeCalls} by foreign functions, for JDK 22 and later; only such a JDK compiles this
 * file.
 */
final class ForeignCalls extends SpecialForeignCalls {
    private static final MethodHandle CLOSE = handle("close", 2);
    private static final MethodHandle BYTES_FREE = handle("freeBytes", 1);
    private static final MethodHandle PACKED_FREE = handle("freePacked", 1);
    private static final MethodHandle ERROR_FREE = handle("freeError", 1);
    private static final MethodHandle INBOX_OPEN = handle("inboxOpen", 2);
    private static final MethodHandle INBOX_NEXT = handle("inboxNext", 6);
    private static final MethodHandle LOG_TO = handle("logTo", 3);
    private static final MethodHandle CLIENT_CONNECT = handle("clientConnect", 5);
    private static final MethodHandle STORE_OPEN = handle("storeOpen", 5);
    private static final MethodHandle STORE_CREATE = handle("storeCreate", 4);
    private static final MethodHandle STORE_ALTER = handle("storeAlter", 8);
    private static final MethodHandle STORE_DELETE = handle("storeDelete", 4);
    private static final MethodHandle STORE_DESCRIBE = handle("storeDescribe", 6);
    private static final MethodHandle STORE_LIST = handle("storeList", 3);
    private static final MethodHandle STORE_DEFINITION = handle("storeDefinition", 3);
    private static final MethodHandle STORE_REFRESH = handle("storeRefresh", 3);
    private static final MethodHandle STORE_WRITE = handle("storeWrite", 7);
    private static final MethodHandle PENDING_RETRY = handle("pendingRetry", 6);
    private static final MethodHandle STORE_SEND = handle("storeSend", 6);
    private static final MethodHandle STREAM_OPEN = handle("streamOpen", 4);
    private static final MethodHandle STREAM_SEND = handle("streamSend", 5);
    private static final MethodHandle STREAM_FLUSH = handle("streamFlush", 3);
    private static final MethodHandle STORE_SELECT = handle("storeSelect", 5);
    private static final MethodHandle READER_OPEN = handle("readerOpen", 4);
    private static final MethodHandle READER_AWAIT_READY = handle("readerAwaitReady", 3);
    private static final MethodHandle READER_AWAIT_TOKEN = handle("readerAwaitToken", 5);
    private static final MethodHandle READER_FIELD = handle("readerField", 7);
    private static final MethodHandle READER_PARTITION_OF = handle("readerPartitionOf", 4);
    private static final MethodHandle READER_DEFINITION = handle("readerDefinition", 3);
    private static final MethodHandle READER_SCHEMA_VERSION = handle("readerSchemaVersion", 3);
    private static final MethodHandle READER_ON_SCHEMA_CHANGE = handle("readerOnSchemaChange", 3);
    private static final MethodHandle READER_GET_VALUE = handle("readerGetValue", 7);
    private static final MethodHandle READER_GET_DOCUMENT = handle("readerGetDocument", 5);
    private static final MethodHandle READER_GET_MANY = handle("readerGetMany", 6);
    private static final MethodHandle READER_GET_DOCUMENTS = handle("readerGetDocuments", 5);
    private static final MethodHandle GATHER_PLAN_OPEN = handle("gatherPlanOpen", 8);
    private static final MethodHandle READER_GATHER_F32 = handle("readerGatherFloat", 9);
    private static final MethodHandle READER_GATHER_F64 = handle("readerGatherDouble", 9);
    private static final MethodHandle READER_GATHER_I64 = handle("readerGatherLong", 9);
    private static final MethodHandle GATHER_PLAN_COLUMNS = handle("gatherPlanColumns", 3);
    private static final MethodHandle SCAN_OPEN = handle("scanOpen", 3);
    private static final MethodHandle SCAN_NEXT = handle("scanNext", 6);
    private static final MethodHandle READER_METRICS = handle("readerMetrics", 3);
    private static final MethodHandle READER_VERIFY = handle("readerVerify", 5);
    private static final MethodHandle TEST_READER_OPEN = handle("testReaderOpen", 6);
    private static final MethodHandle TEST_READER_CLOCK = handle("testReaderClock", 3);
    private static final MethodHandle TEST_READER_SET_CLOCK = handle("testReaderSetClock", 3);
    private static final MethodHandle TEST_READER_SIMULATE = handle("testReaderSimulate", 4);
    private static final MethodHandle TEST_READER_ALTER = handle("testReaderAlter", 5);

    @Override
    public int close(long id, long error) {
        try {
            return (int) CLOSE.invokeExact(0L, 0L, id, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int freeBytes(long bytes) {
        try {
            return (int) BYTES_FREE.invokeExact(0L, 0L, bytes);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int freePacked(long packed) {
        try {
            return (int) PACKED_FREE.invokeExact(0L, 0L, packed);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int freeError(long error) {
        try {
            return (int) ERROR_FREE.invokeExact(0L, 0L, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int inboxOpen(long inbox, long error) {
        try {
            return (int) INBOX_OPEN.invokeExact(0L, 0L, inbox, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int inboxNext(
            long inbox, long timeoutMs, long eventsMax, long events, long count, long error) {
        try {
            return (int) INBOX_NEXT.invokeExact(
                    0L, 0L, inbox, timeoutMs, eventsMax, events, count, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int logTo(long level, long sink, long error) {
        try {
            return (int) LOG_TO.invokeExact(0L, 0L, level, sink, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int clientConnect(
            long endpoint, long endpointLength, long deadlineMs, long client, long error) {
        try {
            return (int) CLIENT_CONNECT.invokeExact(
                    0L, 0L, endpoint, endpointLength, deadlineMs, client, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int storeOpen(long client, long name, long nameLength, long store, long error) {
        try {
            return (int) STORE_OPEN.invokeExact(0L, 0L, client, name, nameLength, store, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int storeCreate(long client, long spec, long store, long error) {
        try {
            return (int) STORE_CREATE.invokeExact(0L, 0L, client, spec, store, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int storeAlter(
            long client,
            long name,
            long nameLength,
            long fromVersion,
            long alterations,
            long alterationCount,
            long definition,
            long error) {
        try {
            return (int) STORE_ALTER.invokeExact(
                    0L, 0L, client, name, nameLength, fromVersion, alterations, alterationCount,
                    definition, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int storeDelete(long client, long name, long nameLength, long error) {
        try {
            return (int) STORE_DELETE.invokeExact(0L, 0L, client, name, nameLength, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int storeDescribe(
            long client, long name, long nameLength, long version, long definition, long error) {
        try {
            return (int) STORE_DESCRIBE.invokeExact(
                    0L, 0L, client, name, nameLength, version, definition, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int storeList(long client, long definitions, long error) {
        try {
            return (int) STORE_LIST.invokeExact(0L, 0L, client, definitions, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int storeDefinition(long store, long definition, long error) {
        try {
            return (int) STORE_DEFINITION.invokeExact(0L, 0L, store, definition, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int storeRefresh(long store, long definition, long error) {
        try {
            return (int) STORE_REFRESH.invokeExact(0L, 0L, store, definition, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int storeWrite(
            long store,
            long changes,
            long changeCount,
            long deadlineMs,
            long outcomes,
            long token,
            long error) {
        try {
            return (int) STORE_WRITE.invokeExact(
                    0L, 0L, store, changes, changeCount, deadlineMs, outcomes, token, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int pendingRetry(
            long pending,
            long deadlineMs,
            long outcomeCount,
            long outcomes,
            long token,
            long error) {
        try {
            return (int) PENDING_RETRY.invokeExact(
                    0L, 0L, pending, deadlineMs, outcomeCount, outcomes, token, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int storeSend(
            long store, long changes, long changeCount, long deadlineMs, long sink, long error) {
        try {
            return (int) STORE_SEND.invokeExact(
                    0L, 0L, store, changes, changeCount, deadlineMs, sink, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int streamOpen(long store, long options, long stream, long error) {
        try {
            return (int) STREAM_OPEN.invokeExact(0L, 0L, store, options, stream, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int streamSend(long stream, long store, long change, long sink, long error) {
        try {
            return (int) STREAM_SEND.invokeExact(0L, 0L, stream, store, change, sink, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int streamFlush(long stream, long summary, long error) {
        try {
            return (int) STREAM_FLUSH.invokeExact(0L, 0L, stream, summary, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int storeSelect(long store, long query, long read, long result, long error) {
        try {
            return (int) STORE_SELECT.invokeExact(0L, 0L, store, query, read, result, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int readerOpen(long client, long options, long reader, long error) {
        try {
            return (int) READER_OPEN.invokeExact(0L, 0L, client, options, reader, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int readerAwaitReady(long reader, long timeoutMs, long error) {
        try {
            return (int) READER_AWAIT_READY.invokeExact(0L, 0L, reader, timeoutMs, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int readerAwaitToken(
            long reader, long token, long tokenLength, long timeoutMs, long error) {
        try {
            return (int) READER_AWAIT_TOKEN.invokeExact(
                    0L, 0L, reader, token, tokenLength, timeoutMs, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int readerField(
            long reader,
            long name,
            long nameLength,
            long asked,
            long field,
            long type,
            long error) {
        try {
            return (int) READER_FIELD.invokeExact(
                    0L, 0L, reader, name, nameLength, asked, field, type, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int readerPartitionOf(long reader, long key, long partition, long error) {
        try {
            return (int) READER_PARTITION_OF.invokeExact(0L, 0L, reader, key, partition, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int readerDefinition(long reader, long definition, long error) {
        try {
            return (int) READER_DEFINITION.invokeExact(0L, 0L, reader, definition, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int readerSchemaVersion(long reader, long version, long error) {
        try {
            return (int) READER_SCHEMA_VERSION.invokeExact(0L, 0L, reader, version, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int readerOnSchemaChange(long reader, long sink, long error) {
        try {
            return (int) READER_ON_SCHEMA_CHANGE.invokeExact(0L, 0L, reader, sink, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int readerGetValue(
            long reader, long field, long key, long read, long value, long presence, long error) {
        try {
            return (int) READER_GET_VALUE.invokeExact(
                    0L, 0L, reader, field, key, read, value, presence, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int readerGetDocument(long reader, long key, long read, long document, long error) {
        try {
            return (int) READER_GET_DOCUMENT.invokeExact(
                    0L, 0L, reader, key, read, document, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int readerGetMany(
            long reader, long field, long keys, long read, long packed, long error) {
        try {
            return (int) READER_GET_MANY.invokeExact(
                    0L, 0L, reader, field, keys, read, packed, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int readerGetDocuments(long reader, long keys, long read, long documents, long error) {
        try {
            return (int) READER_GET_DOCUMENTS.invokeExact(
                    0L, 0L, reader, keys, read, documents, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int gatherPlanOpen(
            long reader,
            long fields,
            long fieldCount,
            long cell,
            long lossy,
            long plan,
            long width,
            long error) {
        try {
            return (int) GATHER_PLAN_OPEN.invokeExact(
                    0L, 0L, reader, fields, fieldCount, cell, lossy, plan, width, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int readerGatherFloat(
            long reader,
            long plan,
            long keys,
            long read,
            long values,
            long capacity,
            long statuses,
            long cells,
            long error) {
        try {
            return (int) READER_GATHER_F32.invokeExact(
                    0L, 0L, reader, plan, keys, read, values, capacity, statuses, cells, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int readerGatherDouble(
            long reader,
            long plan,
            long keys,
            long read,
            long values,
            long capacity,
            long statuses,
            long cells,
            long error) {
        try {
            return (int) READER_GATHER_F64.invokeExact(
                    0L, 0L, reader, plan, keys, read, values, capacity, statuses, cells, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int readerGatherLong(
            long reader,
            long plan,
            long keys,
            long read,
            long values,
            long capacity,
            long statuses,
            long cells,
            long error) {
        try {
            return (int) READER_GATHER_I64.invokeExact(
                    0L, 0L, reader, plan, keys, read, values, capacity, statuses, cells, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int gatherPlanColumns(long plan, long columns, long error) {
        try {
            return (int) GATHER_PLAN_COLUMNS.invokeExact(0L, 0L, plan, columns, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int scanOpen(long reader, long scan, long error) {
        try {
            return (int) SCAN_OPEN.invokeExact(0L, 0L, reader, scan, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int scanNext(
            long scan,
            long maxStalenessMs,
            long documentsMax,
            long documents,
            long count,
            long error) {
        try {
            return (int) SCAN_NEXT.invokeExact(
                    0L, 0L, scan, maxStalenessMs, documentsMax, documents, count, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int readerMetrics(long reader, long metrics, long error) {
        try {
            return (int) READER_METRICS.invokeExact(0L, 0L, reader, metrics, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int readerVerify(
            long reader, long partition, long timeoutMs, long verified, long error) {
        try {
            return (int) READER_VERIFY.invokeExact(
                    0L, 0L, reader, partition, timeoutMs, verified, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int testReaderOpen(
            long spec, long rows, long rowCount, long reader, long store, long error) {
        try {
            return (int) TEST_READER_OPEN.invokeExact(
                    0L, 0L, spec, rows, rowCount, reader, store, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int testReaderClock(long reader, long nowUs, long error) {
        try {
            return (int) TEST_READER_CLOCK.invokeExact(0L, 0L, reader, nowUs, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int testReaderSetClock(long reader, long nowUs, long error) {
        try {
            return (int) TEST_READER_SET_CLOCK.invokeExact(0L, 0L, reader, nowUs, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int testReaderSimulate(long reader, long state, long ageMs, long error) {
        try {
            return (int) TEST_READER_SIMULATE.invokeExact(0L, 0L, reader, state, ageMs, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }

    @Override
    public int testReaderAlter(
            long reader, long alterations, long alterationCount, long definition, long error) {
        try {
            return (int) TEST_READER_ALTER.invokeExact(
                    0L, 0L, reader, alterations, alterationCount, definition, error);
        } catch (Throwable failure) {
            throw ForebayException.broken(failure);
        }
    }
}
