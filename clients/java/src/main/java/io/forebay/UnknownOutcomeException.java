/* The exception of the error code UnknownOutcome, with its write. */
package io.forebay;

import java.time.Duration;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * The write may or may not be in the log: its outcome is unknown, and only the same write can
 * resolve it. {@link #pending()} returns that write; a retry makes it happen once, however often it
 * is sent.
 */
public final class UnknownOutcomeException extends ForebayException {
    private static final long serialVersionUID = 1L;

    private final transient @Nullable PendingWrite pending;

    UnknownOutcomeException(Failure failure) {
        super(failure);
        this.pending = failure.pending() == 0 ? null : new PendingWrite(failure.pending());
    }

    /**
     * Returns the unresolved write.
     *
     * @return the write, or empty if there is nothing to retry
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
