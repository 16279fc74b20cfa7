/* A stream of writes for bulk: many in flight, each partition in order. */
package io.forebay;

import java.lang.ref.Reference;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A stream of writes to one store, opened by {@link Store#writeStream}. Writes of one partition
 * reach the log in the order in which they were sent, over failures and restarts of the writer too.
 * A full stream makes {@link #send} wait; {@link #close} waits for everything. Belongs to one
 * thread.
 *
 * <p>Futures are completed on a thread of Forebay's. What they start there must not block; give
 * the {@code ...Async} methods an executor for work that does.
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
    private final Inbox inbox = Inbox.get();
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition heard = lock.newCondition();
    /** Writes whose futures are not completed; guarded by the lock. */
    private long unheard;

    private boolean closed;

    /**
     * What became of the writes of a stream so far.
     *
     * @param token says where the log holds every write that it holds
     * @param settled writes of which it is known what became of them
     * @param notMet settled ones whose condition did not hold
     * @param failed settled ones that were refused, or whose outcome nobody will know
     */
    public record Summary(Token token, long settled, long notMet, long failed) {}

    WriteStream(Store store, long id, Duration deadline) {
        this.store = store;
        this.id = NativeId.ownedBy(this, id);
        this.deadline = deadline.isZero() ? TEN_SECONDS : deadline;
    }

    /**
     * Takes a write in, once there is room, and answers before it is sent.
     *
     * @param write a write of this stream's store
     * @return completed with what became of it, or with the exception that {@link Write#send}
     *     would throw; may be dropped, for the stream counts it all the same
     * @throws UnavailableException when the stream stays full until the deadline: send it again
     * @throws ForebayException for a write that cannot be; it was not taken in
     */
    public CompletableFuture<WriteOutcome> send(Write write) {
        store.requireOwn(write);
        Settling<WriteOutcome> settling =
                new Settling<>(1, deadline, BatchOutcome::single);
        long ticket =
                inbox.once(
                        event -> {
                            try {
                                settling.hear(event);
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
                            inbox.sink(call, ticket),
                            call.error()));
            taken = true;
            return settling.future();
        } finally {
            Reference.reachabilityFence(this);
            call.release();
            if (!taken) {
                inbox.forget(ticket);
                count(-1);
            }
        }
    }

    private void count(int change) {
        lock.lock();
        try {
            unheard += change;
            if (unheard == 0) {
                heard.signalAll();
            }
        } finally {
            lock.unlock();
        }
    }

    /**
     * Waits until every write that was sent is settled and its future completed.
     *
     * @return what became of all writes so far
     * @throws UnknownOutcomeException when writes are still in flight at the deadline: flush again,
     *     and the same writes settle
     * @throws ForebayException the first error of a write since the last flush
     */
    public Summary flush() {
        if (inbox.isOwnThread()) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT,
                    "what a future starts cannot wait for futures; use an executor");
        }
        Summary summary;
        try {
            summary = settled();
        } catch (UnknownOutcomeException | ClosedException unsettled) {
            throw unsettled;
        } catch (ForebayException refused) {
            awaitHeard();
            throw refused;
        }
        awaitHeard();
        return summary;
    }

    private Summary settled() {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(Native.CALLS.streamFlush(id.id(), call.out(0), call.error()));
            long settled = call.outLong(0);
            long notMet = call.outLong(1);
            long failed = call.outLong(2);
            return new Summary(new Token(call.takeBytes(3)), settled, notMet, failed);
        } finally {
            Reference.reachabilityFence(this);
            call.release();
        }
    }

    /** Nothing is in flight; its events are on their way, unless a listener holds them up. */
    private void awaitHeard() {
        long left = deadline.toNanos();
        boolean interrupted = false;
        lock.lock();
        try {
            while (unheard > 0 && left > 0) {
                long began = System.nanoTime();
                try {
                    heard.await(left, TimeUnit.NANOSECONDS);
                } catch (InterruptedException interruption) {
                    interrupted = true;
                }
                left -= System.nanoTime() - began;
            }
            if (unheard > 0) {
                throw ForebayException.of(
                        ErrorCode.UNAVAILABLE,
                        unheard
                                + " futures are not completed yet, for what one has started"
                                + " blocks; start that on an executor");
            }
        } finally {
            lock.unlock();
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /**
     * Flushes, then ends the stream. What is in flight at the deadline is given up, and its futures
     * end with {@link UnknownOutcomeException}; flush first, if you want to wait again. A second
     * close changes nothing.
     *
     * @throws UnknownOutcomeException when writes were still in flight at the deadline
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
            awaitHeard();
        }
    }
}
