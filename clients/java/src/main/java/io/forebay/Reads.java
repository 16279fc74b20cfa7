/* The reads of a reader, all with the same wait and staleness bound. */
package io.forebay;

import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Reads from this process's own memory. {@link ForebayReader} reads what is applied in this
 * process; {@link ForebayReader#with} returns reads that wait, or that refuse stale data.
 * Primitives are returned without boxing. Safe to share between threads.
 *
 * <p>Every read throws {@link ClosedException} after a close, {@link UnavailableException} while
 * its partition has not caught up, and {@link InvalidArgumentException} for a key or a field of
 * another type. An absent key is no error: the read returns the default.
 *
 * <p>Every read of one document takes a {@link Key}, or directly an int64, a {@code String} or a
 * {@code byte[]}, without a key object and without a conversion.
 */
public class Reads extends KeyedReads {
    /** Result of a read into a buffer for an absent document or field. */
    public static final int ABSENT = -1;

    /** Result of a read into a buffer for a field that is null. */
    public static final int NULL = -2;

    Reads(long reader, ReadOptions read) {
        super(reader, read);
    }

    /**
     * Reads an int64.
     *
     * @param field the field, resolved as {@link FieldType#INT64}
     * @param key the document's key
     * @param fallback the result if absent or null
     * @return the value
     */
    public long getLong(FieldHandle field, Key key, long fallback) {
        return integer(CallBuffer.with(key), field, FieldType.INT64, fallback);
    }

    /**
     * Reads an int32.
     *
     * @param field the field, resolved as {@link FieldType#INT32}
     * @param key the document's key
     * @param fallback the result if absent or null
     * @return the value
     */
    public int getInt(FieldHandle field, Key key, int fallback) {
        return (int) integer(CallBuffer.with(key), field, FieldType.INT32, fallback);
    }

    /**
     * Reads a bool.
     *
     * @param field the field, resolved as {@link FieldType#BOOL}
     * @param key the document's key
     * @param fallback the result if absent or null
     * @return the value
     */
    public boolean getBoolean(FieldHandle field, Key key, boolean fallback) {
        return truth(CallBuffer.with(key), field, fallback);
    }

    /**
     * Reads a timestamp in microseconds since the Unix epoch.
     *
     * @param field the field, resolved as {@link FieldType#TIMESTAMP}
     * @param key the document's key
     * @param fallback the result if absent or null
     * @return the microseconds
     */
    public long getTimestampMicros(FieldHandle field, Key key, long fallback) {
        return integer(CallBuffer.with(key), field, FieldType.TIMESTAMP, fallback);
    }

    /**
     * Reads a timestamp.
     *
     * @param field the field, resolved as {@link FieldType#TIMESTAMP}
     * @param key the document's key
     * @return the time, or null if absent or null
     */
    public @Nullable Instant getTimestamp(FieldHandle field, Key key) {
        return instant(CallBuffer.with(key), field);
    }

    /**
     * Reads a float32.
     *
     * @param field the field, resolved as {@link FieldType#FLOAT32}
     * @param key the document's key
     * @param fallback the result if absent or null
     * @return the value
     */
    public float getFloat(FieldHandle field, Key key, float fallback) {
        return (float) real(CallBuffer.with(key), field, FieldType.FLOAT32, fallback);
    }

    /**
     * Reads a float64.
     *
     * @param field the field, resolved as {@link FieldType#FLOAT64}
     * @param key the document's key
     * @param fallback the result if absent or null
     * @return the value
     */
    public double getDouble(FieldHandle field, Key key, double fallback) {
        return real(CallBuffer.with(key), field, FieldType.FLOAT64, fallback);
    }

    /**
     * Reads a string.
     *
     * @param field the field, resolved as {@link FieldType#STRING}
     * @param key the document's key
     * @return the value, or null if absent or null
     */
    public @Nullable String getString(FieldHandle field, Key key) {
        return text(copied(field, key, FieldType.STRING));
    }

    /**
     * Reads bytes; in a key-value store, the value.
     *
     * @param field the field, resolved as {@link FieldType#BYTES}
     * @param key the document's key
     * @return the value, or null if absent or null
     */
    public byte @Nullable [] getBytes(FieldHandle field, Key key) {
        return copied(field, key, FieldType.BYTES);
    }

    /**
     * Copies the bytes of a string (UTF-8) or bytes field into an array of the caller's. Allocates
     * nothing for values below 15 KiB. If the value does not fit, nothing is copied, and the
     * result, which is larger than the array, is the needed size.
     *
     * @param field the field, resolved as a string or bytes
     * @param key the document's key
     * @param out the array, which the value fills from its start
     * @return the value's length; {@link #ABSENT} or {@link #NULL}, with nothing copied
     */
    public int getBytes(FieldHandle field, Key key, byte[] out) {
        long length =
                key.partitionKey() == null
                        ? HeapReads.copiedInto(this, field, key.type(), key.bytes(), out)
                        : HeapCalls.FAILED;
        return length == HeapCalls.FAILED
                ? copiedInto(CallBuffer.with(key), field, out)
                : (int) length;
    }

    /**
     * Copies the bytes of a string (UTF-8) or bytes field into a buffer of the caller's, from its
     * position on; position and limit stay. A copy into a direct buffer is the only one and
     * allocates nothing. If the value does not fit, nothing is copied, and the result, which is
     * larger than the remaining bytes, is the needed size.
     *
     * @param field the field, resolved as a string or bytes
     * @param key the document's key
     * @param out the output; a direct buffer, or a buffer over an array
     * @return the value's length; {@link #ABSENT} or {@link #NULL}, with nothing copied
     * @throws InvalidArgumentException for a read-only buffer
     */
    public int getBytes(FieldHandle field, Key key, ByteBuffer out) {
        return copiedInto(CallBuffer.with(key), field, out);
    }

    /**
     * Returns whether a field of a document is absent, null or a value.
     *
     * @param field the field
     * @param key the document's key
     * @return absent, null or a value
     */
    public Presence presence(FieldHandle field, Key key) {
        return presence(CallBuffer.with(key), field);
    }

    /**
     * Reads a value of any type, boxed; lists and vectors too. See {@link Document#value} for the
     * classes.
     *
     * @param field the field
     * @param key the document's key
     * @return the value, or null if absent or null
     */
    public @Nullable Object getValue(FieldHandle field, Key key) {
        return value(CallBuffer.with(key), field);
    }

    /**
     * Reads the whole document. The read copies every field, so read single fields through a
     * handle.
     *
     * @param key the document's key
     * @return the document, or null if there is none
     */
    public @Nullable Document getDocument(Key key) {
        return document(CallBuffer.with(key));
    }

    /**
     * Reads a string or bytes field of many documents.
     *
     * @param field the field, resolved as a string or bytes
     * @param keys the documents' keys; a duplicate key has two results
     * @return the values, in the order of the keys; a key without a document is absent
     */
    public PackedValues getMany(FieldHandle field, Keys keys) {
        return packed(field, keys);
    }

    /**
     * Reads many whole documents.
     *
     * @param keys the documents' keys; a duplicate key has two results
     * @return a result per key, in the order of the keys
     */
    public List<DocumentAnswer> getDocuments(Keys keys) {
        return documents(keys);
    }

    /**
     * Fills a matrix of floats: a row per key, the plan's columns, without an object per value.
     *
     * @param plan a plan for floats
     * @param keys the documents' keys; a duplicate key gets two rows
     * @param values space for {@code keys.size() * plan.width()} cells, row by row
     * @param statuses space for the code of a {@link KeyStatus} per key, its ordinal; if null, a
     *     key that cannot be answered is an error
     * @param cells space for the code of a {@link Presence} per cell, its ordinal; or null
     * @throws InvalidArgumentException for arrays that are too small, with nothing written
     */
    public void gather(
            GatherPlan plan,
            Keys keys,
            float[] values,
            byte @Nullable [] statuses,
            byte @Nullable [] cells) {
        new Gather(this, plan, keys, statuses, cells).into(values);
    }

    /**
     * Fills a matrix of doubles; as {@link #gather(GatherPlan, Keys, float[], byte[], byte[])}.
     *
     * @param plan a plan for doubles
     * @param keys the documents' keys
     * @param values space for {@code keys.size() * plan.width()} cells, row by row
     * @param statuses space for a status per key, or null
     * @param cells space for a presence per cell, or null
     * @throws InvalidArgumentException for arrays that are too small, with nothing written
     */
    public void gather(
            GatherPlan plan,
            Keys keys,
            double[] values,
            byte @Nullable [] statuses,
            byte @Nullable [] cells) {
        new Gather(this, plan, keys, statuses, cells).into(values);
    }

    /**
     * Fills a matrix of longs; as {@link #gather(GatherPlan, Keys, float[], byte[], byte[])}.
     *
     * @param plan a plan for longs
     * @param keys the documents' keys
     * @param values space for {@code keys.size() * plan.width()} cells, row by row
     * @param statuses space for a status per key, or null
     * @param cells space for a presence per cell, or null
     * @throws InvalidArgumentException for arrays that are too small, with nothing written
     */
    public void gather(
            GatherPlan plan,
            Keys keys,
            long[] values,
            byte @Nullable [] statuses,
            byte @Nullable [] cells) {
        new Gather(this, plan, keys, statuses, cells).into(values);
    }

    /**
     * Fills a matrix in a direct buffer, without a copy; for a plan of any type. The matrix starts
     * at the buffer's position, which stays, and uses the buffer's remaining bytes.
     *
     * @param plan the plan; its type is the type of the cells
     * @param keys the documents' keys
     * @param values a direct, writable buffer in native order, whose position is a multiple of a
     *     cell's bytes in memory
     * @param statuses space for a status per key, or null
     * @param cells space for a presence per cell, or null
     * @throws InvalidArgumentException for another buffer, or too little space, with nothing
     *     written
     */
    public void gather(
            GatherPlan plan,
            Keys keys,
            ByteBuffer values,
            byte @Nullable [] statuses,
            byte @Nullable [] cells) {
        new Gather(this, plan, keys, statuses, cells).into(values);
    }

    /**
     * Starts a scan of every live document.
     *
     * @return the scan; close it if it is not read to its end
     */
    public DocumentScan scan() {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(Native.CALLS.scanOpen(reader, call.out(0), call.error()));
            return new DocumentScan(call.outLong(0), read.maxStalenessMs());
        } finally {
            call.release();
        }
    }
}
