/* Strings or bytes of many documents, one behind another. */
package io.forebay;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/** One field of many documents, in the order of the keys that were asked for. Immutable. */
public final class PackedValues {
    private final byte[] values;
    private final long[] ends;
    private final byte[] statuses;
    private final byte[] presences;

    /** Of these arrays as they are; there may be room behind the last value. */
    PackedValues(byte[] values, long[] ends, byte[] statuses, byte[] presences) {
        this.values = values;
        this.ends = ends;
        this.statuses = statuses;
        this.presences = presences;
    }

    /** Of ends as the native core packs them. */
    static PackedValues of(byte[] values, byte[] packedEnds, byte[] statuses, byte[] presences) {
        long[] ends = new long[statuses.length];
        ByteBuffer.wrap(packedEnds).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer().get(ends);
        return new PackedValues(values, ends, statuses, presences);
    }

    /**
     * The number of keys.
     *
     * @return how many were asked for
     */
    public int size() {
        return statuses.length;
    }

    /**
     * What became of a key.
     *
     * @param place the key's place in the batch
     * @return its status
     */
    public KeyStatus status(int place) {
        return KeyStatus.of(statuses[place]);
    }

    /**
     * Whether a key's field is absent, null or a value.
     *
     * @param place the key's place in the batch
     * @return which of the three
     */
    public Presence presence(int place) {
        return Presence.of(presences[place]);
    }

    /**
     * A key's bytes.
     *
     * @param place the key's place in the batch
     * @return a copy, or null when absent or null
     */
    public byte @Nullable [] bytes(int place) {
        return presence(place) == Presence.VALUE
                ? Arrays.copyOfRange(values, start(place), end(place))
                : null;
    }

    /**
     * A key's text.
     *
     * @param place the key's place in the batch
     * @return the text, or null when absent or null
     */
    public @Nullable String string(int place) {
        int start = start(place);
        return presence(place) == Presence.VALUE
                ? new String(values, start, end(place) - start, StandardCharsets.UTF_8)
                : null;
    }

    /**
     * All values, each in an array of its own.
     *
     * @return a copy per key, null where absent or null
     */
    public byte @Nullable [][] toArrays() {
        byte[][] arrays = new byte[size()][];
        for (int place = 0; place < arrays.length; place++) {
            arrays[place] = bytes(place);
        }
        return arrays;
    }

    private int start(int place) {
        return place == 0 ? 0 : end(place - 1);
    }

    private int end(int place) {
        return Math.toIntExact(ends[place]);
    }
}
