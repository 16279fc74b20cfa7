/* Generated from bindings.toml by python3 clients/bindings/generate_bindings.py. */
package io.forebay;

import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The part of {@link Reads} that takes an int64, string or bytes key directly, without a {@link
 * Key}. Each read has the meaning of the read by a {@link Key}. A store with another type of
 * keys refuses the read with {@link InvalidArgumentException}, and so does a store that is
 * partitioned by a field, which needs {@link Key#within}.
 */
abstract class KeyedReads extends NativeReads {
    KeyedReads(long reader, ReadOptions read) {
        super(reader, read);
    }

    /** Reads like {@link Reads#getLong(FieldHandle, Key, long)}, by an int64 key. */
    public long getLong(FieldHandle field, long key, long fallback) {
        return integer(CallBuffer.with(key), field, FieldType.INT64, fallback);
    }

    /** Reads like {@link Reads#getInt(FieldHandle, Key, int)}, by an int64 key. */
    public int getInt(FieldHandle field, long key, int fallback) {
        return (int) integer(CallBuffer.with(key), field, FieldType.INT32, fallback);
    }

    /** Reads like {@link Reads#getBoolean(FieldHandle, Key, boolean)}, by an int64 key. */
    public boolean getBoolean(FieldHandle field, long key, boolean fallback) {
        return truth(CallBuffer.with(key), field, fallback);
    }

    /** Reads like {@link Reads#getTimestampMicros(FieldHandle, Key, long)}, by an int64 key. */
    public long getTimestampMicros(FieldHandle field, long key, long fallback) {
        return integer(CallBuffer.with(key), field, FieldType.TIMESTAMP, fallback);
    }

    /** Reads like {@link Reads#getFloat(FieldHandle, Key, float)}, by an int64 key. */
    public float getFloat(FieldHandle field, long key, float fallback) {
        return (float) real(CallBuffer.with(key), field, FieldType.FLOAT32, fallback);
    }

    /** Reads like {@link Reads#getDouble(FieldHandle, Key, double)}, by an int64 key. */
    public double getDouble(FieldHandle field, long key, double fallback) {
        return real(CallBuffer.with(key), field, FieldType.FLOAT64, fallback);
    }

    /** Reads like {@link Reads#getTimestamp(FieldHandle, Key)}, by an int64 key. */
    public @Nullable Instant getTimestamp(FieldHandle field, long key) {
        return instant(CallBuffer.with(key), field);
    }

    /** Reads like {@link Reads#getString(FieldHandle, Key)}, by an int64 key. */
    public @Nullable String getString(FieldHandle field, long key) {
        return text(copied(field, key, FieldType.STRING));
    }

    /** Reads like {@link Reads#getBytes(FieldHandle, Key)}, by an int64 key. */
    public byte @Nullable [] getBytes(FieldHandle field, long key) {
        return copied(field, key, FieldType.BYTES);
    }

    /** Reads like {@link Reads#getBytes(FieldHandle, Key, ByteBuffer)}, by an int64 key. */
    public int getBytes(FieldHandle field, long key, ByteBuffer out) {
        return copiedInto(CallBuffer.with(key), field, out);
    }

    /** Reads like {@link Reads#presence(FieldHandle, Key)}, by an int64 key. */
    public Presence presence(FieldHandle field, long key) {
        return presence(CallBuffer.with(key), field);
    }

    /** Reads like {@link Reads#getValue(FieldHandle, Key)}, by an int64 key. */
    public @Nullable Object getValue(FieldHandle field, long key) {
        return value(CallBuffer.with(key), field);
    }

    /** Reads like {@link Reads#getDocument(Key)}, by an int64 key. */
    public @Nullable Document getDocument(long key) {
        return document(CallBuffer.with(key));
    }

    /** Reads like {@link Reads#getLong(FieldHandle, Key, long)}, by a string key. */
    public long getLong(FieldHandle field, String key, long fallback) {
        return integer(CallBuffer.with(key), field, FieldType.INT64, fallback);
    }

    /** Reads like {@link Reads#getInt(FieldHandle, Key, int)}, by a string key. */
    public int getInt(FieldHandle field, String key, int fallback) {
        return (int) integer(CallBuffer.with(key), field, FieldType.INT32, fallback);
    }

    /** Reads like {@link Reads#getBoolean(FieldHandle, Key, boolean)}, by a string key. */
    public boolean getBoolean(FieldHandle field, String key, boolean fallback) {
        return truth(CallBuffer.with(key), field, fallback);
    }

    /** Reads like {@link Reads#getTimestampMicros(FieldHandle, Key, long)}, by a string key. */
    public long getTimestampMicros(FieldHandle field, String key, long fallback) {
        return integer(CallBuffer.with(key), field, FieldType.TIMESTAMP, fallback);
    }

    /** Reads like {@link Reads#getFloat(FieldHandle, Key, float)}, by a string key. */
    public float getFloat(FieldHandle field, String key, float fallback) {
        return (float) real(CallBuffer.with(key), field, FieldType.FLOAT32, fallback);
    }

    /** Reads like {@link Reads#getDouble(FieldHandle, Key, double)}, by a string key. */
    public double getDouble(FieldHandle field, String key, double fallback) {
        return real(CallBuffer.with(key), field, FieldType.FLOAT64, fallback);
    }

    /** Reads like {@link Reads#getTimestamp(FieldHandle, Key)}, by a string key. */
    public @Nullable Instant getTimestamp(FieldHandle field, String key) {
        return instant(CallBuffer.with(key), field);
    }

    /** Reads like {@link Reads#getString(FieldHandle, Key)}, by a string key. */
    public @Nullable String getString(FieldHandle field, String key) {
        return text(copied(field, key, FieldType.STRING));
    }

    /** Reads like {@link Reads#getBytes(FieldHandle, Key)}, by a string key. */
    public byte @Nullable [] getBytes(FieldHandle field, String key) {
        return copied(field, key, FieldType.BYTES);
    }

    /** Reads like {@link Reads#getBytes(FieldHandle, Key, ByteBuffer)}, by a string key. */
    public int getBytes(FieldHandle field, String key, ByteBuffer out) {
        return copiedInto(CallBuffer.with(key), field, out);
    }

    /** Reads like {@link Reads#presence(FieldHandle, Key)}, by a string key. */
    public Presence presence(FieldHandle field, String key) {
        return presence(CallBuffer.with(key), field);
    }

    /** Reads like {@link Reads#getValue(FieldHandle, Key)}, by a string key. */
    public @Nullable Object getValue(FieldHandle field, String key) {
        return value(CallBuffer.with(key), field);
    }

    /** Reads like {@link Reads#getDocument(Key)}, by a string key. */
    public @Nullable Document getDocument(String key) {
        return document(CallBuffer.with(key));
    }

    /** Reads like {@link Reads#getLong(FieldHandle, Key, long)}, by a bytes key. */
    public long getLong(FieldHandle field, byte[] key, long fallback) {
        return integer(CallBuffer.with(key), field, FieldType.INT64, fallback);
    }

    /** Reads like {@link Reads#getInt(FieldHandle, Key, int)}, by a bytes key. */
    public int getInt(FieldHandle field, byte[] key, int fallback) {
        return (int) integer(CallBuffer.with(key), field, FieldType.INT32, fallback);
    }

    /** Reads like {@link Reads#getBoolean(FieldHandle, Key, boolean)}, by a bytes key. */
    public boolean getBoolean(FieldHandle field, byte[] key, boolean fallback) {
        return truth(CallBuffer.with(key), field, fallback);
    }

    /** Reads like {@link Reads#getTimestampMicros(FieldHandle, Key, long)}, by a bytes key. */
    public long getTimestampMicros(FieldHandle field, byte[] key, long fallback) {
        return integer(CallBuffer.with(key), field, FieldType.TIMESTAMP, fallback);
    }

    /** Reads like {@link Reads#getFloat(FieldHandle, Key, float)}, by a bytes key. */
    public float getFloat(FieldHandle field, byte[] key, float fallback) {
        return (float) real(CallBuffer.with(key), field, FieldType.FLOAT32, fallback);
    }

    /** Reads like {@link Reads#getDouble(FieldHandle, Key, double)}, by a bytes key. */
    public double getDouble(FieldHandle field, byte[] key, double fallback) {
        return real(CallBuffer.with(key), field, FieldType.FLOAT64, fallback);
    }

    /** Reads like {@link Reads#getTimestamp(FieldHandle, Key)}, by a bytes key. */
    public @Nullable Instant getTimestamp(FieldHandle field, byte[] key) {
        return instant(CallBuffer.with(key), field);
    }

    /** Reads like {@link Reads#getString(FieldHandle, Key)}, by a bytes key. */
    public @Nullable String getString(FieldHandle field, byte[] key) {
        return text(copied(field, key, FieldType.STRING));
    }

    /** Reads like {@link Reads#getBytes(FieldHandle, Key)}, by a bytes key. */
    public byte @Nullable [] getBytes(FieldHandle field, byte[] key) {
        return copied(field, key, FieldType.BYTES);
    }

    /** Reads like {@link Reads#getBytes(FieldHandle, Key, ByteBuffer)}, by a bytes key. */
    public int getBytes(FieldHandle field, byte[] key, ByteBuffer out) {
        return copiedInto(CallBuffer.with(key), field, out);
    }

    /** Reads like {@link Reads#presence(FieldHandle, Key)}, by a bytes key. */
    public Presence presence(FieldHandle field, byte[] key) {
        return presence(CallBuffer.with(key), field);
    }

    /** Reads like {@link Reads#getValue(FieldHandle, Key)}, by a bytes key. */
    public @Nullable Object getValue(FieldHandle field, byte[] key) {
        return value(CallBuffer.with(key), field);
    }

    /** Reads like {@link Reads#getDocument(Key)}, by a bytes key. */
    public @Nullable Document getDocument(byte[] key) {
        return document(CallBuffer.with(key));
    }

    // Reads of many documents, by int64 keys; for other keys, Keys.of avoids an object per key.

    /** Reads like {@link Reads#getMany(FieldHandle, Keys)}, by int64 keys. */
    public PackedValues getMany(FieldHandle field, long[] keys) {
        return packed(field, BatchKeys.of(keys));
    }

    /** Reads like {@link Reads#getDocuments(Keys)}, by int64 keys. */
    public List<DocumentAnswer> getDocuments(long[] keys) {
        return documents(BatchKeys.of(keys));
    }

    /**
     * Works like {@link Reads#gather(GatherPlan, Keys, float[], byte[], byte[])}, by int64 keys.
     */
    public void gather(
            GatherPlan plan,
            long[] keys,
            float[] values,
            byte @Nullable [] statuses,
            byte @Nullable [] cells) {
        new Gather(this, plan, BatchKeys.of(keys), statuses, cells).into(values);
    }

    /**
     * Works like {@link Reads#gather(GatherPlan, Keys, double[], byte[], byte[])}, by int64 keys.
     */
    public void gather(
            GatherPlan plan,
            long[] keys,
            double[] values,
            byte @Nullable [] statuses,
            byte @Nullable [] cells) {
        new Gather(this, plan, BatchKeys.of(keys), statuses, cells).into(values);
    }

    /** Works like {@link Reads#gather(GatherPlan, Keys, long[], byte[], byte[])}, by int64 keys. */
    public void gather(
            GatherPlan plan,
            long[] keys,
            long[] values,
            byte @Nullable [] statuses,
            byte @Nullable [] cells) {
        new Gather(this, plan, BatchKeys.of(keys), statuses, cells).into(values);
    }

    /**
     * Works like {@link Reads#gather(GatherPlan, Keys, ByteBuffer, byte[], byte[])}, by int64 keys.
     */
    public void gather(
            GatherPlan plan,
            long[] keys,
            ByteBuffer values,
            byte @Nullable [] statuses,
            byte @Nullable [] cells) {
        new Gather(this, plan, BatchKeys.of(keys), statuses, cells).into(values);
    }
}
