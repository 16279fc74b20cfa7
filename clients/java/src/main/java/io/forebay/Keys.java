/* The keys of a batch, packed once. */
package io.forebay;

import java.nio.ByteBuffer;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Many keys of one type, one behind another, as the native core takes them. Immutable; keep keys
 * that are used often.
 */
public final class Keys {
    private static final int BYTES = 64;

    private final KeyType type;
    private final int size;
    private final Part primary;
    private final @Nullable KeyType partitionType;
    private final Part partition;

    private record Part(byte[] bytes, long[] ends) {
        static final Part NONE = new Part(Text.NO_BYTES, new long[0]);

        static Part of(int count, java.util.function.IntFunction<byte[]> at) {
            long[] ends = new long[count];
            long total = 0;
            for (int place = 0; place < count; place++) {
                total += at.apply(place).length;
                ends[place] = total;
            }
            if (total > Integer.MAX_VALUE - 64) {
                throw ForebayException.of(
                        ErrorCode.LIMIT_EXCEEDED, "read the keys in several calls");
            }
            ByteBuffer bytes = ByteBuffer.allocate((int) total);
            for (int place = 0; place < count; place++) {
                bytes.put(at.apply(place));
            }
            return new Part(bytes.array(), ends);
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
     * The keys of a batch.
     *
     * @param keys keys of one type, all with a partition key or none; a key may stand twice
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
                        ErrorCode.INVALID_ARGUMENT, "the keys of a batch are of one type");
            }
        }
        Part primary = Part.of(keys.size(), place -> keys.get(place).bytes());
        Part partition =
                partitionType == null
                        ? Part.NONE
                        : Part.of(keys.size(), place -> partitionBytes(keys.get(place)));
        return new Keys(type, keys.size(), primary, partitionType, partition);
    }

    /**
     * The keys of a batch.
     *
     * @param keys keys, as {@link #of(List)}
     * @return the keys, packed
     */
    public static Keys of(Key... keys) {
        return of(List.of(keys));
    }

    private static byte[] partitionBytes(Key key) {
        Key partitionKey = key.partitionKey();
        return partitionKey == null ? Text.NO_BYTES : partitionKey.bytes();
    }

    /**
     * The number of keys.
     *
     * @return how many there are
     */
    public int size() {
        return size;
    }

    /** Writes an fb_keys; answers its address. */
    long encode(CallBuffer call) {
        CallBuffer.Place place = call.allocate(BYTES);
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
