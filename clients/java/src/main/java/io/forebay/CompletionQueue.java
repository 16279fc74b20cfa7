/*
 * Later events of the native core. The native core never calls into Java: one daemon thread fetches
 * its events and passes each event to its listener, so an exception of a listener never reaches
 * native code.
 */
package io.forebay;

import java.nio.ByteBuffer;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The events of this process, by ticket. */
final class CompletionQueue {
    private static final Logger LOG = LoggerFactory.getLogger(CompletionQueue.class);
    private static final long WAIT_MS = 60_000;
    private static final int EVENTS_MAX = 1_024;
    private static final long REST_MS = 1_000;

    private final AtomicLong tickets = new AtomicLong();
    private final Map<Long, Registration> waiting = new ConcurrentHashMap<>();
    private final long id;
    private final Thread thread;

    /** A receiver of events. The queue's thread calls the listener, which must not block. */
    interface Listener {
        void onEvent(Unpacker event);
    }

    private record Registration(Listener listener, boolean once) {}

    /** Holder of the queue, which the first use opens. */
    private static final class Instance {
        static final CompletionQueue QUEUE = new CompletionQueue();
    }

    private CompletionQueue() {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(Native.CALLS.inboxOpen(call.out(0), call.error()));
            id = call.outLong(0);
        } finally {
            call.release();
        }
        thread = new Thread(this::run, "forebay-completions");
        thread.setDaemon(true);
        thread.start();
    }

    static CompletionQueue get() {
        return Instance.QUEUE;
    }

    /** Returns a ticket for one event. */
    long once(Listener listener) {
        return add(new Registration(listener, true));
    }

    /** Returns a ticket for any number of events, until the ticket is removed. */
    long each(Listener listener) {
        return add(new Registration(listener, false));
    }

    private long add(Registration one) {
        long ticket = tickets.incrementAndGet();
        waiting.put(ticket, one);
        return ticket;
    }

    void forget(long ticket) {
        waiting.remove(ticket);
    }

    /** Returns whether the caller is a listener, which must not wait. */
    boolean isOwnThread() {
        return Thread.currentThread() == thread;
    }

    /** Writes an fb_sink; returns its address. */
    long sink(CallBuffer call, long ticket) {
        CallBuffer.Place place = call.allocate(HeaderConstants.SINK_STRUCT_BYTES);
        ByteBuffer buffer = place.buffer();
        buffer.putLong(place.at() + 16, id);
        buffer.putLong(place.at() + 24, ticket);
        return place.address();
    }

    private void run() {
        while (true) {
            try {
                Unpacker events = next();
                while (events.hasMore()) {
                    hand(events.i64(), new Unpacker(events.bytes()));
                }
            } catch (ClosedException closed) {
                return;
            } catch (RuntimeException | Error failure) {
                LOG.error("event fetch from the native core failed", failure);
                rest();
            }
        }
    }

    private Unpacker next() {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(
                    Native.CALLS.inboxNext(
                            id, WAIT_MS, EVENTS_MAX, call.out(0), call.out(2), call.error()));
            return new Unpacker(call.takeBytes(0));
        } finally {
            call.release();
        }
    }

    private void hand(long ticket, Unpacker event) {
        Registration one = waiting.get(ticket);
        if (one == null) {
            return;
        }
        if (one.once()) {
            waiting.remove(ticket);
        }
        try {
            one.listener().onEvent(event);
        } catch (RuntimeException | Error failure) {
            LOG.error("callback failed", failure);
        }
    }

    private static void rest() {
        try {
            Thread.sleep(REST_MS);
        } catch (InterruptedException interrupted) {
            // No other code has this thread; the next round continues.
            LOG.debug("event thread interrupted", interrupted);
        }
    }
}
