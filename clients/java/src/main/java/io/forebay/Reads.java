/* The reads of a reader, all made in one way. */
package io.forebay;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Reads out of this process's own memory. {@link ForebayReader} reads what is applied here; {@link
 * ForebayReader#with} gives reads that wait, or that refuse what is too old. Primitives come
 * without boxing. Safe to share between threads.
 *
 * <p>Every read throws {@link ClosedException} after a close, {@link UnavailableException} while
 * its partition has not caught up, and {@link InvalidArgumentException} for a key or a field of
 * another type. An absent key is no error: it gives the default.
 */
public class Reads {
    /** What a read into a buffer answers for an absent document or field. */
    public static final int ABSENT = -1;

    /** What a read into a buffer answers for a field that is null. */
    public static final int NULL = -2;

    private static final int VALUE = 2;

    final long reader;
    final Read read;

    Reads(long reader, Read read) {
        this.reader = reader;
        this.read = read;
    }

    /** Reads a number into results 0 to 2 of the call; answers its presence. */
    private int scalar(CallBuffer call, FieldHandle field, FieldType wanted, Key key) {
        call.check(
                Native.CALLS.readerGetScalar(
                        reader,
                        field.id(),
                        wanted.code(),
                        call.key(key),
                        call.read(read),
                        call.out(0),
                        call.error()));
        return call.outInt(0);
    }

    private long integer(FieldHandle field, FieldType wanted, Key key, long fallback) {
        CallBuffer call = CallBuffer.take();
        try {
            return scalar(call, field, wanted, key) == VALUE ? call.outLong(1) : fallback;
        } finally {
            call.release();
        }
    }

    private double real(FieldHandle field, FieldType wanted, Key key, double fallback) {
        CallBuffer call = CallBuffer.take();
        try {
            return scalar(call, field, wanted, key) == VALUE ? call.outDouble(2) : fallback;
        } finally {
            call.release();
        }
    }

    /**
     * An int64.
     *
     * @param field the field, resolved as {@link FieldType#INT64}
     * @param key the document's key
     * @param fallback what to answer when absent or null
     * @return the value
     */
    public long getLong(FieldHandle field, Key key, long fallback) {
        return integer(field, FieldType.INT64, key, fallback);
    }

    /**
     * An int32.
     *
     * @param field the field, resolved as {@link FieldType#INT32}
     * @param key the document's key
     * @param fallback what to answer when absent or null
     * @return the value
     */
    public int getInt(FieldHandle field, Key key, int fallback) {
        return (int) integer(field, FieldType.INT32, key, fallback);
    }

    /**
     * A bool.
     *
     * @param field the field, resolved as {@link FieldType#BOOL}
     * @param key the document's key
     * @param fallback what to answer when absent or null
     * @return the value
     */
    public boolean getBoolean(FieldHandle field, Key key, boolean fallback) {
        return integer(field, FieldType.BOOL, key, fallback ? 1 : 0) != 0;
    }

    /**
     * A timestamp in microseconds since the Unix epoch.
     *
     * @param field the field, resolved as {@link FieldType#TIMESTAMP}
     * @param key the document's key
     * @param fallback what to answer when absent or null
     * @return the microseconds
     */
    public long getTimestampMicros(FieldHandle field, Key key, long fallback) {
        return integer(field, FieldType.TIMESTAMP, key, fallback);
    }

    /**
     * A timestamp.
     *
     * @param field the field, resolved as {@link FieldType#TIMESTAMP}
     * @param key the document's key
     * @return the time, or null when absent or null
     */
    public @Nullable Instant getTimestamp(FieldHandle field, Key key) {
        CallBuffer call = CallBuffer.take();
        try {
            int presence = scalar(call, field, FieldType.TIMESTAMP, key);
            return presence == VALUE ? Values.instant(call.outLong(1)) : null;
        } finally {
            call.release();
        }
    }

    /**
     * A float32.
     *
     * @param field the field, resolved as {@link FieldType#FLOAT32}
     * @param key the document's key
     * @param fallback what to answer when absent or null
     * @return the value
     */
    public float getFloat(FieldHandle field, Key key, float fallback) {
        return (float) real(field, FieldType.FLOAT32, key, fallback);
    }

