/* Write streams, for bulk: many writes in flight, each partition in order. */
package io.forebay;

import java.lang.ref.Reference;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A stream of writes to one store, opened by {@link Store#writeStream}. Writes of one partition
 * reach the log in the order in which they were sent, even over failures and restarts of the
 * writer. A full stream makes {@link #send} wait; {@link #close} waits for everything. Belongs to
 * one thread.
 *
 * <p>Futures are completed on a thread of Forebay's. Their dependents must not block there; give
 * the {@code ...Async} methods an executor for blocking work.
 *
 * <pre>{@code
 * try (WriteStream stream = users.writeStream()) {
 *     for (String name : names) {
 *         stream.send(users.upsert(Key.of(name)).increment("visits", 1));
 *     }
 * }
 * }</pre>
 */
public final class WriteStream implements AutoCloseable {
    private static final Duration TEN_SECONDS = Duration.ofSeconds(10);

    private final Store store;
    private final NativeId id;
    private final Duration deadline;
    private final CompletionQueue queue = CompletionQueue.get();
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition delivered = lock.newCondition();
    /** Writes whose futures are not completed; guarded by the lock. */
    private long undelivered;

    private boolean closed;

    /**
     * Counts and token of a stream's writes so far.
     *
     * @param token positions in the log of every write that is in the log
     * @param resolved writes whose outcome is known
     * @param conditionFailed resolved writes whose condition did not hold
     * @param failed resolved writes that were refused, or whose outcome stays unknown
     */
    public record StreamSummary(Token token, long resolved, long conditionFailed, long failed) {}

    WriteStream(Store store, long id, Duration deadline) {
        this.store = store;
        this.id = NativeId.ownedBy(this, id);
        this.deadline = deadline.isZero() ? TEN_SECONDS : deadline;
    }

    /**
     * Queues a write once there is space; returns before the write is sent.
     *
     * @param write a write of this stream's store
     * @return a future that completes with the outcome, or with the exception that {@link
     *     Write#send} would throw; it may be dropped, because the stream still counts the write
     * @throws UnavailableException if the stream stays full until the deadline: send the write
     *     again
     * @throws ForebayException for an invalid write, which was not queued
     */
    public CompletableFuture<WriteOutcome> send(Write write) {
        store.requireOwn(write);
        WriteFuture<WriteOutcome> writeFuture =
                new WriteFuture<>(1, deadline, BatchOutcome::single);
        long ticket =
                queue.once(
                        event -> {
                            try {
                                writeFuture.onEvent(event);
                            } finally {
                                count(-1);
                            }
                        });
        boolean taken = false;
        CallBuffer call = CallBuffer.take();
        try {
            CallBuffer.Place change = call.allocate(Write.CHANGE_BYTES);
            write.encode(call, change.buffer(), change.at());
            count(1);
            call.check(
                    Native.CALLS.streamSend(
                            id.id(),
                            store.id(),
                            change.address(),
                            queue.sink(call, ticket),
                            call.error()));
            taken = true;
            return writeFuture.future();
        } finally {
            Reference.reachabilityFence(this);
            call.release();
            if (!taken) {
                queue.forget(ticket);
                count(-1);
            }
        }
    }

    private void count(int change) {
        lock.lock();
        try {
            undelivered += change;
            if (undelivered == 0) {
                delivered.signalAll();
            }
        } finally {
            lock.unlock();
        }
    }

    /**
     * Waits until every write that was sent is resolved and its future completed.
     *
     * @return the counts and the token of all writes so far
     * @throws UnknownOutcomeException if writes are still in flight at the deadline: flush again,
     *     and the same writes are resolved
     * @throws ForebayException the first error of a write since the last flush
     */
    public StreamSummary flush() {
        if (queue.isOwnThread()) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT,
                    "a callback of a future waits for futures; run the callback on an executor");
        }
        StreamSummary summary;
        try {
            summary = awaitResolved();
        } catch (UnknownOutcomeException | ClosedException unresolved) {
            throw unresolved;
        } catch (ForebayException refused) {
            awaitDelivery();
            throw refused;
        }
        awaitDelivery();
        return summary;
    }

    private StreamSummary awaitResolved() {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(Native.CALLS.streamFlush(id.id(), call.out(0), call.error()));
            long resolved = call.outLong(0);
            long conditionFailed = call.outLong(1);
            long failed = call.outLong(2);
            Token token = new Token(call.takeBytes(3));
            return new StreamSummary(token, resolved, conditionFailed, failed);
        } finally {
            Reference.reachabilityFence(this);
            call.release();
        }
    }

    /**
     * Waits for the last events; nothing is in flight, and the events arrive unless a listener
     * delays them.
     */
    private void awaitDelivery() {
        long left = deadline.toNanos();
        boolean interrupted = false;
        lock.lock();
        try {
            while (undelivered > 0 && left > 0) {
                long began = System.nanoTime();
                try {
                    delivered.await(left, TimeUnit.NANOSECONDS);
                } catch (InterruptedException interruption) {
                    interrupted = true;
                }
                left -= System.nanoTime() - began;
            }
            if (undelivered > 0) {
                throw ForebayException.of(
                        ErrorCode.UNAVAILABLE,
                        undelivered
                                + " futures are not completed yet, because a callback"
                                + " blocks; run the callback on an executor");
            }
        } finally {
            lock.unlock();
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /**
     * Flushes, then ends the stream. Writes in flight at the deadline are given up, and their
     * futures end with {@link UnknownOutcomeException}; to be able to wait again, flush first. A
     * second close changes nothing.
     *
     * @throws UnknownOutcomeException if writes were still in flight at the deadline
     * @throws ForebayException the first error of a write since the last flush
     */
    @Override
    public void close() {
        if (closed) {
            return;
        }
        closed = true;
        try {
            flush();
        } finally {
            id.close();
            awaitDelivery();
        }
    }
}
