/* Reads into memory segments, and by keys in memory segments. */
package io.forebay.segments;

import io.forebay.FieldHandle;
import io.forebay.FieldType;
import io.forebay.GatherPlan;
import io.forebay.Key;
import io.forebay.KeyType;
import io.forebay.Keys;
import io.forebay.Presence;
import io.forebay.Reads;
import io.forebay.internal.Call;
import io.forebay.internal.Calls;
import java.lang.foreign.MemorySegment;
import java.lang.ref.Reference;
import org.jspecify.annotations.Nullable;

/**
 * Reads into segments of the caller's, native or on the heap, and by keys in segments, with the
 * promises and errors of the underlying {@link Reads}. Safe to share between threads.
 *
 * <p>A segment that is read-only, too small, of a closed arena or of another thread is refused with
 * {@link io.forebay.InvalidArgumentException} before anything is written. An arena cannot be closed
 * while the native core writes to one of its segments. Results are in native order.
 *
 * <pre>{@code
 * SegmentReads segments = SegmentReads.of(reader);
 * try (Arena arena = Arena.ofConfined()) {
 *     MemorySegment matrix = arena.allocate(4L * keys.length * plan.width(), 4);
 *     SegmentKeys given = SegmentKeys.ofNumbers(MemorySegment.ofArray(keys));
 *     segments.gather(plan, given, matrix, null, null);
 * }
 * }</pre>
 */
public final class SegmentReads {
    /** Largest copy of a critical call; a plain call copies more bytes than this. */
    private static final long CRITICAL_BYTES_MAX = 64 * 1024;
    /** Initial space for a value, enough for most; larger values are read twice. */
    private static final long ROOM_BYTES = 8 * 1024;
    private static final int VALUE = Presence.VALUE.ordinal();
    private static final int NULL = Presence.NULL.ordinal();
    private static final int[] CELL_BYTES = {Float.BYTES, Double.BYTES, Long.BYTES};

    private final Reads reads;
    private final Calls calls = Calls.get();
    private final long reader;

    private SegmentReads(Reads reads) {
        this.reads = reads;
        this.reader = calls.idOf(reads);
    }

    /**
     * Returns the same reads, for segments.
     *
     * @param reads a reader, or its reads with a wait or a staleness bound
     * @return reads that live as long as the reader
     */
    public static SegmentReads of(Reads reads) {
        return new SegmentReads(reads);
    }

    /**
     * Copies the bytes of a string (UTF-8) or bytes field to the start of a segment. Allocates
     * nothing. If the value does not fit, nothing is copied, and the result, which is larger than
     * the segment, is the needed size.
     *
     * @param field the field, resolved as a string or bytes
     * @param key the document's key
     * @param out the output
     * @return the value's length; {@link Reads#ABSENT} or {@link Reads#NULL}, with nothing copied
     */
    public int getBytes(FieldHandle field, Key key, MemorySegment out) {
        Call call = calls.take();
        try {
            return copied(call, field, call.key(key), out);
        } finally {
            call.release();
        }
    }

    /**
     * Reads like {@link #getBytes(FieldHandle, Key, MemorySegment)}, by an int64 key.
     *
     * @param field the field, resolved as a string or bytes
     * @param key the document's key
     * @param out the output
     * @return the value's length; {@link Reads#ABSENT} or {@link Reads#NULL}, with nothing copied
     */
    public int getBytes(FieldHandle field, long key, MemorySegment out) {
        Call call = calls.take();
        try {
            return copied(call, field, call.key(key), out);
        } finally {
            call.release();
        }
    }

    /**
     * Reads like {@link #getBytes(FieldHandle, Key, MemorySegment)}, by a string key.
     *
     * @param field the field, resolved as a string or bytes
     * @param key the document's key
     * @param out the output
     * @return the value's length; {@link Reads#ABSENT} or {@link Reads#NULL}, with nothing copied
     */
    public int getBytes(FieldHandle field, String key, MemorySegment out) {
        Call call = calls.take();
        try {
            return copied(call, field, call.key(key), out);
        } finally {
            call.release();
        }
    }

