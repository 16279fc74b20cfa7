/* A write that was sent and is not settled. */
package io.forebay;

import java.time.Duration;

/**
 * A write or batch whose deadline passed before its outcome was known. Retrying it sends the same
 * changes under the same sequences: what is in the log already happens no second time. Belongs to
 * one thread; when it is forgotten the write is given up, and what became of it stays unknown.
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
     * Sends what is not settled again, until the deadline that the write had. Can be used once; a
     * further failure has a write of its own.
     *
     * @return what became of each change
     * @throws UnknownOutcomeException at the deadline, with the write, to retry it
     * @throws ClosedException when it was retried before
     */
    public BatchOutcome retry() {
        try {
            return Store.settled(
                    changes,
                    deadline,
                    (call, outcomes) ->
                            Native.CALLS.pendingRetry(
                                    id.id(),
                                    Read.millis(deadline),
                                    changes,
                                    outcomes,
                                    call.out(0),
                                    call.error()));
        } finally {
            id.close();
        }
    }
}
