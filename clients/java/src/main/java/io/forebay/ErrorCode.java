/* Generated from error.proto by python3 clients/bindings/generate_bindings.py. */
package io.forebay;

import java.util.function.Function;

/** The kind of a failure. */
public enum ErrorCode {
    /** The request can never succeed in its present form. */
    INVALID_ARGUMENT(1, "InvalidArgument", false, InvalidArgumentException::new),

    /** The named store or field does not exist; an absent key is no error. */
    NOT_FOUND(2, "NotFound", false, NotFoundException::new),

    /** Another definition came first. */
    CONFLICT(3, "Conflict", false, ConflictException::new),

    /** The service is not ready or not reachable yet. */
    UNAVAILABLE(4, "Unavailable", true, UnavailableException::new),

    /** The deadline passed before anything was sent. */
    DEADLINE_EXCEEDED(5, "DeadlineExceeded", false, DeadlineExceededException::new),

    /** The write may or may not be in the log; the same retry resolves it. */
    UNKNOWN_OUTCOME(6, "UnknownOutcome", true, UnknownOutcomeException::new),

    /** A limit was exceeded. The error names the limit and the actual value. */
    LIMIT_EXCEEDED(7, "LimitExceeded", false, LimitExceededException::new),

    /** The data is older than the caller's bound. */
    STALE(8, "Stale", true, StaleException::new),

    /** The token's log is no longer served. */
    TOKEN_LOST(9, "TokenLost", false, TokenLostException::new),

    /** The bytes fail their checksum or contradict their format. */
    CORRUPT(10, "Corrupt", false, CorruptException::new),

    /** This build, mode or implementation does not offer it. */
    UNSUPPORTED(11, "Unsupported", false, UnsupportedException::new),

    /** The format, change kind or fold version is newer than this build. */
    UPGRADE_NEEDED(12, "UpgradeNeeded", false, UpgradeNeededException::new),

    /** The reader or client was closed. */
    CLOSED(13, "Closed", false, ClosedException::new),

    /** The call has no valid credentials. */
    UNAUTHENTICATED(14, "Unauthenticated", false, UnauthenticatedException::new),

    /** The credentials are valid, but lack the required role. */
    PERMISSION_DENIED(15, "PermissionDenied", false, PermissionDeniedException::new),

    /** An invariant is broken; the service's log records contain evidence. */
    INTERNAL(16, "Internal", false, InternalException::new);

    private static final ErrorCode[] ALL = values();

    private final int number;
    private final String label;
    private final boolean retryable;
    private final Function<ForebayException.Failure, ForebayException> exceptions;

    ErrorCode(
            int number,
            String label,
            boolean retryable,
            Function<ForebayException.Failure, ForebayException> exceptions) {
        this.number = number;
        this.label = label;
        this.retryable = retryable;
        this.exceptions = exceptions;
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

    /** Returns a new exception of the code's class. */
    ForebayException exception(ForebayException.Failure failure) {
        return exceptions.apply(failure);
    }
}