    /**
     * Reads like {@link #getBytes(FieldHandle, Key, MemorySegment)}, by a bytes key.
     *
     * @param field the field, resolved as a string or bytes
     * @param key the document's key
     * @param out the output
     * @return the value's length; {@link Reads#ABSENT} or {@link Reads#NULL}, with nothing copied
     */
    public int getBytes(FieldHandle field, byte[] key, MemorySegment out) {
        Call call = calls.take();
        try {
            return copied(call, field, call.key(key), out);
        } finally {
            call.release();
        }
    }

    /**
     * Reads like {@link #getBytes(FieldHandle, Key, MemorySegment)}, by a key in a segment.
     *
     * @param field the field, resolved as a string or bytes
     * @param type the type of the key; a type other than the store's is refused, never converted
     * @param key the key's bytes: UTF-8 of a string, 8 bytes in native order of an int64
     * @param out the output
     * @return the value's length; {@link Reads#ABSENT} or {@link Reads#NULL}, with nothing copied
     */
    public int getBytes(FieldHandle field, KeyType type, MemorySegment key, MemorySegment out) {
        Call call = calls.take();
        try {
            return copied(call, field, keyIn(call, type, key), out);
        } finally {
            call.release();
        }
    }

    private static long keyIn(Call call, KeyType type, MemorySegment key) {
        return call.key(type, Segments.copiedIn(call, key), key.byteSize());
    }

    private int copied(Call call, FieldHandle field, long key, MemorySegment out) {
        Segments.requireWritable(out, 0);
        long read = call.read(reads);
        long id = calls.idOf(field);
        if (read == 0 && out.byteSize() <= CRITICAL_BYTES_MAX) {
            long length = call.out(0);
            int status = SegmentCalls.getBytesCritical(reader, id, key, out, length, call.out(1));
            if (status == 0) {
                return lengthOf(call);
            }
        }
        if (out.isNative()) {
            return plain(call, id, key, read, out, out.byteSize());
        }
        long room = Math.min(ROOM_BYTES, out.byteSize());
        while (true) {
            MemorySegment place = MemorySegment.ofAddress(call.room(room));
            int length = plain(call, id, key, read, place, room);
            if (length < 0 || length > out.byteSize()) {
                return length;
            }
            if (length <= room) {
                Segments.copyOut(place.address(), out, length);
                return length;
            }
            // The value may have grown before the second read.
            room = length;
        }
    }

    private int plain(
            Call call, long field, long key, long read, MemorySegment out, long capacity) {
        call.check(
                SegmentCalls.getBytes(
                        reader,
                        field,
                        key,
                        read,
                        out,
                        capacity,
                        call.out(0),
                        call.out(1),
                        call.error()));
        return lengthOf(call);
    }

    private static int lengthOf(Call call) {
        int presence = call.outInt(1);
        if (presence == VALUE) {
            return Math.toIntExact(call.outLong(0));
        }
        return presence == NULL ? Reads.NULL : Reads.ABSENT;
    }

    /** Takes a call with a key that is in a segment; the read releases the call. */
    private Call with(KeyType type, MemorySegment key) {
        Call call = calls.take();
        try {
            keyIn(call, type, key);
            return call;
        } catch (RuntimeException refused) {
            call.release();
            throw refused;
        }
    }

    /**
     * Reads an int64, by a key in a segment.
     *
     * @param field the field, resolved as {@link FieldType#INT64}
     * @param type the type of the key
     * @param key the key's bytes
     * @param fallback the result if absent or null
     * @return the value
     */
    public long getLong(FieldHandle field, KeyType type, MemorySegment key, long fallback) {
        return calls.integer(reads, with(type, key), field, FieldType.INT64, fallback);
    }

    /**
     * Reads an int32, by a key in a segment.
     *
     * @param field the field, resolved as {@link FieldType#INT32}
     * @param type the type of the key
     * @param key the key's bytes
     * @param fallback the result if absent or null
     * @return the value
     */
    public int getInt(FieldHandle field, KeyType type, MemorySegment key, int fallback) {
        return (int) calls.integer(reads, with(type, key), field, FieldType.INT32, fallback);
    }

