/* Unresolved writes. */
package io.forebay;

import java.time.Duration;

/**
 * A write or batch whose deadline passed before its outcome was known. A retry sends the same
 * changes under the same sequences: a change that is in the log already does not happen again.
 * Belongs to one thread; if the object is garbage-collected, the write is given up, and its outcome
 * stays unknown.
 */
public final class PendingWrite {
    private final NativeId id;
    private int changes;
    private Duration deadline = Duration.ZERO;

    PendingWrite(long id) {
        this.id = NativeId.ownedBy(this, id);
    }

    void expect(int changes, Duration deadline) {
        this.changes = changes;
        this.deadline = deadline;
    }

    /**
     * Retries the unresolved changes, with the deadline of the write. Can be used once; a further
     * failure has a new pending write.
     *
     * @return the outcome of each change
     * @throws UnknownOutcomeException at the deadline, with the write, to retry it
     * @throws ClosedException if the write was retried before
     */
    public BatchOutcome retry() {
        try {
            return Store.outcomeOf(
                    changes,
                    deadline,
                    (call, outcomes) ->
                            Native.CALLS.pendingRetry(
                                    id.id(),
                                    ReadOptions.millis(deadline),
                                    changes,
                                    outcomes,
                                    call.out(0),
                                    call.error()));
        } finally {
            id.close();
        }
    }
}
