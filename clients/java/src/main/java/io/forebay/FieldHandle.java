/* A field as a reader holds it. */
package io.forebay;

/**
 * A field of one reader, resolved once by name, and the type that it is read as. It survives every
 * alteration: a new name, a wider type, other fields that come and go; after a drop it answers
 * absent. Any thread may use it; it needs no close.
 */
public final class FieldHandle {
    private final String name;
    private final FieldType type;
    private final long id;
    // Guesses, which threads change without a word to each other: a read that finds another size
    // than it was made ready for takes a copy more.
    private int likelyBytes;

    private int likelyBytesPerKey;

    FieldHandle(String name, FieldType type, long id) {
        this.name = name;
        this.type = type;
        this.id = id;
    }

    /**
     * The name that it was resolved by.
     *
     * @return the name
     */
    public String name() {
        return name;
    }

    /**
     * The type that it is read as.
     *
     * @return the type
     */
    public FieldType type() {
        return type;
    }

    long id() {
        return id;
    }

    /** The bytes that a value has room in; -1 when values are too long to guess. */
    int likelyBytes() {
        return likelyBytes;
    }

    /** The bytes that the values of so many keys have room in. */
    long likelyBytes(int keys) {
        return (long) likelyBytesPerKey * keys;
    }

    /** What was read was a value of another length. */
    void saw(long length) {
        int likely = likelyBytes;
        if (length > HeapReads.LIKELY_BYTES_MAX) {
            likelyBytes = -1;
        } else if (length > likely) {
            likelyBytes = (int) length;
        } else if (length < likely / 4) {
            likelyBytes = likely / 2;
        }
    }

    /** What was read elsewhere was a value of this length; short ones are guessed again. */
    void sawElsewhere(int length) {
        if (likelyBytes < 0 && length <= HeapReads.LIKELY_BYTES_MAX / 4) {
            likelyBytes = length;
        }
    }

    /** What was read were values of this length together. */
    void saw(long length, int keys) {
        long perKey = keys == 0 ? 0 : (length + keys - 1) / keys;
        int likely = likelyBytesPerKey;
        if (perKey > likely) {
            likelyBytesPerKey = (int) Math.min(perKey, Integer.MAX_VALUE);
        } else if (perKey < likely / 2) {
            likelyBytesPerKey = likely - likely / 8;
        }
    }
}
