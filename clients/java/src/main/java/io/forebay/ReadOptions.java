/* Options of a read: its wait, and its staleness bound. */
package io.forebay;

import java.time.Duration;
import org.jspecify.annotations.Nullable;

/** The wait and the staleness bound of a read. Immutable. */
public final class ReadOptions {
    private static final ReadOptions LOCAL =
            new ReadOptions(HeaderConstants.WAIT_NOTHING, 0, 0, null);

    private final int waitCode;
    private final long timeoutMs;
    private final long maxStalenessMs;
    private final @Nullable Token token;

    private ReadOptions(int waitCode, long timeoutMs, long maxStalenessMs, @Nullable Token token) {
        this.waitCode = waitCode;
        this.timeoutMs = timeoutMs;
        this.maxStalenessMs = maxStalenessMs;
        this.token = token;
    }

    /**
     * Returns a read of what is applied in this process; the default.
     *
     * @return the read
     */
    public static ReadOptions local() {
        return LOCAL;
    }

    /**
     * Returns a read that waits until a write is applied in this process: read your writes.
     *
     * @param token the token of the write
     * @param timeout the longest wait
     * @return the read
     */
    public static ReadOptions after(Token token, Duration timeout) {
        return new ReadOptions(HeaderConstants.WAIT_TOKEN, millis(timeout), 0, token);
    }

    /**
     * Returns a read that appends a barrier and waits until the barrier is applied: linearizable
     * per partition, at the price of an acknowledged append.
     *
     * @param timeout the longest wait
     * @return the read
     */
    public static ReadOptions latest(Duration timeout) {
        return new ReadOptions(HeaderConstants.WAIT_LATEST, millis(timeout), 0, null);
    }

    /**
     * Returns the same read with a staleness bound: older data is refused with {@link
     * StaleException}.
     *
     * @param bound at least twice the store's heartbeat interval
     * @return the read
     */
    public ReadOptions maxStaleness(Duration bound) {
        return new ReadOptions(waitCode, timeoutMs, Math.max(1, millis(bound)), token);
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
        return waitCode == HeaderConstants.WAIT_NOTHING && maxStalenessMs == 0;
    }

    int waitCode() {
        return waitCode;
    }

    long timeoutMs() {
        return timeoutMs;
    }

    long maxStalenessMs() {
        return maxStalenessMs;
    }

    byte[] tokenBytes() {
        return token == null ? Text.NO_BYTES : token.bytes();
    }
}
