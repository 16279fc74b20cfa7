/* Strings or bytes of many documents, concatenated. */
package io.forebay;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/** A field of many documents, in the order of the requested keys. Immutable. */
public final class PackedValues {
    private final byte[] values;
    private final long[] ends;
    private final byte[] statuses;
    private final byte[] presences;

    /** Wraps these arrays without a copy; the array of values may have free space at its end. */
    PackedValues(byte[] values, long[] ends, byte[] statuses, byte[] presences) {
        this.values = values;
        this.ends = ends;
        this.statuses = statuses;
        this.presences = presences;
    }

    /** Creates values from ends as the native core packs them. */
    static PackedValues of(byte[] values, byte[] packedEnds, byte[] statuses, byte[] presences) {
        long[] ends = new long[statuses.length];
        ByteBuffer.wrap(packedEnds).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer().get(ends);
        return new PackedValues(values, ends, statuses, presences);
    }

    /**
     * Returns the number of keys.
     *
     * @return the number of requested keys
     */
    public int size() {
        return statuses.length;
    }

    /**
     * Returns the status of a key.
     *
     * @param place the key's index in the batch
     * @return its status
     */
    public KeyStatus status(int place) {
        return KeyStatus.of(statuses[place]);
    }

    /**
     * Returns whether a key's field is absent, null or a value.
     *
     * @param place the key's index in the batch
     * @return absent, null or a value
     */
    public Presence presence(int place) {
        return Presence.of(presences[place]);
    }

    /**
     * Returns a key's bytes.
     *
     * @param place the key's index in the batch
     * @return a copy, or null if absent or null
     */
    public byte @Nullable [] bytes(int place) {
        return presence(place) == Presence.VALUE
                ? Arrays.copyOfRange(values, start(place), end(place))
                : null;
    }

    /**
     * Returns a key's text.
     *
     * @param place the key's index in the batch
     * @return the text, or null if absent or null
     */
    public @Nullable String string(int place) {
        int start = start(place);
        return presence(place) == Presence.VALUE
                ? new String(values, start, end(place) - start, StandardCharsets.UTF_8)
                : null;
    }

    /**
     * Returns all values, each in a new array.
     *
     * @return a copy per key, null if absent or null
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
