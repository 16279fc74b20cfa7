/* Batches: many changes of one store, sent together. */
package io.forebay;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * Changes that are sent together. Changes of one partition reach the log in their order, and
 * atomically up to 1,024 of them; a larger batch is split. Belongs to one thread.
 */
public final class Batch {
    private final Store store;
    private final List<Write> writes = new ArrayList<>();
    private Duration deadline = Duration.ZERO;

    Batch(Store store) {
        this.store = store;
    }

    /**
     * Adds a change.
     *
     * @param write a write of the same store
     * @return this batch
     * @throws InvalidArgumentException for a write of another store
     */
    public Batch add(Write write) {
        store.requireOwn(write);
        writes.add(write);
        return this;
    }

    /**
     * Sets the deadline of the batch, retries included; the client's deadline unless set.
     *
     * @param deadline the deadline
     * @return this batch
     */
    public Batch deadline(Duration deadline) {
        this.deadline = deadline;
        return this;
    }

    /**
     * Returns the number of changes.
     *
     * @return the number of changes
     */
    public int size() {
        return writes.size();
    }

    /**
     * Sends the batch, and waits until the outcome of each change is known. An empty batch returns
     * at once.
     *
     * @return the outcome of each change
     * @throws UnknownOutcomeException at the deadline, with the batch, to retry it
     * @throws ForebayException for an invalid change, with nothing written
     */
    public BatchOutcome send() {
        return store.send(writes, deadline);
    }

    /**
     * Sends the batch without waiting. Two batches that are sent like this may overtake each other.
     *
     * @return a future that completes, on a thread of Forebay's, with the outcome of each change,
     *     or with the exception that {@link #send} would throw; with {@link LimitExceededException}
     *     if 16,384 changes of the client are in flight
     */
    public CompletableFuture<BatchOutcome> sendAsync() {
        return store.sendAsync(writes, deadline, outcome -> outcome);
    }
}
