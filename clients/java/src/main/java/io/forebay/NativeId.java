/* An id of the native core that is closed once. */
package io.forebay;

import java.lang.ref.Cleaner;
import java.util.concurrent.atomic.AtomicLong;

/** Holds an id, and closes it once. */
final class NativeId {
    private static final Cleaner CLEANER = Cleaner.create();

    private final long id;
    private final Runnable closing;

    private NativeId(long id, Runnable closing) {
        this.id = id;
        this.closing = closing;
    }

    /** An id that its owner closes: it goes on working when its owner is forgotten. */
    static NativeId explicit(long id) {
        return new NativeId(id, new Closing(new AtomicLong(id)));
    }

    /**
     * An id that is closed with its owner at the latest. Calls fence the owner, so that it is not
     * gone before they are.
     */
    static NativeId ownedBy(Object owner, long id) {
        Closing closing = new Closing(new AtomicLong(id));
        return new NativeId(id, CLEANER.register(owner, closing)::clean);
    }

    /** The id; the native core answers {@code Closed} for it once it was closed. */
    long id() {
        return id;
    }

    void close() {
        closing.run();
    }

    private record Closing(AtomicLong open) implements Runnable {
        @Override
        public void run() {
            long id = open.getAndSet(0);
            if (id != 0) {
                // An id that is closed already needs nothing more.
                Native.CALLS.close(id, 0);
            }
        }
    }
}
