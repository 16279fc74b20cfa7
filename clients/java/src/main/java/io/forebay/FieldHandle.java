/* Resolved fields of a reader. */
package io.forebay;

/**
 * A field of one reader, resolved once by name, and the type that it is read as. A handle survives
 * every alteration: a new name, a wider type, other fields that are added and dropped; after a
 * drop, reads return absent. Any thread may use a handle; it needs no close.
 */
public final class FieldHandle {
    private final String name;
    private final FieldType type;
    private final long id;
    // Size guesses, which threads update without synchronization: a read whose value has another
    // size makes one more copy.
    private int likelyBytes;

    private int likelyBytesPerKey;

    FieldHandle(String name, FieldType type, long id) {
        this.name = name;
        this.type = type;
        this.id = id;
    }

    /**
     * Returns the name that the handle was resolved by.
     *
     * @return the name
     */
    public String name() {
        return name;
    }

    /**
     * Returns the type that the field is read as.
     *
     * @return the type
     */
    public FieldType type() {
        return type;
    }

    long id() {
        return id;
    }

    /** Returns the buffer size for a value; -1 if values are too long to guess. */
    int likelyBytes() {
        return likelyBytes;
    }

    /** Returns the buffer size for the values of {@code keys} keys. */
    long likelyBytes(int keys) {
        return (long) likelyBytesPerKey * keys;
    }

    /** Notes that a read value had another length than the guess. */
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

    /**
     * Notes the length of a value that was read through off-heap memory; short values are guessed
     * again.
     */
    void sawElsewhere(int length) {
        if (likelyBytes < 0 && length <= HeapReads.LIKELY_BYTES_MAX / 4) {
            likelyBytes = length;
        }
    }

    /** Notes the total length of the values of a batch. */
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
