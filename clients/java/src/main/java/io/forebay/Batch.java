/* Many changes of one store, sent together. */
package io.forebay;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * Changes that are sent together. Those of one partition reach the log in their order, and
 * atomically up to 1,024 of them; a larger batch goes in parts. Belongs to one thread.
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
     * Time that the batch has, its retries included, instead of the client's.
     *
     * @param deadline the time
     * @return this batch
     */
    public Batch deadline(Duration deadline) {
        this.deadline = deadline;
        return this;
    }

    /**
     * The number of changes.
     *
     * @return how many were added
     */
    public int size() {
        return writes.size();
    }

    /**
     * Sends the batch until what became of each change is known. An empty one is done at once.
     *
     * @return what became of each change
     * @throws UnknownOutcomeException at the deadline, with the batch, to retry it
     * @throws ForebayException for a change that cannot be, with nothing written
     */
    public BatchOutcome send() {
        return store.send(writes, deadline);
    }

    /**
     * Sends the batch without waiting. Two batches that are sent so may overtake each other.
     *
     * @return completed, on a thread of Forebay's, with what became of each change, or with the
     *     exception that {@link #send} would throw; {@link LimitExceededException} when 16,384
     *     changes of the client are in flight
     */
    public CompletableFuture<BatchOutcome> sendAsync() {
        return store.sendAsync(writes, deadline, outcome -> outcome);
    }
}