    /**
     * Reads a bool, by a key in a segment.
     *
     * @param field the field, resolved as {@link FieldType#BOOL}
     * @param type the type of the key
     * @param key the key's bytes
     * @param fallback the result if absent or null
     * @return the value
     */
    public boolean getBoolean(
            FieldHandle field, KeyType type, MemorySegment key, boolean fallback) {
        long unless = fallback ? 1 : 0;
        return calls.integer(reads, with(type, key), field, FieldType.BOOL, unless) != 0;
    }

    /**
     * Reads a timestamp in microseconds since the Unix epoch, by a key in a segment.
     *
     * @param field the field, resolved as {@link FieldType#TIMESTAMP}
     * @param type the type of the key
     * @param key the key's bytes
     * @param fallback the result if absent or null
     * @return the microseconds
     */
    public long getTimestampMicros(
            FieldHandle field, KeyType type, MemorySegment key, long fallback) {
        return calls.integer(reads, with(type, key), field, FieldType.TIMESTAMP, fallback);
    }

    /**
     * Reads a float32, by a key in a segment.
     *
     * @param field the field, resolved as {@link FieldType#FLOAT32}
     * @param type the type of the key
     * @param key the key's bytes
     * @param fallback the result if absent or null
     * @return the value
     */
    public float getFloat(FieldHandle field, KeyType type, MemorySegment key, float fallback) {
        return (float) calls.real(reads, with(type, key), field, FieldType.FLOAT32, fallback);
    }

    /**
     * Reads a float64, by a key in a segment.
     *
     * @param field the field, resolved as {@link FieldType#FLOAT64}
     * @param type the type of the key
     * @param key the key's bytes
     * @param fallback the result if absent or null
     * @return the value
     */
    public double getDouble(FieldHandle field, KeyType type, MemorySegment key, double fallback) {
        return calls.real(reads, with(type, key), field, FieldType.FLOAT64, fallback);
    }

    /**
     * Returns whether a field of a document is absent, null or a value, by a key in a segment.
     *
     * @param field the field
     * @param type the type of the key
     * @param key the key's bytes
     * @return absent, null or a value
     */
    public Presence presence(FieldHandle field, KeyType type, MemorySegment key) {
        return calls.presence(reads, with(type, key), field);
    }

    /**
     * Reads a string or bytes field of many documents, with concatenated values. If the values do
     * not fit, nothing is written, and the result, which is larger than their segment, is the
     * needed size.
     *
     * @param field the field, resolved as a string or bytes
     * @param keys the documents' keys; a duplicate key has two results
     * @param values the output of the values
     * @param ends space for 8 bytes per key, aligned to 8: the offset at which the key's value ends
     *     and the next one starts
     * @param statuses space for the code of a {@link io.forebay.KeyStatus} per key, its ordinal
     * @param presences space for the code of a {@link Presence} per key, its ordinal
     * @return the bytes of all values
     */
    public long getMany(
            FieldHandle field,
            Keys keys,
            MemorySegment values,
            MemorySegment ends,
            MemorySegment statuses,
            MemorySegment presences) {
        Call call = calls.take();
        try {
            long at = call.keys(keys);
            return many(call, field, at, keys.size(), values, ends, statuses, presences);
        } finally {
            call.release();
        }
    }

    /**
     * Reads like {@link #getMany(FieldHandle, Keys, MemorySegment, MemorySegment, MemorySegment,
     * MemorySegment)}, by keys in segments.
     *
     * @param field the field, resolved as a string or bytes
     * @param keys the documents' keys
     * @param values the output of the values
     * @param ends space for 8 bytes per key, aligned to 8
     * @param statuses space for a status per key
     * @param presences space for a presence per key
     * @return the bytes of all values
     */
    public long getMany(
            FieldHandle field,
            SegmentKeys keys,
            MemorySegment values,
            MemorySegment ends,
            MemorySegment statuses,
            MemorySegment presences) {
        Call call = calls.take();
        try {
            long at = keys.encode(call);
            return many(call, field, at, keys.size(), values, ends, statuses, presences);
        } finally {
            call.release();
        }
    }

