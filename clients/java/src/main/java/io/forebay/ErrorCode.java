/* The one table of error codes, the same in every language. */
package io.forebay;

/** The kind of a failure. */
public enum ErrorCode {
    /** The request can never succeed as it stands. */
    INVALID_ARGUMENT(1, "InvalidArgument", false),

    /** The store or field that was named does not exist. An absent key is no error. */
    NOT_FOUND(2, "NotFound", false),

    /** Another definition came first. */
    CONFLICT(3, "Conflict", false),

    /** Not ready or not reachable yet; the same call may succeed later. */
    UNAVAILABLE(4, "Unavailable", true),

    /** The caller's deadline passed before anything was sent. */
    DEADLINE_EXCEEDED(5, "DeadlineExceeded", false),

    /** The write may or may not be in the log; the same retry settles it. */
    UNKNOWN_OUTCOME(6, "UnknownOutcome", true),

    /** A limit was passed; the error names the limit and the actual value. */
    LIMIT_EXCEEDED(7, "LimitExceeded", false),

    /** The data is older than the caller's bound. */
    STALE(8, "Stale", true),

    /** The token belongs to a log that is no longer served. */
    TOKEN_LOST(9, "TokenLost", false),

    /** Bytes that fail their checksum or contradict their format. */
    CORRUPT(10, "Corrupt", false),

    /** This build, mode or implementation does not offer the operation. */
    UNSUPPORTED(11, "Unsupported", false),

    /** A format, change kind or fold version that this build does not know. */
    UPGRADE_NEEDED(12, "UpgradeNeeded", false),

    /** The reader or client was closed. */
    CLOSED(13, "Closed", false),

    /** No valid credentials. */
    UNAUTHENTICATED(14, "Unauthenticated", false),

    /** Valid credentials without the needed role. */
    PERMISSION_DENIED(15, "PermissionDenied", false),

    /** A broken invariant; report it. */
    INTERNAL(16, "Internal", false);

    private static final ErrorCode[] ALL = values();

    private final int number;
    private final String label;
    private final boolean retryable;

    ErrorCode(int number, String label, boolean retryable) {
        this.number = number;
        this.label = label;
        this.retryable = retryable;
    }

    /**
     * Returns the code's number, as on the wire and in the C ABI.
     *
     * @return a number from 1
     */
    public int number() {
        return number;
    }

    /**
     * Returns the code's name, as every language spells it.
     *
     * @return for example {@code InvalidArgument}
     */
    public String label() {
        return label;
    }

    /**
     * Returns whether a plain retry of the same call may succeed.
     *
     * @return true for {@link #UNAVAILABLE}, {@link #UNKNOWN_OUTCOME} and {@link #STALE}
     */
    public boolean isRetryable() {
        return retryable;
    }

    static ErrorCode of(int number) {
        return number >= 1 && number <= ALL.length ? ALL[number - 1] : INTERNAL;
    }
}
