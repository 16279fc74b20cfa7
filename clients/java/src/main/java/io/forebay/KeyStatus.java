/* What became of one key of a batch. */
package io.forebay;

/** What became of one key of a batch. */
public enum KeyStatus {
    /** There is no live document under it. */
    ABSENT,
    /** There is one. */
    FOUND,
    /** Its partition is still bootstrapping, or not reachable. */
    UNAVAILABLE,
    /** Its partition is older than the caller's bound. */
    STALE,
    /** Its partition is not followed by this reader. */
    NOT_FOLLOWED;

    private static final KeyStatus[] ALL = values();

    static KeyStatus of(int code) {
        return ALL[code];
    }
}
