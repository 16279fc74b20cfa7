/* The exception of one code of the error table, UnknownOutcome, and the write that it is about. */
package io.forebay;

import java.time.Duration;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * The write may or may not be in the log: nobody knows yet, and only the same write can tell.
 * {@link #pending()} is that write; retry it, and it happens once, however often it is sent.
 */
public final class UnknownOutcomeException extends ForebayException {
    private static final long serialVersionUID = 1L;

    private final transient @Nullable PendingWrite pending;

    UnknownOutcomeException(Failure failure) {
        super(failure);
        this.pending = failure.pending() == 0 ? null : new PendingWrite(failure.pending());
    }

    /**
     * The write that is not settled.
     *
     * @return the write, or empty where there is none to be retried
     */
    public Optional<PendingWrite> pending() {
        return Optional.ofNullable(pending);
    }

    void told(int changes, Duration deadline) {
        if (pending != null) {
            pending.expect(changes, deadline);
        }
    }
}
