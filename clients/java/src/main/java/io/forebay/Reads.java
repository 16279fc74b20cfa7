/* The reads of a reader, all made in one way. */
package io.forebay;

import java.nio.ByteBuffer;
import java.time.Instant;
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
 *
 * <p>Every read of one document takes a {@link Key}, or as the key an int64, a {@code String} or a
 * {@code byte[]} as it is: no object is made for it, and none is converted.
 */
public class Reads extends KeyedReads {
    /** What a read into a buffer answers for an absent document or field. */
    public static final int ABSENT = -1;

    /** What a read into a buffer answers for a field that is null. */
    public static final int NULL = -2;

    Reads(long reader, Read read) {
        super(reader, read);
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
        return integer(CallBuffer.with(key), field, FieldType.INT64, fallback);
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
        return (int) integer(CallBuffer.with(key), field, FieldType.INT32, fallback);
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
        return truth(CallBuffer.with(key), field, fallback);
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
        return integer(CallBuffer.with(key), field, FieldType.TIMESTAMP, fallback);
    }

    /**
     * A timestamp.
     *
     * @param field the field, resolved as {@link FieldType#TIMESTAMP}
     * @param key the document's key
     * @return the time, or null when absent or null
     */
    public @Nullable Instant getTimestamp(FieldHandle field, Key key) {
        return instant(CallBuffer.with(key), field);
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
        return (float) real(CallBuffer.with(key), field, FieldType.FLOAT32, fallback);
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
        return real(CallBuffer.with(key), field, FieldType.FLOAT64, fallback);
    }

    /**
     * A string.
     *
     * @param field the field, resolved as {@link FieldType#STRING}
     * @param key the document's key
     * @return the value, or null when absent or null
     */
    public @Nullable String getString(FieldHandle field, Key key) {
        return text(copied(field, key, FieldType.STRING));
    }

    /**
     * Bytes; of a key-value store, the value.
     *
     * @param field the field, resolved as {@link FieldType#BYTES}
     * @param key the document's key
     * @return the value, or null when absent or null
     */
    public byte @Nullable [] getBytes(FieldHandle field, Key key) {
        return copied(field, key, FieldType.BYTES);
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
        long length =
                key.partitionKey() == null
                        ? HeapReads.copiedInto(this, field, key.type(), key.bytes(), out)
                        : HeapCalls.FAILED;
        return length == HeapCalls.FAILED
                ? copiedInto(CallBuffer.with(key), field, out)
                : (int) length;
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
        return copiedInto(CallBuffer.with(key), field, out);
    }

    /**
     * Whether a field of a document is absent, null or a value.
     *
     * @param field the field
     * @param key the document's key
     * @return which of the three
     */
    public Presence presence(FieldHandle field, Key key) {
        return presence(CallBuffer.with(key), field);
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
        return value(CallBuffer.with(key), field);
    }

    /**
     * The whole document. It copies every field, so read single ones through a handle.
     *
     * @param key the document's key
     * @return the document, or null when there is none
     */
    public @Nullable Document getDocument(Key key) {
        return document(CallBuffer.with(key));
    }

    /**
     * A string or bytes field of many documents.
     *
     * @param field the field, resolved as a string or bytes
     * @param keys the documents' keys; one that stands twice is answered twice
     * @return the values, in the order of the keys; a key without a document is absent in its place
     */
    public PackedValues multiGet(FieldHandle field, Keys keys) {
        return packed(field, keys);
    }

    /**
     * Many whole documents.
     *
     * @param keys the documents' keys; one that stands twice is answered twice
     * @return an answer per key, in their order
     */
    public List<DocumentAnswer> getDocuments(Keys keys) {
        return documents(keys);
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
        new Gather(this, plan, keys, statuses, cells).into(values);
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
        new Gather(this, plan, keys, statuses, cells).into(values);
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
        new Gather(this, plan, keys, statuses, cells).into(values);
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
        new Gather(this, plan, keys, statuses, cells).into(values);
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
