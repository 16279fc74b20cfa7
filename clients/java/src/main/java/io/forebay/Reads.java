/* The reads of a reader, all made in one way. */
package io.forebay;

import java.nio.charset.StandardCharsets;
import java.time.Instant;
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
    private static final int ABSENT = 0;
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
                room = call.allocate(length);
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
            return packed.length == ABSENT ? null : Document.unpack(new Unpacker(packed));
        } finally {
            call.release();
        }
    }
}
