/* Status of one key of a batch. */
package io.forebay;

/** The status of one key of a batch. */
public enum KeyStatus {
    /** No live document has this key. */
    ABSENT,
    /** The document was found. */
    FOUND,
    /** The key's partition is still bootstrapping, or unreachable. */
    UNAVAILABLE,
    /** The key's partition is older than the caller's bound. */
    STALE,
    /** The reader does not follow the key's partition. */
    NOT_FOLLOWED;

    private static final KeyStatus[] ALL = values();

    static KeyStatus of(int code) {
        return ALL[code];
    }
}