    /**
     * A float64.
     *
     * @param field the field, resolved as {@link FieldType#FLOAT64}
     * @param key the document's key
     * @param fallback what to answer when absent or null
     * @return the value
     */
    public double getDouble(FieldHandle field, Key key, double fallback) {
        return real(field, FieldType.FLOAT64, key, fallback);
    }

    /**
     * A string.
     *
     * @param field the field, resolved as {@link FieldType#STRING}
     * @param key the document's key
     * @return the value, or null when absent or null
     */
    public @Nullable String getString(FieldHandle field, Key key) {
        byte[] bytes = copied(field, FieldType.STRING, key);
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    /**
     * Bytes; of a key-value store, the value.
     *
     * @param field the field, resolved as {@link FieldType#BYTES}
     * @param key the document's key
     * @return the value, or null when absent or null
     */
    public byte @Nullable [] getBytes(FieldHandle field, Key key) {
        return copied(field, FieldType.BYTES, key);
    }

    /**
     * The bytes of a string (UTF-8) or bytes field, copied into an array of the caller's. Allocates
     * nothing for values below 15 KiB. Where the value has no room nothing is copied, and the
     * answer, which is larger than the array, is the size that it needs.
     *
     * @param field the field, resolved as a string or bytes
     * @param key the document's key
     * @param out where the value goes, from its start
     * @return the value's length; {@link #ABSENT} or {@link #NULL}, with nothing copied
     */
    public int getBytes(FieldHandle field, Key key, byte[] out) {
        CallBuffer call = CallBuffer.take();
        try {
            long keyAt = call.key(key);
            long readAt = call.read(read);
            int room = call.roomBytes();
            int length = bytesInto(call, field, keyAt, readAt, call.roomAddress(), room);
            if (length < 0 || length > out.length) {
                return length;
            }
            if (length <= room) {
                call.copyRoom(out, length);
                return length;
            }
            // It may have grown since; then the answer says so.
            CallBuffer.Place place = call.allocateDirty(out.length);
            length = bytesInto(call, field, keyAt, readAt, place.address(), out.length);
            if (length >= 0 && length <= out.length) {
                place.buffer().get(place.at(), out, 0, length);
            }
            return length;
        } finally {
            call.release();
        }
    }

    /**
     * The bytes of a string (UTF-8) or bytes field, copied into a buffer of the caller's, from its
     * position on; position and limit stay. Into a direct buffer it copies once and allocates
     * nothing. Where the value has no room nothing is copied, and the answer, which is larger than
     * what remains, is the size that it needs.
     *
     * @param field the field, resolved as a string or bytes
     * @param key the document's key
     * @param out where the value goes; a direct buffer, or one over an array
     * @return the value's length; {@link #ABSENT} or {@link #NULL}, with nothing copied
     * @throws InvalidArgumentException for a buffer that is read-only
     */
    public int getBytes(FieldHandle field, Key key, ByteBuffer out) {
        if (out.isReadOnly()) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT, "the buffer is read-only; give one to write to");
        }
        CallBuffer call = CallBuffer.take();
        try {
            long keyAt = call.key(key);
            long readAt = call.read(read);
            int room = out.remaining();
            if (out.isDirect()) {
                long at = Native.CALLS.addressOf(out) + out.position();
                return bytesInto(call, field, keyAt, readAt, at, room);
            }
            CallBuffer.Place place = call.allocateDirty(room);
            int length = bytesInto(call, field, keyAt, readAt, place.address(), room);
            if (length > 0 && length <= room) {
                out.put(out.position(), place.buffer(), place.at(), length);
            }
            return length;
        } finally {
            Reference.reachabilityFence(out);
            call.release();
        }
    }

    private int bytesInto(
            CallBuffer call, FieldHandle field, long keyAt, long readAt, long at, int capacity) {
        call.check(
                Native.CALLS.readerGetBytes(
                        reader,
                        field.id(),
                        keyAt,
                        readAt,
                        at,
                        capacity,
                        call.out(0),
                        call.out(1),
                        call.error()));
        return switch (call.outInt(1)) {
            case VALUE -> Math.toIntExact(call.outLong(0));
            case 1 -> NULL;
            default -> ABSENT;
        };
    }

    private byte @Nullable [] copied(FieldHandle field, FieldType wanted, Key key) {
        if (!field.type().equals(wanted)) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT,
                    "the handle reads a " + field.type() + "; resolve one as " + wanted);
        }
        CallBuffer call = CallBuffer.take();
        try {
            long keyAddress = call.key(key);
            long readAddress = call.read(read);
            CallBuffer.Place room = call.room();
            int capacity = call.roomBytes();
            while (true) {
                call.check(
                        Native.CALLS.readerGetBytes(
                                reader,
                                field.id(),
                                keyAddress,
                                readAddress,
                                room.address(),
                                capacity,
                                call.out(0),
                                call.out(1),
                                call.error()));
                if (call.outInt(1) != VALUE) {
                    return null;
                }
                int length = Math.toIntExact(call.outLong(0));
                if (length <= capacity) {
                    byte[] bytes = new byte[length];
                    room.buffer().get(room.at(), bytes);
                    return bytes;
                }
                room = call.allocateDirty(length);
                capacity = length;
            }
        } finally {
            call.release();
        }
    }

    /**
     * Whether a field of a document is absent, null or a value.
     *
     * @param field the field
     * @param key the document's key
     * @return which of the three
     */
    public Presence presence(FieldHandle field, Key key) {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(
                    Native.CALLS.readerPresence(
                            reader,
                            field.id(),
                            call.key(key),
                            call.read(read),
                            call.out(0),
                            call.error()));
            return Presence.of(call.outInt(0));
        } finally {
            call.release();
        }
    }

    /**
     * A value of any type, boxed; lists and vectors too. See {@link Document#value} for their
     * classes.
     *
     * @param field the field
     * @param key the document's key
     * @return the value, or null when absent or null
     */
    public @Nullable Object getValue(FieldHandle field, Key key) {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(
                    Native.CALLS.readerGetValue(
                            reader,
                            field.id(),
                            call.key(key),
                            call.read(read),
                            call.out(0),
                            call.out(2),
                            call.error()));
            byte[] bytes = call.takeBytes(0);
            return call.outInt(2) == VALUE ? Values.decode(field.type(), bytes) : null;
        } finally {
            call.release();
        }
    }

    /**
     * The whole document. It copies every field, so read single ones through a handle.
     *
     * @param key the document's key
     * @return the document, or null when there is none
     */
    public @Nullable Document getDocument(Key key) {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(
                    Native.CALLS.readerGetDocument(
                            reader, call.key(key), call.read(read), call.out(0), call.error()));
            byte[] packed = call.takeBytes(0);
            return packed.length == 0 ? null : Document.unpack(new Unpacker(packed));
        } finally {
            call.release();
        }
    }

    /**
     * A string or bytes field of many documents.
     *
     * @param field the field, resolved as a string or bytes
     * @param keys the documents' keys; one that stands twice is answered twice
     * @return the values, in the order of the keys; a key without a document is absent in its place
     */
    public PackedValues multiGet(FieldHandle field, Keys keys) {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(
                    Native.CALLS.readerGetMany(
                            reader,
                            field.id(),
                            keys.encode(call),
                            call.read(read),
                            call.out(0),
                            call.error()));
            return new PackedValues(
                    call.takeBytes(0), call.takeBytes(2), call.takeBytes(4), call.takeBytes(6));
        } finally {
            call.release();
        }
    }

    /**
     * Many whole documents.
     *
     * @param keys the documents' keys; one that stands twice is answered twice
     * @return an answer per key, in their order
     */
    public List<DocumentAnswer> getDocuments(Keys keys) {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(
                    Native.CALLS.readerGetDocuments(
                            reader,
                            keys.encode(call),
                            call.read(read),
                            call.out(0),
                            call.error()));
            Unpacker packed = new Unpacker(call.takeBytes(0));
            List<DocumentAnswer> answers = new ArrayList<>(keys.size());
            while (packed.hasMore()) {
                KeyStatus status = KeyStatus.of(packed.u8());
                boolean found = status == KeyStatus.FOUND;
                answers.add(new DocumentAnswer(status, found ? Document.unpack(packed) : null));
            }
            return List.copyOf(answers);
        } finally {
            call.release();
        }
    }

    /**
     * Fills a matrix of floats: a row per key, the plan's columns, without an object per value.
     *
     * @param plan a plan for floats
     * @param keys the documents' keys; one that stands twice gets two rows
     * @param values room for {@code keys.size() * plan.width()} cells, row by row
     * @param statuses room for the code of a {@link KeyStatus} per key, its ordinal; or null, and
     *      a key
     *     that cannot be answered is an error
     * @param cells room for the code of a {@link Presence} per cell, its ordinal; or null
     * @throws InvalidArgumentException for arrays that are too small, with nothing written
     */
    public void gather(
            GatherPlan plan,
            Keys keys,
            float[] values,
            byte @Nullable [] statuses,
            byte @Nullable [] cells) {
        Gather gather = new Gather(this, plan, keys, statuses, cells);
        gather.check(GatherPlan.Cell.FLOAT, values.length);
        gather.run(found -> found.asFloatBuffer().get(values, 0, gather.count()));
    }

    /**
     * Fills a matrix of doubles; as {@link #gather(GatherPlan, Keys, float[], byte[], byte[])}.
     *
     * @param plan a plan for doubles
     * @param keys the documents' keys
     * @param values room for {@code keys.size() * plan.width()} cells, row by row
     * @param statuses room for a status per key, or null
     * @param cells room for a presence per cell, or null
     * @throws InvalidArgumentException for arrays that are too small, with nothing written
     */
    public void gather(
            GatherPlan plan,
            Keys keys,
            double[] values,
            byte @Nullable [] statuses,
            byte @Nullable [] cells) {
        Gather gather = new Gather(this, plan, keys, statuses, cells);
        gather.check(GatherPlan.Cell.DOUBLE, values.length);
        gather.run(found -> found.asDoubleBuffer().get(values, 0, gather.count()));
    }

    /**
     * Fills a matrix of longs; as {@link #gather(GatherPlan, Keys, float[], byte[], byte[])}.
     *
     * @param plan a plan for longs
     * @param keys the documents' keys
     * @param values room for {@code keys.size() * plan.width()} cells, row by row
     * @param statuses room for a status per key, or null
     * @param cells room for a presence per cell, or null
     * @throws InvalidArgumentException for arrays that are too small, with nothing written
     */
    public void gather(
            GatherPlan plan,
            Keys keys,
            long[] values,
            byte @Nullable [] statuses,
            byte @Nullable [] cells) {
        Gather gather = new Gather(this, plan, keys, statuses, cells);
        gather.check(GatherPlan.Cell.LONG, values.length);
        gather.run(found -> found.asLongBuffer().get(values, 0, gather.count()));
    }

    /**
     * Fills a matrix in a direct buffer, in place, with no copy; for a plan of any type. It lies at
     * the buffer's position, which stays, in the buffer's remaining bytes.
     *
     * @param plan the plan; its type is that of the cells
     * @param keys the documents' keys
     * @param values a direct, writable buffer in native order, at a place that is a multiple of a
     *     cell's bytes
     * @param statuses room for a status per key, or null
     * @param cells room for a presence per cell, or null
     * @throws InvalidArgumentException for another buffer, or room that is too small, with nothing
     *     written
     */
    public void gather(
            GatherPlan plan,
            Keys keys,
            ByteBuffer values,
            byte @Nullable [] statuses,
            byte @Nullable [] cells) {
        new Gather(this, plan, keys, statuses, cells).runInto(values);
    }

    /**
     * Starts a scan of every live document.
     *
     * @return the scan; close it when it is not read to its end
     */
    public DocumentScan scan() {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(Native.CALLS.scanOpen(reader, call.out(0), call.error()));
            return new DocumentScan(call.outLong(0), read.ageMaxMs());
        } finally {
            call.release();
        }
    }
}
