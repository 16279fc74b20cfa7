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

    /**
     * Returns an id that its owner closes: the object lives on if its owner is garbage-collected.
     */
    static NativeId explicit(long id) {
        return new NativeId(id, new CloseAction(new AtomicLong(id)));
    }

    /**
     * Returns an id that is closed with its owner at the latest. Calls fence the owner, so that the
     * owner outlives them.
     */
    static NativeId ownedBy(Object owner, long id) {
        CloseAction closing = new CloseAction(new AtomicLong(id));
        return new NativeId(id, CLEANER.register(owner, closing)::clean);
    }

    /** Returns the id; the native core returns {@code Closed} for it after the close. */
    long id() {
        return id;
    }

    void close() {
        closing.run();
    }

    private record CloseAction(AtomicLong open) implements Runnable {
        @Override
        public void run() {
            long id = open.getAndSet(0);
            if (id != 0) {
                // A closed id needs no further action.
                Native.CALLS.close(id, 0);
            }
        }
    }
}