    private long many(
            Call call,
            FieldHandle field,
            long keys,
            long count,
            MemorySegment values,
            MemorySegment ends,
            MemorySegment statuses,
            MemorySegment presences) {
        Segments.requireWritable(values, 0);
        Segments.requireWritable(ends, Long.BYTES * count);
        Segments.requireAligned(ends, Long.BYTES);
        Segments.requireWritable(statuses, count);
        Segments.requireWritable(presences, count);
        OutSegment ofValues = OutSegment.of(call, values, values.byteSize());
        OutSegment ofEnds = OutSegment.of(call, ends, Long.BYTES * count);
        OutSegment ofStatuses = OutSegment.of(call, statuses, count);
        OutSegment ofPresences = OutSegment.of(call, presences, count);
        call.check(
                SegmentCalls.getMany(
                        reader,
                        calls.idOf(field),
                        keys,
                        call.read(reads),
                        ofValues.target(),
                        values.byteSize(),
                        ofEnds.target(),
                        ofStatuses.target(),
                        ofPresences.target(),
                        call.out(0),
                        call.error()));
        long length = call.outLong(0);
        if (length <= values.byteSize()) {
            ofValues.take(length);
            ofEnds.take(Long.BYTES * count);
            ofStatuses.take(count);
            ofPresences.take(count);
        }
        return length;
    }

    /**
     * Fills a matrix in a segment: a row per key, the plan's columns. A native segment is filled
     * without a copy.
     *
     * @param plan the plan; its type is the type of the cells
     * @param keys the documents' keys; a duplicate key gets two rows
     * @param values space for {@code keys.size() * plan.width()} cells, row by row; a native
     *     segment is aligned to the bytes of a cell
     * @param statuses space for the code of a {@link io.forebay.KeyStatus} per key, its ordinal; if
     *     null, a key that cannot be answered is an error
     * @param cells space for the code of a {@link Presence} per cell, its ordinal; or null
     */
    public void gather(
            GatherPlan plan,
            Keys keys,
            MemorySegment values,
            @Nullable MemorySegment statuses,
            @Nullable MemorySegment cells) {
        Call call = calls.take();
        try {
            gather(call, plan, call.keys(keys), keys.size(), values, statuses, cells);
        } finally {
            call.release();
        }
    }

    /**
     * Works like {@link #gather(GatherPlan, Keys, MemorySegment, MemorySegment, MemorySegment)}, by
     * keys in segments.
     *
     * @param plan the plan
     * @param keys the documents' keys
     * @param values space for {@code keys.size() * plan.width()} cells, row by row
     * @param statuses space for a status per key, or null
     * @param cells space for a presence per cell, or null
     */
    public void gather(
            GatherPlan plan,
            SegmentKeys keys,
            MemorySegment values,
            @Nullable MemorySegment statuses,
            @Nullable MemorySegment cells) {
        Call call = calls.take();
        try {
            gather(call, plan, keys.encode(call), keys.size(), values, statuses, cells);
        } finally {
            call.release();
        }
    }

    private void gather(
            Call call,
            GatherPlan plan,
            long keys,
            long rows,
            MemorySegment values,
            @Nullable MemorySegment statuses,
            @Nullable MemorySegment cells) {
        int cell = calls.cellOf(plan);
        long count = Math.multiplyExact(rows, (long) plan.width());
        long bytes = Math.multiplyExact(count, (long) CELL_BYTES[cell]);
        Segments.requireWritable(values, bytes);
        Segments.requireAligned(values, CELL_BYTES[cell]);
        if (statuses != null) {
            Segments.requireWritable(statuses, rows);
        }
        if (cells != null) {
            Segments.requireWritable(cells, count);
        }
        OutSegment ofValues = OutSegment.of(call, values, bytes);
        OutSegment ofStatuses = OutSegment.of(call, statuses, rows);
        OutSegment ofCells = OutSegment.of(call, cells, count);
        try {
            call.check(
                    SegmentCalls.gather(
                            cell,
                            reader,
                            calls.idOf(plan),
                            keys,
                            call.read(reads),
                            ofValues.target(),
                            count,
                            ofStatuses.target(),
                            ofCells.target(),
                            call.error()));
        } finally {
            Reference.reachabilityFence(plan);
        }
        ofValues.take(bytes);
        ofStatuses.take(rows);
        ofCells.take(count);
    }
}
