/* An id of the native core that is closed once: by its owner, or when its owner is gone. */
package io.forebay;

import java.lang.ref.Cleaner;
import java.util.concurrent.atomic.AtomicLong;

/** Holds an id for an owner, and closes it with the owner. */
final class NativeId {
    private static final Cleaner CLEANER = Cleaner.create();

    private final long id;
    private final Cleaner.Cleanable cleanable;

    NativeId(Object owner, long id) {
        this.id = id;
        this.cleanable = CLEANER.register(owner, new Closing(new AtomicLong(id)));
    }

    /** The id; the native core answers {@code Closed} for it once it was closed. */
    long id() {
        return id;
    }

    void close() {
        cleanable.clean();
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
