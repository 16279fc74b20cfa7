/* Options of a read: its wait, and its staleness bound. */
package io.forebay;

import java.time.Duration;
import org.jspecify.annotations.Nullable;

/** The wait and the staleness bound of a read. Immutable. */
public final class Read {
    private static final Read LOCAL = new Read(HeaderConstants.WAIT_NOTHING, 0, 0, null);

    private final int waitCode;
    private final long timeoutMs;
    private final long ageMaxMs;
    private final @Nullable Token token;

    private Read(int waitCode, long timeoutMs, long ageMaxMs, @Nullable Token token) {
        this.waitCode = waitCode;
        this.timeoutMs = timeoutMs;
        this.ageMaxMs = ageMaxMs;
        this.token = token;
    }

    /**
     * Returns a read of what is applied in this process; the default.
     *
     * @return the read
     */
    public static Read local() {
        return LOCAL;
    }

    /**
     * Returns a read that waits until a write is applied in this process: read your writes.
     *
     * @param token the token of the write
     * @param timeout the longest wait
     * @return the read
     */
    public static Read after(Token token, Duration timeout) {
        return new Read(HeaderConstants.WAIT_TOKEN, millis(timeout), 0, token);
    }

    /**
     * Returns a read that appends a barrier and waits until the barrier is applied: linearizable
     * per partition, at the price of an acknowledged append.
     *
     * @param timeout the longest wait
     * @return the read
     */
    public static Read latest(Duration timeout) {
        return new Read(HeaderConstants.WAIT_LATEST, millis(timeout), 0, null);
    }

    /**
     * Returns the same read with a staleness bound: older data is refused with {@link
     * StaleException}.
     *
     * @param bound at least twice the store's heartbeat interval
     * @return the read
     */
    public Read maxAge(Duration bound) {
        return new Read(waitCode, timeoutMs, Math.max(1, millis(bound)), token);
    }

    static long millis(Duration time) {
        if (time.isNegative()) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT, "the time is below 0; give 0 or more");
        }
        try {
            // A time below a millisecond must not become 0.
            return time.isZero() ? 0 : Math.max(1, time.toMillis());
        } catch (ArithmeticException beyond) {
            return Long.MAX_VALUE;
        }
    }

    boolean isLocal() {
        return waitCode == HeaderConstants.WAIT_NOTHING && ageMaxMs == 0;
    }

    int waitCode() {
        return waitCode;
    }

    long timeoutMs() {
        return timeoutMs;
    }

    long ageMaxMs() {
        return ageMaxMs;
    }

    byte[] tokenBytes() {
        return token == null ? Text.NO_BYTES : token.bytes();
    }
}
