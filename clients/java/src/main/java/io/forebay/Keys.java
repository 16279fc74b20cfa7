/* The keys of a batch, packed once. */
package io.forebay;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * Many keys of one type, concatenated as the native core takes them. Immutable; reuse keys that are
 * used often.
 */
public final class Keys extends BatchKeys {
    private final KeyType type;
    private final int size;
    private final Part primary;
    private final @Nullable KeyType partitionType;
    private final Part partition;

    private static final int SHORT_BYTES_MAX = 64;
    private static final VarHandle WORDS =
            MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.nativeOrder());

    private record Part(byte[] bytes, long[] ends) {
        static final Part NONE = new Part(Text.NO_BYTES, new long[0]);

        static Part of(byte[][] keys) {
            long[] ends = new long[keys.length];
            long total = 0;
            for (int place = 0; place < keys.length; place++) {
                total += keys[place].length;
                ends[place] = total;
            }
            if (total > Integer.MAX_VALUE - 64) {
                throw ForebayException.of(
                        ErrorCode.LIMIT_EXCEEDED,
                        "the batch has too many keys; read the keys in several calls");
            }
            byte[] bytes = new byte[(int) total];
            int at = 0;
            for (byte[] key : keys) {
                copy(key, bytes, at);
                at += key.length;
            }
            return new Part(bytes, ends);
        }

        /** Copies a key; word by word, because most are short. */
        private static void copy(byte[] key, byte[] bytes, int at) {
            int length = key.length;
            if (length < Long.BYTES || length > SHORT_BYTES_MAX) {
                System.arraycopy(key, 0, bytes, at, length);
                return;
            }
            for (int from = 0; from <= length - Long.BYTES; from += Long.BYTES) {
                WORDS.set(bytes, at + from, (long) WORDS.get(key, from));
            }
            int last = length - Long.BYTES;
            WORDS.set(bytes, at + last, (long) WORDS.get(key, last));
        }
    }

    private Keys(
            KeyType type, int size, Part primary, @Nullable KeyType partitionType, Part partition) {
        this.type = type;
        this.size = size;
        this.primary = primary;
        this.partitionType = partitionType;
        this.partition = partition;
    }

    /**
     * Packs the keys of a batch.
     *
     * @param keys keys of one type, all with a partition key or none; duplicates are allowed
     * @return the keys, packed
     * @throws InvalidArgumentException for keys of several types
     */
    public static Keys of(List<Key> keys) {
        if (keys.isEmpty()) {
            return new Keys(KeyType.BYTES, 0, Part.NONE, null, Part.NONE);
        }
        KeyType type = keys.get(0).type();
        Key within = keys.get(0).partitionKey();
        KeyType partitionType = within == null ? null : within.type();
        for (Key key : keys) {
            Key own = key.partitionKey();
            if (key.type() != type || (own == null ? null : own.type()) != partitionType) {
                throw ForebayException.of(
                        ErrorCode.INVALID_ARGUMENT,
                        "the keys of the batch have several types; give keys of one type");
            }
        }
        Part primary = Part.of(bytes(keys, key -> key));
        Part partition =
                partitionType == null
                        ? Part.NONE
                        : Part.of(bytes(keys, Key::partitionKey));
        return new Keys(type, keys.size(), primary, partitionType, partition);
    }

    /**
     * Packs the keys of a batch.
     *
     * @param keys keys, as {@link #of(List)}
     * @return the keys, packed
     */
    public static Keys of(Key... keys) {
        return of(List.of(keys));
    }

    /**
     * Packs the int64 keys of a batch, without an object per key.
     *
     * @param keys any numbers; duplicates are allowed
     * @return the keys, packed
     */
    public static Keys of(long[] keys) {
        if (keys.length > Integer.MAX_VALUE / Long.BYTES) {
            throw ForebayException.of(
                    ErrorCode.LIMIT_EXCEEDED,
                    "the batch has too many keys; read the keys in several calls");
        }
        ByteBuffer bytes = ByteBuffer.allocate(Long.BYTES * keys.length);
        bytes.order(ByteOrder.LITTLE_ENDIAN).asLongBuffer().put(keys);
        Part part = new Part(bytes.array(), Part.NONE.ends());
        return new Keys(KeyType.INT64, keys.length, part, null, Part.NONE);
    }

    /**
     * Packs the string keys of a batch, without an object per key.
     *
     * @param keys texts without lone surrogates; duplicates are allowed
     * @return the keys, packed
     * @throws InvalidArgumentException for a lone surrogate
     */
    public static Keys of(String[] keys) {
        byte[][] texts = new byte[keys.length][];
        for (int place = 0; place < keys.length; place++) {
            texts[place] = Text.utf8(keys[place]);
        }
        Part part = Part.of(texts);
        return new Keys(KeyType.STRING, keys.length, part, null, Part.NONE);
    }

    /**
     * Packs the bytes keys of a batch, without an object per key.
     *
     * @param keys any bytes, which are copied; duplicates are allowed
     * @return the keys, packed
     */
    public static Keys of(byte[][] keys) {
        Part part = Part.of(keys);
        return new Keys(KeyType.BYTES, keys.length, part, null, Part.NONE);
    }

    private static byte[][] bytes(List<Key> keys, Function<Key, @Nullable Key> part) {
        byte[][] bytes = new byte[keys.size()][];
        for (int place = 0; place < bytes.length; place++) {
            Key key = part.apply(keys.get(place));
            bytes[place] = key == null ? Text.NO_BYTES : key.bytes();
        }
        return bytes;
    }

    /**
     * Returns the number of keys.
     *
     * @return the number of keys
     */
    @Override
    public int size() {
        return size;
    }

    @Override
    long read(HeapCalls heap, long reader, long field, HeapCalls.ManyValues into) {
        if (partitionType != null) {
            return HeapCalls.FAILED;
        }
        return type == KeyType.INT64
                ? heap.getMany(reader, field, primary.bytes(), into)
                : heap.getMany(reader, field, type.code(), primary.bytes(), primary.ends(), into);
    }

    @Override
    long encode(CallBuffer call) {
        CallBuffer.Place place = call.allocateDirty(BYTES);
        ByteBuffer buffer = place.buffer();
        int at = place.at();
        buffer.putInt(at, type.code());
        buffer.putInt(at + 4, partitionType == null ? 0 : partitionType.code());
        buffer.putLong(at + 8, size);
        call.text(buffer, at + 16, primary.bytes());
        buffer.putLong(at + 32, ends(call, primary));
        call.text(buffer, at + 40, partition.bytes());
        buffer.putLong(at + 56, ends(call, partition));
        return place.address();
    }

    private static long ends(CallBuffer call, Part part) {
        CallBuffer.Place place = call.allocateDirty(8L * part.ends().length);
        int at = place.at();
        for (long end : part.ends()) {
            place.buffer().putLong(at, end);
            at += 8;
        }
        return place.address();
    }
}
